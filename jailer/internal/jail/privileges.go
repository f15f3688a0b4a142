package jail

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"fuse/jailer/internal/protocol"
)

func setLimits(limits protocol.Limits) error {
	type limit struct {
		name     string
		resource int
		value    uint64
	}
	all := []limit{
		{"open files", unix.RLIMIT_NOFILE, limits.OpenFiles},
		{"file size", unix.RLIMIT_FSIZE, limits.FileSizeBytes},
		{"core files", unix.RLIMIT_CORE, 0},
	}
	if limits.LockedBytes > 0 {
		all = append(all, limit{"locked memory", unix.RLIMIT_MEMLOCK, limits.LockedBytes})
	}
	for _, each := range all {
		// By syscall, which then no longer restores at exec the limit that Go itself has raised.
		if err := syscall.Setrlimit(each.resource, &syscall.Rlimit{Cur: each.value, Max: each.value}); err != nil {
			return fmt.Errorf("limit %s: %w", each.name, err)
		}
	}
	return nil
}

// dropPrivileges makes the calling thread, which becomes the program, an unprivileged user for ever: exec gives nothing back.
func dropPrivileges(uid, gid int) error {
	unix.Umask(0o077)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	for capability := uintptr(0); ; capability++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && capability > 0 {
			break // the kernel has no more
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop ambient capabilities: %w", err)
	}
	// The system calls themselves: Go's functions change every thread, and the others end with exec.
	if _, _, number := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); number != 0 {
		return fmt.Errorf("setgroups: %w", number)
	}
	id := uintptr(gid)
	if _, _, number := unix.RawSyscall(unix.SYS_SETRESGID, id, id, id); number != 0 {
		return fmt.Errorf("setresgid %d: %w", gid, number)
	}
	id = uintptr(uid)
	if _, _, number := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); number != 0 {
		return fmt.Errorf("setresuid %d: %w", uid, number)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}
