package server

import (
	"net/http"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/identity"
	"fuse/guest/internal/protocol"
)

func (a *Agent) health(w http.ResponseWriter, _ *http.Request) error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return err
	}
	var uptime unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &uptime); err != nil {
		return err
	}
	return reply(w, http.StatusOK, protocol.Health{
		Protocol:     protocol.Version,
		AgentVersion: a.Version,
		Kernel:       unix.ByteSliceToString(name.Release[:]),
		BootID:       identity.BootID(),
		UptimeMs:     uptime.Nano() / 1e6,
		Generation:   a.Machine.Generation(),
		Execs:        a.Execs.Running(),
	})
}

func (a *Agent) identity(w http.ResponseWriter, r *http.Request) error {
	var id protocol.Identity
	if err := readJSON(w, r, &id); err != nil {
		return err
	}
	confirmed, err := a.Machine.Assume(id)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, confirmed)
}
