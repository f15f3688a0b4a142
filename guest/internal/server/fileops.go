package server

import (
	"context"
	"net/http"

	"fuse/guest/internal/fault"
)

// operation is a row of packages/contract's `fileOperations`: a JSON body in, a JSON body out.
type operation func(a *Agent, w http.ResponseWriter, r *http.Request) (any, error)

func takes[Request, Response any](do func(*Agent, context.Context, Request) (Response, error)) operation {
	return func(a *Agent, w http.ResponseWriter, r *http.Request) (any, error) {
		var request Request
		if err := readJSON(w, r, &request); err != nil {
			return nil, err
		}
		return do(a, r.Context(), request)
	}
}

func (a *Agent) fileOperation(w http.ResponseWriter, r *http.Request) error {
	do, known := fileOperations[r.PathValue("operation")]
	if !known {
		return fault.New(fault.RouteNotFound, "no route %s %s", r.Method, r.URL.Path)
	}
	answer, err := do(a, w, r)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, answer)
}
