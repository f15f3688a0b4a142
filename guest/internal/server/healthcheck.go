package server

import (
	"net/http"

	"fuse/guest/internal/protocol"
)

func (a *Agent) putHealthcheck(w http.ResponseWriter, r *http.Request) error {
	var check protocol.Healthcheck
	if err := readJSON(w, r, &check); err != nil {
		return err
	}
	if err := a.Healthcheck.Put(check); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *Agent) getHealthcheck(w http.ResponseWriter, _ *http.Request) error {
	state, err := a.Healthcheck.Get()
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, state)
}

func (a *Agent) deleteHealthcheck(w http.ResponseWriter, _ *http.Request) error {
	a.Healthcheck.Delete()
	w.WriteHeader(http.StatusNoContent)
	return nil
}
