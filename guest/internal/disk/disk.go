// Package disk freezes the machine's writable file system while its disk is copied. Whatever happens, a freeze ends: by a thaw, or by itself
// at its deadline, which goes on counting in a machine that was restored from a snapshot of a frozen one.
//
// While it lasts, writes of every process wait in the kernel, the agent's own too (an upload, say); nothing that must go on here touches
// the file system: execs, their output and the channel live in memory.
package disk

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
)

// Request is what the kernel is asked to do: _IOWR('X', 119, int) and _IOWR('X', 120, int) of linux/fs.h.
type Request uint

const (
	FreezeRequest Request = 0xc0045877
	ThawRequest   Request = 0xc0045878

	maxFreezeMs = 60_000
	retryDelay  = 500 * time.Millisecond
)

// Disk is the machine's writable file system.
type Disk struct {
	control func(Request) error

	mu     sync.Mutex
	frozen bool
	until  time.Time
}

// New takes a directory of the file system, held open.
func New(directory int) *Disk {
	return Controlled(func(request Request) error { return unix.IoctlSetInt(directory, uint(request), 0) })
}

// Controlled takes what freezes and thaws instead.
func Controlled(control func(Request) error) *Disk { return &Disk{control: control} }

// Freeze flushes the file system and holds it still for so long from now at most. One that is frozen already stays so for longer.
func (d *Disk) Freeze(deadlineMs int64) error {
	if deadlineMs <= 0 || deadlineMs > maxFreezeMs {
		return fault.New(fault.InvalidArgument, "deadline_ms must be 1 to %d", maxFreezeMs).With("field", "deadline_ms")
	}
	until := time.Now().Add(time.Duration(deadlineMs) * time.Millisecond)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.frozen {
		if until.After(d.until) {
			d.until = until // the timer that runs looks again
		}
		return nil
	}
	switch err := d.control(FreezeRequest); {
	case errors.Is(err, unix.EBUSY):
		return fault.New(fault.Conflict, "a process of the guest has frozen the file system")
	case err != nil:
		return fmt.Errorf("freeze the file system: %w", err)
	}
	d.frozen, d.until = true, until
	if !time.Now().Before(until) {
		if err := d.thaw(); err != nil {
			d.endAfter(retryDelay)
			return err
		}
		return fault.New(fault.Unavailable, "flushing the file system took longer than the freeze may last")
	}
	d.endAfter(time.Until(until))
	return nil
}

// Thaw ends a freeze. One that is not there is no error.
func (d *Disk) Thaw() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.thaw()
}

// thaw needs mu.
func (d *Disk) thaw() error {
	if !d.frozen {
		return nil
	}
	if err := d.control(ThawRequest); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: a process of the guest has thawed it
		return fmt.Errorf("thaw the file system: %w", err)
	}
	d.frozen = false
	return nil
}

// endAfter thaws later, unless the freeze has ended or was extended by then. Timers go by the monotonic clock, which a new identity does not set.
func (d *Disk) endAfter(delay time.Duration) {
	time.AfterFunc(delay, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.frozen {
			return
		}
		if left := time.Until(d.until); left > 0 {
			d.endAfter(left)
		} else if d.thaw() != nil {
			d.endAfter(retryDelay)
		}
	})
}
