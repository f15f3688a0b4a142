// Package privileges makes the gateway an ordinary user that can become no other.
package privileges

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

const lastCapability = 63

// RaiseOpenFiles raises the limit of open files as far as it may be, and says how far that is.
func RaiseOpenFiles(want uint64) (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	raised := unix.Rlimit{Cur: want, Max: max(want, limit.Max)}
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &raised) == nil {
		return raised.Cur, nil
	}
	raised = unix.Rlimit{Cur: min(want, limit.Max), Max: limit.Max}
	return raised.Cur, unix.Setrlimit(unix.RLIMIT_NOFILE, &raised)
}

// Drop leaves root for good, on every thread.
func Drop(uid, gid int) error {
	for capability := range lastCapability + 1 {
		_, _, problem := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(capability), 0)
		if problem == unix.EINVAL {
			break // no such capability, nor a later one
		}
		if problem != 0 {
			return fmt.Errorf("cannot drop capability %d: %w", capability, problem)
		}
	}
	if err := syscall.Setgroups([]int{}); err != nil {
		return fmt.Errorf("cannot leave groups: %w", err)
	}
	if err := syscall.Setresgid(gid, gid, gid); err != nil {
		return fmt.Errorf("cannot become group %d: %w", gid, err)
	}
	// From 0 to another user: the kernel clears every set of capabilities but the inheritable one.
	if err := syscall.Setresuid(uid, uid, uid); err != nil {
		return fmt.Errorf("cannot become user %d: %w", uid, err)
	}
	return NoNewPrivileges()
}

// NoNewPrivileges holds for every thread.
func NoNewPrivileges() error {
	if _, _, problem := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); problem != 0 {
		return fmt.Errorf("cannot renounce new privileges: %w", problem)
	}
	return nil
}
