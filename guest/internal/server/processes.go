package server

import (
	"net/http"
	"strconv"

	"fuse/guest/internal/exec"
	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

func (a *Agent) listProcesses(w http.ResponseWriter, _ *http.Request) error {
	list, err := a.Processes.List()
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, list)
}

func (a *Agent) signalProcess(w http.ResponseWriter, r *http.Request) error {
	pid, err := strconv.ParseInt(r.PathValue("pid"), 10, 32)
	if err != nil {
		return fault.New(fault.InvalidArgument, "a pid is a number").With("field", "pid")
	}
	var wanted protocol.Signal
	if err := readJSON(w, r, &wanted); err != nil {
		return err
	}
	signal, err := exec.ParseSignal(wanted.Signal)
	if err != nil {
		return err
	}
	if err := a.Processes.Signal(int(pid), signal, wanted.Tree); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
