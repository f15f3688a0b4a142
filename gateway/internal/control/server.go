// Package control is what the host agent says to the gateway: packages/host-protocol/src/gateway.ts.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"fuse/gateway/internal/egress"
)

const (
	protocol = 1
	// Four policies with as many rules and ports as there may be.
	maxBody = 8 << 20
)

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

type Server struct {
	gateway *egress.Gateway
	logger  *slog.Logger
	version string
	// May speak to it: root, and who started it.
	uids []uint32
}

func New(gateway *egress.Gateway, logger *slog.Logger, version string) *Server {
	return &Server{gateway, logger, version, []uint32{0, uint32(os.Geteuid())}}
}

// ServeControl answers until the context ends.
func (s *Server) ServeControl(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler:           s.routes(),
		MaxHeaderBytes:    16 << 10,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			if stream, ok := conn.(*net.UnixConn); !ok || s.checkPeer(stream) != nil {
				_ = conn.Close()
			}
			return ctx
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// checkPeer is a second lock: the directory's modes are the first.
func (s *Server) checkPeer(stream *net.UnixConn) error {
	raw, err := stream.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if peerErr != nil {
		return peerErr
	}
	for _, uid := range s.uids {
		if peer.Uid == uid {
			return nil
		}
	}
	return fmt.Errorf("user %d may not", peer.Uid)
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for pattern, handle := range map[string]func(*http.Request) (any, error){
		"GET /health":          s.health,
		"PUT /config":          s.configure,
		"DELETE /slots/{slot}": s.removeSlot,
		"GET /vms":             s.list,
		"GET /vms/{id}":        s.show,
		"PUT /vms/{id}":        s.attach,
		"DELETE /vms/{id}":     s.detach,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			answer, err := handle(r)
			respond(w, answer, err)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, nil, &fault{http.StatusNotFound, "route_not_found", "no such route"})
	})
	return mux
}

// fault is what the caller did wrong, as errorStatus in packages/contract has it.
type fault struct {
	status  int
	code    string
	message string
}

func (f *fault) Error() string { return f.message }

func invalid(format string, args ...any) error {
	return &fault{http.StatusBadRequest, "invalid_argument", fmt.Sprintf(format, args...)}
}

func respond(w http.ResponseWriter, answer any, err error) {
	if err != nil {
		f := faultOf(err)
		write(w, f.status, map[string]any{"error": map[string]string{"code": f.code, "message": f.message}})
		return
	}
	if answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	write(w, http.StatusOK, answer)
}

func faultOf(err error) *fault {
	var known *fault
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &tooLarge):
		return &fault{http.StatusRequestEntityTooLarge, "payload_too_large", "body is too large"}
	case errors.Is(err, egress.ErrUnknownVM), errors.Is(err, egress.ErrUnknownSlot):
		return &fault{http.StatusNotFound, "not_found", err.Error()}
	case errors.Is(err, egress.ErrSlotTaken):
		return &fault{http.StatusConflict, "conflict", err.Error()}
	default:
		return &fault{http.StatusInternalServerError, "internal", err.Error()}
	}
}

func write(w http.ResponseWriter, status int, body any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		status, encoded = http.StatusInternalServerError, []byte(`{"error":{"code":"internal","message":"cannot encode"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(encoded)
}
