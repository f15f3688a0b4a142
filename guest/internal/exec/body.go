package exec

import (
	"context"
	"errors"
	"io"
	"strconv"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

const (
	stdinFirstBytes = 4 << 10
	stdinMaxBytes   = 64 << 10
)

// TakeStdin writes a body to the command as it comes, from this offset of its stdin on (negative: appended), once the requests before it have
// brought it that far, and closes stdin behind it when `end` says so. OnStdinClosed tells when reading the body is of no use any more.
func (e *Exec) TakeStdin(ctx context.Context, body io.Reader, at int64, end bool) (protocol.ExecStdin, error) {
	over, err := e.stdin.begin(ctx, at)
	if err != nil {
		return protocol.ExecStdin{}, e.stdinFault(err)
	}
	defer over()
	at, err = e.copyStdin(ctx, body, at)
	if err == nil && end {
		err = e.stdin.end(ctx, at)
		if errors.Is(err, errStdinClosed) {
			err = nil // which is what was asked for
		}
	}
	if err != nil {
		return protocol.ExecStdin{}, e.stdinFault(err)
	}
	taken, closed := e.stdin.state()
	return protocol.ExecStdin{StdinBytes: taken, Closed: closed}, nil
}

func (e *Exec) copyStdin(ctx context.Context, body io.Reader, at int64) (int64, error) {
	buffer := make([]byte, stdinFirstBytes)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			if _, err := e.stdin.write(ctx, at, buffer[:n]); err != nil {
				return at, err
			}
			if at >= 0 {
				at += int64(n)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return at, nil
		case err != nil && e.stdin.open.Err() != nil:
			return at, errStdinClosed
		case err != nil:
			return at, err
		case n == len(buffer) && n < stdinMaxBytes:
			buffer = make([]byte, stdinMaxBytes)
		}
	}
}

// OnStdinClosed calls f once the command takes no stdin any more, at once when it does not now. The function returned calls it off.
func (e *Exec) OnStdinClosed(f func()) (cancel func() bool) {
	return context.AfterFunc(e.stdin.open, f)
}

func (e *Exec) stdinFault(err error) error {
	taken, _ := e.stdin.state()
	has := strconv.FormatInt(taken, 10)
	switch {
	case errors.Is(err, errStdinAhead):
		return fault.New(fault.Conflict, "the offset is ahead of the %s bytes that the command has", has).
			With("stdin_bytes", has).With("reason", "stdin_ahead")
	case errors.Is(err, errStdinClosed):
		return fault.New(fault.Conflict, "the command takes no stdin").With("stdin_bytes", has).With("reason", "stdin_closed")
	default:
		return err
	}
}
