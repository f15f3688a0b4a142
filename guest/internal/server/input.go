package server

import (
	"net/http"
	"net/url"
	"strconv"
	"time"

	"fuse/guest/internal/exec"
	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

// A request that repeats what the command took before stdin was closed has so long to come in whole.
const repeatWait = time.Second

// writeStdin writes the request's body to a command as it comes.
func (a *Agent) writeStdin(w http.ResponseWriter, r *http.Request) error {
	at, end, err := stdinQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	found, err := a.Execs.Find(r.PathValue("id"))
	if err != nil {
		return err
	}
	control := http.NewResponseController(w)
	called := make(chan struct{})
	cancel := found.OnStdinClosed(func() {
		defer close(called)
		deadline := time.Unix(1, 0)
		if at >= 0 {
			deadline = time.Now().Add(repeatWait)
		}
		_ = control.SetReadDeadline(deadline)
	})
	defer func() {
		if !cancel() {
			<-called // the writer of a request that is over is another's
		}
	}()
	taken, err := found.TakeStdin(r.Context(), r.Body, at, end)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, taken)
}

// stdinQuery parses offset=N&end=1; without an offset it is negative.
func stdinQuery(text string) (at int64, end bool, err error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return 0, false, fault.New(fault.InvalidArgument, "the query is malformed")
	}
	at = -1
	if offset := values.Get("offset"); offset != "" {
		if at, err = strconv.ParseInt(offset, 10, 64); err != nil || at < 0 {
			return 0, false, fault.New(fault.InvalidArgument, "offset must be a number of bytes").With("field", "offset")
		}
	}
	return at, values.Get("end") == "1", nil
}

func (a *Agent) resize(w http.ResponseWriter, r *http.Request) error {
	found, err := a.Execs.Find(r.PathValue("id"))
	if err != nil {
		return err
	}
	var size protocol.TerminalSize
	if err := readJSON(w, r, &size); err != nil {
		return err
	}
	if err := found.Resize(size); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *Agent) signalExec(w http.ResponseWriter, r *http.Request) error {
	found, err := a.Execs.Find(r.PathValue("id"))
	if err != nil {
		return err
	}
	var wanted protocol.Signal
	if err := readJSON(w, r, &wanted); err != nil {
		return err
	}
	signal, err := exec.ParseSignal(wanted.Signal)
	if err != nil {
		return err
	}
	found.Signal(signal, wanted.Tree)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
