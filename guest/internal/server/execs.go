package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"fuse/guest/internal/exec"
	"fuse/guest/internal/fault"
	"fuse/guest/internal/frames"
	"fuse/guest/internal/protocol"
)

const specWait = 5 * time.Second

// converse is the full-duplex route: it starts the exec when the host sends a spec for an id that is new, then carries frames both ways.
func (a *Agent) converse(w http.ResponseWriter, r *http.Request) error {
	offset, err := offsetOf(r)
	if err != nil {
		return err
	}
	in := frames.NewReader(r.Body)
	out := &stream{ResponseWriter: w, control: http.NewResponseController(w)}
	running, err := a.findOrStart(r.PathValue("id"), in, out.control)
	if err != nil {
		return err
	}
	conversation, err := running.Converse(r.Context(), offset, out)
	if err != nil {
		return err
	}
	w.Header().Set("content-type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	if err := out.Flush(); err == nil {
		err = conversation.Run(in, offset)
		if err == nil {
			return nil
		}
	} else {
		conversation.Cancel(err)
	}
	panic(http.ErrAbortHandler) // a cut stream must not look like an ended one
}

func (a *Agent) findOrStart(id string, in *frames.Reader, control *http.ResponseController) (*exec.Exec, error) {
	found, notFound := a.Execs.Find(id)
	if notFound == nil {
		return found, nil
	}
	// Without a spec the id is unknown, which a host that only wants to go on must hear though it keeps its side open.
	_ = control.SetReadDeadline(time.Now().Add(specWait))
	kind, _, err := in.Next()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
		return nil, notFound
	case errors.Is(err, frames.ErrTooLarge):
		return nil, fault.New(fault.PayloadTooLarge, "%v", err)
	case err != nil:
		return nil, fault.New(fault.InvalidArgument, "the first frame is cut: %v", err)
	case kind != frames.Spec:
		return nil, notFound
	}
	payload, err := in.Payload(frames.MaxPayloadBytes)
	if err != nil {
		return nil, fault.New(fault.InvalidArgument, "the spec frame is cut: %v", err)
	}
	_ = control.SetReadDeadline(time.Time{})
	spec, err := exec.ParseSpec(payload)
	if err != nil {
		return nil, err
	}
	return a.Execs.Start(id, spec)
}

func offsetOf(r *http.Request) (int64, error) {
	values, err := query(r)
	if err != nil {
		return 0, err
	}
	text := values.Get("offset")
	if text == "" {
		return 0, nil
	}
	offset, err := strconv.ParseInt(text, 10, 64)
	if err != nil || offset < 0 {
		return 0, fault.New(fault.InvalidArgument, "offset must be a number of bytes").With("field", "offset")
	}
	return offset, nil
}

// stream is the response of a conversation.
type stream struct {
	http.ResponseWriter
	control *http.ResponseController
}

func (s *stream) Flush() error { return s.control.Flush() }

func (s *stream) Abort() {
	_ = s.control.SetReadDeadline(time.Unix(1, 0))
	_ = s.control.SetWriteDeadline(time.Unix(1, 0))
}

// ack is the ack frame as a request of its own: one that lies behind stdin which the command does not read would never be seen.
func (a *Agent) ack(w http.ResponseWriter, r *http.Request) error {
	offset, err := offsetOf(r)
	if err != nil {
		return err
	}
	found, err := a.Execs.Find(r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := found.Ack(offset); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *Agent) listExecs(w http.ResponseWriter, _ *http.Request) error {
	return reply(w, http.StatusOK, protocol.ExecList{Execs: a.Execs.List()})
}

func (a *Agent) execStatus(w http.ResponseWriter, r *http.Request) error {
	found, err := a.Execs.Find(r.PathValue("id"))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, found.Status())
}

func (a *Agent) deleteExec(w http.ResponseWriter, r *http.Request) error {
	a.Execs.Delete(r.PathValue("id"))
	w.WriteHeader(http.StatusNoContent)
	return nil
}
