// Package reaper is the one place that waits for children. PID 1 inherits every orphan of the machine, so a wait for one pid of its own
// would leave the others as zombies, and a wait for any pid would steal other waiters' statuses: all statuses are taken here and handed to
// whoever started the process.
package reaper

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

type Status = unix.WaitStatus

type Reaper struct {
	mu       sync.Mutex
	waiting  map[int]chan Status
	children *sync.Cond
	forks    int
}

// Start runs the reaper for the life of the process.
func Start() *Reaper {
	r := &Reaper{waiting: map[int]chan Status{}}
	r.children = sync.NewCond(&r.mu)
	go r.loop()
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
	r.forks++
	r.children.Broadcast()
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

func (r *Reaper) loop() {
	for {
		r.mu.Lock()
		seen := r.forks
		r.mu.Unlock()
		// WNOWAIT leaves the zombie, and so its pid, in place until the lock is held.
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
		switch err {
		case nil:
			r.reap()
		case unix.EINTR:
		case unix.ECHILD:
			r.awaitFork(seen)
		default:
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// awaitFork blocks until something was forked after `seen` was read. Without children there can be no orphans either.
func (r *Reaper) awaitFork(seen int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.forks == seen {
		r.children.Wait()
	}
}

func (r *Reaper) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status Status
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if ended, ours := r.waiting[pid]; ours {
			delete(r.waiting, pid)
			ended <- status
		}
	}
}
