package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"unicode/utf8"

	"fuse/guest/internal/protocol"
)

const (
	maxMessageBytes = 2048
	excerptBytes    = 1024
	maxHeaderBytes  = 64 << 10
)

// client goes to the address alone: through no proxy, after no redirect.
var client = &http.Client{
	Transport: &http.Transport{
		DialContext:            new(net.Dialer).DialContext,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
	},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// try returns what is wrong, for people; "" when nothing is.
func (w *watch) try(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, w.plan.timeout)
	defer cancel()
	if w.plan.argv != nil {
		return bound(w.tryExec(ctx))
	}
	return bound(w.tryHTTP(ctx))
}

func (w *watch) tryHTTP(ctx context.Context) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.plan.url, nil)
	if err != nil {
		return err.Error()
	}
	response, err := client.Do(request)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("GET %s: no answer within %s", w.plan.url, w.plan.timeout)
	}
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	if response.StatusCode >= 200 && response.StatusCode < 400 {
		return ""
	}
	excerpt, _ := io.ReadAll(io.LimitReader(response.Body, excerptBytes)) // as much as came in time
	return strings.TrimSpace(fmt.Sprintf("GET %s: %s\n%s", w.plan.url, response.Status, excerpt))
}

func (w *watch) tryExec(ctx context.Context) string {
	end, err := w.execs.Run(ctx, protocol.ExecSpec{Argv: w.plan.argv, KillOnExit: true}, excerptBytes)
	switch {
	case err != nil:
		return err.Error()
	case end.TimedOut:
		return strings.TrimSpace(fmt.Sprintf("no end within %s\n%s", w.plan.timeout, end.Output))
	case end.ExitCode != 0:
		return strings.TrimSpace(fmt.Sprintf("exit code %d\n%s", end.ExitCode, end.Output))
	}
	return ""
}

// bound makes a text of at most so many bytes, and keeps its beginning.
func bound(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= maxMessageBytes {
		return text
	}
	cut := maxMessageBytes
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}
