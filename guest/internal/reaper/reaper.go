// Package reaper is the one place that waits for children. PID 1 inherits every orphan of the machine, so a wait for one pid of its own
// would leave the others as zombies, and a wait for any pid would steal other waiters' statuses: all statuses are taken here and handed to
// whoever started the process.
package reaper

import (
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
)

type Status = unix.WaitStatus

type Reaper struct {
	mu      sync.Mutex
	waiting map[int]chan Status
}

// Start runs the reaper for the life of the process. It goes by SIGCHLD: a thread that blocks in wait would hold up all others of a
// process that has one processor until the Go scheduler notices.
func Start() *Reaper {
	r := &Reaper{waiting: map[int]chan Status{}}
	deaths := make(chan os.Signal, 1)
	signal.Notify(deaths, unix.SIGCHLD)
	go func() {
		for range deaths {
			r.reap()
		}
	}()
	return r
}

// Fork calls fork and returns its pid with a channel that gets the child's status once. No child can be reaped between its fork and its
// registration.
func (r *Reaper) Fork(fork func() (int, error)) (int, <-chan Status, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := fork()
	if err != nil {
		return 0, nil, err
	}
	ended := make(chan Status, 1)
	r.waiting[pid] = ended
	return pid, ended, nil
}

// Signal sends a signal to the process group that pid leads, unless pid has been reaped (its number may be another's by now).
func (r *Reaper) Signal(pid int, signal unix.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, lives := r.waiting[pid]; !lives {
		return unix.ESRCH
	}
	return unix.Kill(-pid, signal)
}

// reap takes every zombie that there is: one signal may stand for many deaths.
func (r *Reaper) reap() {
	for r.reapOne() {
	}
}

// reapOne holds the lock across wait and dispatch, and only for one zombie, so that forks get their turn in a flood of orphans.
func (r *Reaper) reapOne() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	var status Status
	pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
	if err == unix.EINTR {
		return true
	}
	if err != nil || pid <= 0 {
		return false
	}
	if ended, ours := r.waiting[pid]; ours {
		delete(r.waiting, pid)
		ended <- status
	}
	return true
}
