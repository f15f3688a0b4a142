package exec

import (
	"context"
	"errors"
	"sync"

	"fuse/guest/internal/frames"
	"fuse/guest/internal/protocol"
)

const (
	ringFirstBytes = 4 << 10
	// Every exec gets this much whatever the others hold. It is more than two reservations and what a host leaves unacknowledged for a
	// while (128 KiB), so that each exec goes on as long as the host does.
	ringFloorBytes = 256 << 10
	// Room that a reader waits for rather than cut its output into slivers.
	minReserveBytes = 512
)

var (
	errAbandoned = errors.New("the exec was deleted")
	errAcked     = errors.New("the offset is below the acknowledged one")
	errBeyond    = errors.New("the offset is beyond the end of the stream")
)

// ring keeps the part of an exec's frame stream that the host has not acknowledged. Offsets count from the stream's first byte.
// It grows by doubling as far as the window and the budget shared by all execs allow; writers wait for room.
type ring struct {
	budget *budget

	mu       sync.Mutex
	buffer   []byte // length 0 or a power of two; the byte at offset o lies at o modulo the length
	start    int64
	end      int64
	reserved int64
	finished bool
	// abandoned: nobody will read any more.
	abandoned bool
	changed   chan struct{}
}

func newRing(b *budget) *ring { return &ring{budget: b, changed: make(chan struct{})} }

// reserve waits until a frame with some payload fits and promises room for one of the returned size, at most max. Every reserve that
// succeeds is followed by one commit.
func (r *ring) reserve(max int) (int, error) {
	r.mu.Lock()
	for {
		if r.abandoned {
			r.mu.Unlock()
			return 0, errAbandoned
		}
		free := r.makeRoom(int64(max)+frames.HeaderBytes) - frames.HeaderBytes
		if free >= min(int64(max), minReserveBytes) {
			size := min(free, int64(max))
			r.reserved += size + frames.HeaderBytes
			r.mu.Unlock()
			return int(size), nil
		}
		changed := r.changed
		r.mu.Unlock()
		<-changed
		r.mu.Lock()
	}
}

// commit appends a frame in the room that reserve promised; an empty payload only gives the room back.
func (r *ring) commit(promised int, kind frames.Type, payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reserved -= int64(promised) + frames.HeaderBytes
	if len(payload) > 0 && !r.abandoned {
		r.put(frames.AppendHeader(nil, kind, len(payload)))
		r.put(payload)
	}
	r.wake()
}

// finish appends the exit frame, past the window if need be.
func (r *ring) finish(payload []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.abandoned {
		frame := frames.Append(nil, frames.Exit, payload)
		r.grow(r.used() + int64(len(frame)))
		r.put(frame)
	}
	r.finished = true
	r.wake()
}

func (r *ring) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandoned = true
	r.start = r.end
	r.release()
	r.wake()
}

// drop lets go of everything that an ended exec has left.
func (r *ring) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.start = r.end
	r.release()
	r.wake()
}

// ack lets go of every byte below offset.
func (r *ring) ack(offset int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if offset < 0 || offset > r.end {
		return errBeyond
	}
	if offset <= r.start {
		return nil
	}
	r.start = offset
	if r.finished && r.start == r.end {
		r.release()
	}
	r.wake()
	return nil
}

// check tells whether a reader can start at offset.
func (r *ring) check(offset int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checkLocked(offset)
}

func (r *ring) checkLocked(offset int64) error {
	switch {
	case r.abandoned:
		return errAbandoned
	case offset < r.start:
		return errAcked
	case offset > r.end:
		return errBeyond
	}
	return nil
}

// read copies bytes from offset on into dst, waiting for some; 0 without an error is the stream's end.
func (r *ring) read(ctx context.Context, offset int64, dst []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if err := r.checkLocked(offset); err != nil {
			return 0, err
		}
		if offset < r.end {
			return r.get(offset, dst), nil
		}
		if r.finished {
			return 0, nil
		}
		changed := r.changed
		r.mu.Unlock()
		select {
		case <-changed:
			r.mu.Lock()
		case <-ctx.Done():
			r.mu.Lock()
			return 0, ctx.Err()
		}
	}
}

// ahead tells whether bytes from offset on are there to be read without waiting, and whether none will follow offset.
func (r *ring) ahead(offset int64) (pending, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return offset < r.end, r.finished && offset == r.end
}

// state is of one moment: a stream that is finished has its exit frame before `end`.
func (r *ring) state() (start, end int64, finished bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.start, r.end, r.finished
}

func (r *ring) used() int64 { return r.end - r.start + r.reserved }

// makeRoom tries to have `wanted` bytes free and returns how many there are, within the window.
func (r *ring) makeRoom(wanted int64) int64 {
	target := min(r.used()+wanted, protocol.ExecWindowBytes)
	if target > int64(len(r.buffer)) && (target <= ringFloorBytes || r.budget.allows(doubled(target)-int64(len(r.buffer)))) {
		r.grow(target)
	}
	return min(int64(len(r.buffer)), protocol.ExecWindowBytes) - r.used()
}

// grow makes the buffer hold at least size bytes.
func (r *ring) grow(size int64) {
	if size <= int64(len(r.buffer)) {
		return
	}
	larger := make([]byte, doubled(size))
	for at := r.start; at < r.end; {
		n := copy(larger[at&int64(len(larger)-1):], r.run(at))
		at += int64(n)
	}
	r.budget.add(int64(len(larger) - len(r.buffer)))
	r.buffer = larger
}

func doubled(size int64) int64 {
	length := int64(ringFirstBytes)
	for length < size {
		length *= 2
	}
	return length
}

func (r *ring) release() {
	r.budget.add(-int64(len(r.buffer)))
	r.buffer = nil
}

// run is the stretch of kept bytes from offset on that lies in one piece.
func (r *ring) run(offset int64) []byte {
	at := offset & int64(len(r.buffer)-1)
	size := min(r.end-offset, int64(len(r.buffer))-at)
	return r.buffer[at : at+size]
}

func (r *ring) put(bytes []byte) {
	for len(bytes) > 0 {
		at := r.end & int64(len(r.buffer)-1)
		n := copy(r.buffer[at:], bytes)
		bytes = bytes[n:]
		r.end += int64(n)
	}
}

func (r *ring) get(offset int64, dst []byte) int {
	total := 0
	for total < len(dst) && offset < r.end {
		n := copy(dst[total:], r.run(offset))
		total += n
		offset += int64(n)
	}
	return total
}

func (r *ring) wake() {
	close(r.changed)
	r.changed = make(chan struct{})
}
