package exec

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"fuse/guest/internal/frames"
	"fuse/guest/internal/protocol"
)

func newTestRing() *ring { return newRing(&budget{limit: 64 << 20}) }

func fill(t *testing.T, r *ring, payload []byte) {
	t.Helper()
	for len(payload) > 0 {
		room, err := r.reserve(min(len(payload), pumpMaxBytes))
		if err != nil {
			t.Fatal(err)
		}
		r.commit(room, frames.Stdout, payload[:room])
		payload = payload[room:]
	}
}

func readAll(t *testing.T, r *ring, offset int64) []byte {
	t.Helper()
	var all []byte
	buffer := make([]byte, 1000)
	for pending, _ := r.ahead(offset); pending; pending, _ = r.ahead(offset) {
		n, err := r.read(context.Background(), offset, buffer)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, buffer[:n]...)
		offset += int64(n)
	}
	return all
}

func TestARingGivesBackEveryByteFromAnyOffsetThatIsNotAcknowledged(t *testing.T) {
	r := newTestRing()
	random := rand.New(rand.NewPCG(1, 2))
	var stream []byte // what was put in, as frames
	acked := int64(0)
	for range 2000 {
		payload := make([]byte, 1+random.IntN(5000))
		for i := range payload {
			payload[i] = byte(random.Uint32())
		}
		room, err := r.reserve(len(payload))
		if err != nil {
			t.Fatal(err)
		}
		r.commit(room, frames.Stdout, payload[:room])
		stream = frames.Append(stream, frames.Stdout, payload[:room])
		start, end, _ := r.state()
		if start != acked || end != int64(len(stream)) {
			t.Fatalf("holds %d to %d, not %d to %d", start, end, acked, len(stream))
		}
		from := acked + random.Int64N(end-acked+1)
		if got := readAll(t, r, from); !bytes.Equal(got, stream[from:]) {
			t.Fatalf("other bytes from %d", from)
		}
		if random.IntN(3) == 0 || end-acked > 800_000 {
			acked += random.Int64N(end - acked + 1)
			if err := r.ack(acked); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAFullRingLetsItsWriterWaitForAnAcknowledgement(t *testing.T) {
	r := newTestRing()
	fill(t, r, make([]byte, protocol.ExecWindowBytes-40*pumpMaxBytes/4))
	for {
		_, end, _ := r.state()
		if int64(protocol.ExecWindowBytes)-end < minReserveBytes+frames.HeaderBytes {
			break
		}
		fill(t, r, make([]byte, min(pumpMaxBytes, protocol.ExecWindowBytes-end-frames.HeaderBytes)))
	}
	reserved := make(chan int)
	go func() {
		room, _ := r.reserve(1000)
		reserved <- room
	}()
	select {
	case room := <-reserved:
		t.Fatalf("%d bytes were given beyond the window", room)
	case <-time.After(50 * time.Millisecond):
	}
	if err := r.ack(5000); err != nil {
		t.Fatal(err)
	}
	if room := <-reserved; room != 1000 {
		t.Errorf("room for %d", room)
	}
}

func TestTheExitFrameFitsIntoAFullRing(t *testing.T) {
	r := newTestRing()
	room, err := r.reserve(protocol.ExecWindowBytes - frames.HeaderBytes)
	if err != nil {
		t.Fatal(err)
	}
	r.commit(room, frames.Stderr, make([]byte, room))
	r.finish([]byte("{}"))
	if _, end, _ := r.state(); end != protocol.ExecWindowBytes+frames.HeaderBytes+2 {
		t.Errorf("ends at %d", end)
	}
	tail := readAll(t, r, protocol.ExecWindowBytes)
	if !bytes.Equal(tail, frames.Append(nil, frames.Exit, []byte("{}"))) {
		t.Errorf("tail is %x", tail)
	}
}

func TestReadsBelowTheAcknowledgedAndBeyondTheEndAreRefused(t *testing.T) {
	r := newTestRing()
	fill(t, r, make([]byte, 100))
	if err := r.ack(50); err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[int64]error{49: errAcked, 109: errBeyond, 50: nil, 108: nil} {
		if err := r.check(offset); !errors.Is(err, want) {
			t.Errorf("%d: %v", offset, err)
		}
	}
	if err := r.ack(109); !errors.Is(err, errBeyond) {
		t.Errorf("ack beyond the end: %v", err)
	}
	if err := r.ack(10); err != nil {
		t.Errorf("late ack: %v", err)
	}
}

func TestTheEndIsReadOnceEverythingElseIs(t *testing.T) {
	r := newTestRing()
	r.finish([]byte("{}"))
	buffer := make([]byte, 100)
	n, err := r.read(context.Background(), 0, buffer)
	if n != frames.HeaderBytes+2 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if n, err := r.read(context.Background(), int64(n), buffer); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestAnAcknowledgedEndFreesItsMemory(t *testing.T) {
	r := newTestRing()
	fill(t, r, make([]byte, 100_000))
	r.finish([]byte("{}"))
	_, end, _ := r.state()
	if err := r.ack(end); err != nil {
		t.Fatal(err)
	}
	if used := r.budget.used.Load(); used != 0 || r.buffer != nil {
		t.Errorf("%d bytes are still held", used)
	}
}

func TestAReaderWaitsUntilItsContextEnds(t *testing.T) {
	r := newTestRing()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := r.read(ctx, 0, make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAbandoningFreesWritersAndReaders(t *testing.T) {
	r := newTestRing()
	room, err := r.reserve(protocol.ExecWindowBytes - frames.HeaderBytes)
	if err != nil {
		t.Fatal(err)
	}
	r.commit(room, frames.Stdout, make([]byte, room))
	_, end, _ := r.state()
	failed := make(chan error, 2)
	go func() {
		_, err := r.reserve(1000)
		failed <- err
	}()
	go func() {
		_, err := r.read(context.Background(), end, make([]byte, 1))
		failed <- err
	}()
	r.abandon()
	for range 2 {
		if err := <-failed; !errors.Is(err, errAbandoned) {
			t.Error(err)
		}
	}
	r.finish([]byte("{}"))
	if r.budget.used.Load() != 0 {
		t.Error("memory is still held")
	}
}

func TestWithoutBudgetARingKeepsToItsFloorAndGoesOn(t *testing.T) {
	reclaimed := 0
	r := newRing(&budget{limit: 0, reclaim: func() { reclaimed++ }})
	acked := int64(0)
	for range 100 {
		room, err := r.reserve(pumpMaxBytes)
		if err != nil {
			t.Fatal(err)
		}
		r.commit(room, frames.Stdout, make([]byte, room))
		if _, end, _ := r.state(); end-acked > 128<<10 {
			acked = end
			if err := r.ack(acked); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(r.buffer) > ringFloorBytes {
		t.Errorf("holds %d bytes", len(r.buffer))
	}
	if reclaimed == 0 && len(r.buffer) < ringFloorBytes {
		t.Error("nobody was asked for memory")
	}
}
