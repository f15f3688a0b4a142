package disk

import (
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
)

// kernel stands in for a file system: tests freeze none of the machine that they run on.
type kernel struct {
	mu      sync.Mutex
	frozen  bool
	freezes int
	delay   time.Duration
	failing int // thaws that fail
}

func (k *kernel) control(request Request) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case request == FreezeRequest && k.frozen:
		return unix.EBUSY
	case request == ThawRequest && !k.frozen:
		return unix.EINVAL
	case request == ThawRequest && k.failing > 0:
		k.failing--
		return unix.EIO
	case request == FreezeRequest:
		k.freezes++
		time.Sleep(k.delay)
	}
	k.frozen = request == FreezeRequest
	return nil
}

func (k *kernel) isFrozen() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.frozen
}

func (k *kernel) awaitThaw(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); k.isFrozen(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("stays frozen")
		}
	}
}

func TestAFreezeLastsUntilItIsThawed(t *testing.T) {
	k := &kernel{}
	d := Controlled(k.control)
	for range 3 {
		if err := d.Freeze(60_000); err != nil || !k.isFrozen() {
			t.Fatalf("%v, %v", err, k.isFrozen())
		}
		for range 2 {
			if err := d.Thaw(); err != nil || k.isFrozen() {
				t.Fatalf("%v, %v", err, k.isFrozen())
			}
		}
	}
}

func TestAFreezeEndsByItself(t *testing.T) {
	k := &kernel{failing: 2}
	if err := Controlled(k.control).Freeze(10); err != nil {
		t.Fatal(err)
	}
	k.awaitThaw(t)
}

func TestASecondFreezeExtendsTheFirstAndNeverShortensIt(t *testing.T) {
	k := &kernel{}
	d := Controlled(k.control)
	for _, deadlineMs := range []int64{20, 60_000, 1} {
		if err := d.Freeze(deadlineMs); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(100 * time.Millisecond)
	if !k.isFrozen() || k.freezes != 1 {
		t.Errorf("frozen: %v, by %d freezes", k.isFrozen(), k.freezes)
	}
	if err := d.Freeze(20); err != nil || d.Thaw() != nil {
		t.Error(err)
	}
}

func TestATimerOfAnEarlierFreezeDoesNotEndALaterOne(t *testing.T) {
	k := &kernel{}
	d := Controlled(k.control)
	if d.Freeze(20) != nil || d.Thaw() != nil || d.Freeze(60_000) != nil {
		t.Fatal("not frozen")
	}
	time.Sleep(60 * time.Millisecond)
	if !k.isFrozen() {
		t.Error("thawed early")
	}
}

func TestAFlushThatTakesTooLongIsNoFreeze(t *testing.T) {
	k := &kernel{delay: 30 * time.Millisecond}
	err := Controlled(k.control).Freeze(1)
	var known *fault.Error
	if !errors.As(err, &known) || known.Code != fault.Unavailable || k.isFrozen() {
		t.Errorf("%v, frozen: %v", err, k.isFrozen())
	}
}

func TestAFreezeOfTheGuestsOwnIsLeftToIt(t *testing.T) {
	k := &kernel{frozen: true}
	d := Controlled(k.control)
	var known *fault.Error
	if err := d.Freeze(1000); !errors.As(err, &known) || known.Code != fault.Conflict {
		t.Error(err)
	}
	if err := d.Thaw(); err != nil || !k.isFrozen() {
		t.Errorf("%v, frozen: %v", err, k.isFrozen())
	}
}

func TestDeadlinesOutsideTheBoundAreRefused(t *testing.T) {
	d := Controlled((&kernel{}).control)
	for _, deadlineMs := range []int64{0, -1, 60_001, 1 << 62} {
		var known *fault.Error
		if err := d.Freeze(deadlineMs); !errors.As(err, &known) || known.Code != fault.InvalidArgument {
			t.Errorf("%d: %v", deadlineMs, err)
		}
	}
}
