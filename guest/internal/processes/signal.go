package processes

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// A tree that still grows after so many rounds is given up on: what it grew since lives on.
	maxRounds = 100
	// A process that was just forked may not be listed yet, so one look that finds nothing new proves nothing.
	quietRounds = 3
	quietDelay  = time.Millisecond
)

// SignalAll sends a signal once to every process that find finds, those that appear meanwhile included. Each is held by a descriptor before it is
// looked for once more, so that the signal never reaches another process that was given the same number.
func SignalAll(find func() []int, signal unix.Signal) {
	held := map[int]int{}
	defer func() {
		for _, fd := range held {
			unix.Close(fd)
		}
	}()
	quiet := 0
	for range maxRounds {
		fresh := hold(find, held)
		if len(fresh) == 0 {
			if quiet++; quiet == quietRounds {
				return
			}
			time.Sleep(quietDelay)
			continue
		}
		quiet = 0
		for _, pid := range fresh {
			_ = unix.PidfdSendSignal(held[pid], signal, nil, 0) // one that has ended needs none
		}
	}
}

// hold adds what is found to the held ones and returns what is new.
func hold(find func() []int, held map[int]int) []int {
	opened := map[int]int{}
	for _, pid := range find() {
		if held[pid] != 0 || opened[pid] != 0 { // a cgroup may name one twice
			continue
		}
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			opened[pid] = fd
		}
	}
	if len(opened) == 0 {
		return nil
	}
	var fresh []int
	for _, pid := range find() {
		if fd, found := opened[pid]; found {
			held[pid] = fd
			fresh = append(fresh, pid)
			delete(opened, pid)
		}
	}
	for _, fd := range opened {
		unix.Close(fd)
	}
	return fresh
}
