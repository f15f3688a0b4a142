package server

import (
	"net/http"
	"strconv"
	"time"

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

// identity also ends a freeze: it is of the snapshot that the machine was restored from, and the names of the new one are files.
func (a *Agent) identity(w http.ResponseWriter, r *http.Request) error {
	received := time.Now()
	var id protocol.Identity
	if err := readJSON(w, r, &id); err != nil {
		return err
	}
	if err := a.Disk.Thaw(); err != nil {
		return err
	}
	if err := a.Machine.Assume(id); err != nil {
		return err
	}
	confirmed := protocol.IdentityConfirmed{Generation: id.Generation, Hostname: id.Hostname}
	if id.HooksDeadlineMs > 0 {
		confirmed.Hooks = a.Hooks.Run(id, received.Add(time.Duration(id.HooksDeadlineMs)*time.Millisecond))
	}
	confirmed.TimeUnixNs = strconv.FormatInt(time.Now().UnixNano(), 10)
	return reply(w, http.StatusOK, confirmed)
}

func (a *Agent) freeze(w http.ResponseWriter, r *http.Request) error {
	var freeze protocol.Freeze
	if err := readJSON(w, r, &freeze); err != nil {
		return err
	}
	if err := a.Disk.Freeze(freeze.DeadlineMs); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *Agent) thaw(w http.ResponseWriter, _ *http.Request) error {
	if err := a.Disk.Thaw(); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
