package exec

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// readiness tells who waits for a pipe or a terminal when it can be read or written. Go's own poller is edge-triggered: it would wake a thread
// for every write to a pipe, also while nobody waits for one, and a command that writes a line at a time would spend its processor on that.
// Here a descriptor is watched for one event, and only while somebody waits for it; one waits for a descriptor at a time.
type readiness struct {
	epoll   *os.File // itself watched by Go's poller
	fd      int
	mu      sync.Mutex
	waiting map[int32]chan struct{}
}

var pipesReady = sync.OnceValue(openReadiness)

// openReadiness panics when the kernel gives no epoll: an agent without it could not read any output.
func openReadiness() *readiness {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		panic(err)
	}
	r := &readiness{epoll: os.NewFile(uintptr(fd), "pipes"), fd: fd, waiting: map[int32]chan struct{}{}}
	go r.run()
	return r
}

// wait returns true once the event has come, or the other end is gone, and false when one of the channels is closed before.
func (r *readiness) wait(pipe int, event uint32, done, alsoDone <-chan struct{}) (bool, error) {
	ready := make(chan struct{})
	r.mu.Lock()
	r.waiting[int32(pipe)] = ready
	r.mu.Unlock()
	if err := r.watch(pipe, event); err != nil {
		r.forget(pipe, ready)
		return false, err
	}
	select {
	case <-ready:
		return true, nil
	case <-done:
	case <-alsoDone:
	}
	r.forget(pipe, ready)
	return false, nil
}

func (r *readiness) watch(pipe int, event uint32) error {
	wanted := unix.EpollEvent{Events: event | unix.EPOLLONESHOT, Fd: int32(pipe)}
	err := unix.EpollCtl(r.fd, unix.EPOLL_CTL_MOD, pipe, &wanted)
	if err == unix.ENOENT { // for the first time; closing the pipe takes it out again
		err = unix.EpollCtl(r.fd, unix.EPOLL_CTL_ADD, pipe, &wanted)
	}
	return err
}

func (r *readiness) forget(pipe int, ready chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting[int32(pipe)] == ready {
		delete(r.waiting, int32(pipe))
	}
}

func (r *readiness) run() {
	raw, err := r.epoll.SyscallConn()
	if err != nil {
		panic(err)
	}
	var events [64]unix.EpollEvent
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			n, _ = unix.EpollWait(int(fd), events[:], 0)
			return n > 0
		})
		if err != nil {
			panic(err) // the file is never closed
		}
		r.mu.Lock()
		for _, event := range events[:n] {
			if ready, ok := r.waiting[event.Fd]; ok {
				delete(r.waiting, event.Fd)
				close(ready)
			}
		}
		r.mu.Unlock()
	}
}
