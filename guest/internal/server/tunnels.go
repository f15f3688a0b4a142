package server

import (
	"net/http"
	"net/url"
	"strconv"

	"fuse/guest/internal/fault"
)

// openTunnel carries one TCP connection: the request's body to the server, frames with what it says back.
func (a *Agent) openTunnel(w http.ResponseWriter, r *http.Request) error {
	port, err := portQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	connection, err := a.Tunnels.Connect(r.Context(), port)
	if err != nil {
		return err
	}
	out := &stream{ResponseWriter: w, control: http.NewResponseController(w)}
	w.Header().Set("content-type", "application/octet-stream")
	w.WriteHeader(http.StatusOK)
	if err = out.Flush(); err == nil {
		err = connection.Carry(r.Body, out)
	}
	if err != nil {
		connection.Abort()
		panic(http.ErrAbortHandler) // a lost connection must not look like an ended one
	}
	return nil
}

func portQuery(text string) (int, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return 0, fault.New(fault.InvalidArgument, "the query is malformed")
	}
	port, err := strconv.ParseUint(values.Get("port"), 10, 16)
	if err != nil || port == 0 {
		return 0, fault.New(fault.InvalidArgument, "port must be 1 to 65535").With("field", "port")
	}
	return int(port), nil
}
