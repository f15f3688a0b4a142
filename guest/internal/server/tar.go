package server

import (
	"net/http"

	"fuse/guest/internal/archive"
)

func (a *Agent) getTar(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	source, err := archive.Open(values.Get("path"))
	if err != nil {
		return err
	}
	defer source.Close()
	w.Header().Set("content-type", "application/x-tar")
	w.WriteHeader(http.StatusOK)
	if err := source.Write(r.Context(), w); err != nil {
		panic(http.ErrAbortHandler) // an archive that is not whole must not look like one
	}
	return nil
}

func (a *Agent) putTar(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	uid, gid, err := a.ownerOf(values)
	if err != nil {
		return err
	}
	extracted, err := archive.Extract(r.Context(), archive.Destination{Path: values.Get("path"), UID: uid, GID: gid}, r.Body)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, extracted)
}
