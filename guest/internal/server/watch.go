package server

import (
	"bytes"
	"encoding/json"
	"net/http"

	"fuse/guest/internal/protocol"
	"fuse/guest/internal/watch"
)

// watch streams events, one JSON object a line.
func (a *Agent) watch(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	watched, err := watch.Start(r.Context(), values.Get("path"), flag(values, "recursive"))
	if err != nil {
		return err
	}
	defer watched.Close()
	w.Header().Set("content-type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	err = watched.Run(r.Context(), func(events []protocol.WatchEvent) error {
		lines.Reset()
		for _, event := range events {
			if err := encoder.Encode(event); err != nil {
				return err
			}
		}
		if _, err := w.Write(lines.Bytes()); err != nil {
			return err
		}
		return control.Flush()
	})
	if err != nil {
		panic(http.ErrAbortHandler) // only a path that is gone is an end
	}
	return nil
}
