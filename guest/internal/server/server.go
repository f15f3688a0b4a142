// Package server is the agent's HTTP interface, as packages/host-protocol/src/guest.ts describes it.
package server

import (
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"net/url"

	"fuse/guest/internal/disk"
	"fuse/guest/internal/exec"
	"fuse/guest/internal/fault"
	"fuse/guest/internal/health"
	"fuse/guest/internal/hooks"
	"fuse/guest/internal/identity"
	"fuse/guest/internal/processes"
	"fuse/guest/internal/protocol"
	"fuse/guest/internal/tree"
	"fuse/guest/internal/tunnel"
)

const (
	maxJSONBytes = 4 << 20
	// Every exec that the host follows is a stream; beyond these, requests of the host would wait for one to end.
	maxStreams = 1000
	// Hundreds of execs whose stdin nobody reads must not use up the connection's window, or no other request comes through.
	streamWindowBytes     = 256 << 10
	connectionWindowBytes = 256 * streamWindowBytes
	maxFrameBytes         = 64 << 10
	maxHeaderBytes        = 64 << 10
)

// Agent is what the routes act on.
type Agent struct {
	Execs       *exec.Registry
	Machine     *identity.Machine
	Hooks       *hooks.Hooks
	Disk        *disk.Disk
	Processes   *processes.Table
	Tunnels     *tunnel.Tunnels
	Healthcheck *health.Checker
	Files       *tree.Tree
	Version     string
}

// New returns a server that speaks HTTP/2 with prior knowledge only.
func New(agent *Agent, errorLog *log.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:        agent.routes(),
		Protocols:      protocols,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       errorLog,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReadFrameSize:              maxFrameBytes,
			MaxReceiveBufferPerConnection: connectionWindowBytes,
			MaxReceiveBufferPerStream:     streamWindowBytes,
		},
	}
}

func (a *Agent) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Date"] = nil // the host has a clock of its own
			if err := h(w, r); err != nil {
				fail(w, err)
			}
		})
	}
	handle("GET /v1/health", a.health)
	handle("POST /v1/identity", a.identity)
	handle("POST /v1/execs/{id}", a.converse)
	handle("POST /v1/execs/{id}/ack", a.ack)
	handle("POST /v1/execs/{id}/stdin", a.writeStdin)
	handle("POST /v1/execs/{id}/resize", a.resize)
	handle("POST /v1/execs/{id}/signal", a.signalExec)
	handle("GET /v1/execs", a.listExecs)
	handle("GET /v1/execs/{id}", a.execStatus)
	handle("DELETE /v1/execs/{id}", a.deleteExec)
	handle("GET /v1/processes", a.listProcesses)
	handle("POST /v1/processes/{pid}/signal", a.signalProcess)
	handle("POST /v1/tunnels", a.openTunnel)
	handle("PUT /v1/healthcheck", a.putHealthcheck)
	handle("GET /v1/healthcheck", a.getHealthcheck)
	handle("DELETE /v1/healthcheck", a.deleteHealthcheck)
	handle("PUT /v1/files", a.putFile)
	handle("GET /v1/files", a.getFile)
	handle("POST /v1/files/{operation}", a.fileOperation)
	handle("GET /v1/watch", a.watch)
	handle("GET /v1/tar", a.getTar)
	handle("PUT /v1/tar", a.putTar)
	handle("POST /v1/glob", a.glob)
	handle("POST /v1/sync", a.sync)
	handle("POST /v1/freeze", a.freeze)
	handle("POST /v1/thaw", a.thaw)
	handle("/", func(_ http.ResponseWriter, r *http.Request) error {
		return fault.New(fault.RouteNotFound, "no route %s %s", r.Method, r.URL.Path)
	})
	return mux
}

func reply(w http.ResponseWriter, status int, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(status)
	_, err = w.Write(text)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// fail answers an error of a handler that has written nothing yet.
func fail(w http.ResponseWriter, err error) {
	known := &fault.Error{Code: fault.Internal, Message: err.Error()}
	errors.As(err, &known)
	_ = reply(w, known.Code.Status(), protocol.ErrorBody{
		Error: protocol.ErrorFields{Code: string(known.Code), Message: clip(known.Message), Details: known.Details},
	})
}

func clip(message string) string {
	const most = 4000
	if len(message) > most {
		return message[:most]
	}
	return message
}

func readJSON(w http.ResponseWriter, r *http.Request, into any) error {
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxJSONBytes)).Decode(into)
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &tooLarge):
		return fault.New(fault.PayloadTooLarge, "the body is over %d bytes", maxJSONBytes)
	default:
		return fault.New(fault.InvalidArgument, "the body is not the JSON that this route takes: %v", err)
	}
}

func query(r *http.Request) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fault.New(fault.InvalidArgument, "the query is malformed")
	}
	return values, nil
}
