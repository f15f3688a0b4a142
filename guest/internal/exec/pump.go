package exec

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/frames"
)

const (
	pumpFirstBytes = 4 << 10
	pumpMaxBytes   = 32 << 10
	// What background children write is thrown away this often, which costs the others next to nothing. One that writes this much in the
	// meantime gets a larger pipe, so that it goes on at some 10 MB a second.
	noisyBytes      = 32 << 10
	noisyPipeBytes  = 256 << 10
	discardInterval = 25 * time.Millisecond
	// A command that writes a few bytes at a time would wake the agent, the channel and the host for each write. So what comes after a pause
	// is forwarded at once, and while small pieces keep coming, the pipe is left to gather them for this long.
	gatherInterval = 4 * time.Millisecond
	gatherBelow    = 8 << 10
)

var pumpBuffers = sync.Pool{New: func() any { return new([pumpMaxBytes]byte) }}

// pump carries one output pipe into the ring. It goes through three stages: while the leader lives it forwards everything; once finish was
// called it forwards what the pipe holds at that moment and closes `drained`; then it throws away what background children write,
// until the last of them is gone.
type pump struct {
	kind    frames.Type
	pipe    *os.File
	ring    *ring
	bytes   int64 // forwarded; read it after drained is closed
	drained chan struct{}
	ended   chan struct{} // closed by finish
}

func startPump(kind frames.Type, pipe *os.File, to *ring) *pump {
	p := &pump{kind: kind, pipe: pipe, ring: to, drained: make(chan struct{}), ended: make(chan struct{})}
	go p.run()
	return p
}

// finish tells the pump that the leader has ended.
func (p *pump) finish() {
	close(p.ended)
	p.pipe.SetReadDeadline(time.Unix(1, 0))
}

// gather waits while a command writes small pieces in quick succession; not longer than it lives.
func (p *pump) gather(n int, lastRead time.Time) {
	if n >= gatherBelow || time.Since(lastRead) > 2*gatherInterval {
		return
	}
	timer := time.NewTimer(gatherInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ended:
	}
}

func (p *pump) run() {
	defer p.pipe.Close()
	raw, err := p.pipe.SyscallConn()
	if err != nil {
		close(p.drained)
		return
	}
	err = p.forward(raw, true, -1)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.pipe.SetReadDeadline(time.Time{})
		err = p.forward(raw, false, p.queued(raw))
	}
	close(p.drained)
	if err == nil || errors.Is(err, errAbandoned) {
		p.discard(raw)
	}
}

// forward moves bytes until the pipe ends (io.EOF), a deadline passes, or, unless it is to wait, `limit` bytes are through (nil).
func (p *pump) forward(raw syscall.RawConn, wait bool, limit int) error {
	size := pumpFirstBytes
	lastRead := time.Time{}
	for limit != 0 {
		room, err := p.ring.reserve(size)
		if err != nil {
			return err
		}
		most := room
		if limit > 0 {
			most = min(most, limit)
		}
		n, err := p.forwardOnce(raw, room, most, wait)
		if err != nil {
			return err
		}
		if n == size {
			size = min(2*size, pumpMaxBytes)
		}
		if limit > 0 {
			limit -= n
		}
		if wait {
			p.gather(n, lastRead)
			lastRead = time.Now()
		}
	}
	return nil
}

// forwardOnce reads at most `most` bytes into the `room` that was reserved for them.
func (p *pump) forwardOnce(raw syscall.RawConn, room, most int, wait bool) (int, error) {
	var n int
	var readErr error
	var payload []byte
	buffer := (*[pumpMaxBytes]byte)(nil)
	waitErr := raw.Read(func(fd uintptr) bool {
		buffer = pumpBuffers.Get().(*[pumpMaxBytes]byte)
		n, readErr = readPipe(int(fd), buffer[:most])
		if readErr == unix.EAGAIN && wait {
			pumpBuffers.Put(buffer)
			buffer = nil
			return false
		}
		payload = buffer[:n]
		return true
	})
	p.ring.commit(room, p.kind, payload)
	if buffer != nil {
		pumpBuffers.Put(buffer)
	}
	p.bytes += int64(len(payload))
	switch {
	case waitErr != nil:
		return 0, waitErr
	case readErr != nil:
		return 0, readErr
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

func readPipe(fd int, buffer []byte) (int, error) {
	for {
		n, err := unix.Read(fd, buffer)
		if err == unix.EINTR {
			continue
		}
		return max(n, 0), err
	}
}

// queued is the number of bytes in the pipe now.
func (p *pump) queued(raw syscall.RawConn) int {
	size := 0
	raw.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
			size = n
		}
	})
	return size
}

// discard drops what comes, without copying it, until no writer is left.
func (p *pump) discard(raw syscall.RawConn) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	defer null.Close()
	for {
		n := int64(0)
		err := raw.Read(func(fd uintptr) bool {
			var spliceErr error
			n, spliceErr = unix.Splice(int(fd), nil, int(null.Fd()), nil, noisyPipeBytes, unix.SPLICE_F_NONBLOCK)
			return spliceErr != unix.EAGAIN && spliceErr != unix.EINTR
		})
		if err != nil || n <= 0 {
			return
		}
		if n >= noisyBytes {
			raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, noisyPipeBytes) })
		}
		time.Sleep(discardInterval)
	}
}
