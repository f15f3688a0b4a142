package exec

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/frames"
	"fuse/guest/internal/pty"
)

const (
	pumpFirstBytes = 4 << 10
	pumpMaxBytes   = 32 << 10
	// What background children write is thrown away this often, which costs the others next to nothing. One that writes this much in the
	// meantime gets a larger pipe, so that it goes on at some 10 MB a second.
	noisyBytes      = 32 << 10
	noisyPipeBytes  = 256 << 10
	discardInterval = 25 * time.Millisecond
	// A command that writes a little at a time would wake the agent, the channel and the host for each write. So what comes after a pause
	// is forwarded at once, and while pieces keep coming, the pipe is left to gather them; small ones each time for longer.
	gatherFirst = 2 * time.Millisecond
	gatherMost  = 32 * time.Millisecond
	smallBytes  = 8 << 10
	// A terminal gives at most 4 KiB at a time, so more than this is as much as it had.
	largeTerminalBytes = 1 << 10
)

var errLeaderEnded = errors.New("the leader has ended")

var pumpBuffers = sync.Pool{New: func() any { return new([pumpMaxBytes]byte) }}

// sink takes what a pump reads: a ring, or a tail.
type sink interface {
	// reserve waits for room and returns how much there is, at most max; one commit follows.
	reserve(max int) (int, error)
	// commit takes the payload into the room that was reserved for it; an empty one gives the room back.
	commit(room int, kind frames.Type, payload []byte)
}

// pump carries one output pipe into its sink. It goes through three stages: while the leader lives it forwards everything; once finish was
// called it forwards what the pipe holds at that moment and closes `drained`; then it throws away what background children write,
// until the last of them is gone. A terminal has no third stage: it is hung up.
type pump struct {
	kind     frames.Type
	pipe     int
	terminal *pty.Terminal // nil for a pipe
	large    int           // pieces from this size on are not gathered
	to       sink
	bytes    int64 // forwarded; read it after drained is closed
	drained  chan struct{}
	ended    chan struct{} // closed by finish
	answers  chan struct{}
}

// startPump takes the pipe over: a descriptor that does not block.
func startPump(kind frames.Type, pipe int, to sink) *pump {
	return (&pump{kind: kind, pipe: pipe, large: pumpMaxBytes, to: to}).start()
}

// startTerminalPump takes the reading of a terminal over, and its end.
func startTerminalPump(terminal *pty.Terminal, to sink) *pump {
	return (&pump{kind: frames.Stdout, pipe: terminal.Master(), terminal: terminal, large: largeTerminalBytes, to: to}).start()
}

func (p *pump) start() *pump {
	p.drained, p.ended, p.answers = make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	go p.run()
	return p
}

// finish tells the pump that the leader has ended.
func (p *pump) finish() {
	if p.terminal != nil {
		p.terminal.ReleaseSlave()
	}
	close(p.ended)
}

// expectAnswer makes the pump forward what comes next at once: the command was sent something, and somebody may wait for the answer.
func (p *pump) expectAnswer() {
	select {
	case p.answers <- struct{}{}:
	default:
	}
}

// gathering is the state of one pump's waiting for more.
type gathering struct {
	interval time.Duration
	lastRead time.Time
}

// gather waits while a command writes small pieces in quick succession; not longer than it lives, and not when it may be answering.
func (p *pump) gather(n int, state *gathering) {
	if n >= p.large || p.answering() || time.Since(state.lastRead) > 2*state.interval+gatherFirst {
		state.interval = gatherFirst
	} else {
		timer := time.NewTimer(state.interval)
		defer timer.Stop()
		select {
		case <-timer.C:
			state.interval = min(2*state.interval, gatherMost)
			if n >= smallBytes {
				state.interval = gatherFirst
			}
		case <-p.answers:
			state.interval = gatherFirst
		case <-p.ended:
		}
	}
	state.lastRead = time.Now()
}

func (p *pump) answering() bool {
	select {
	case <-p.answers:
		return true
	default:
		return false
	}
}

func (p *pump) run() {
	err := p.forward(true, -1)
	if errors.Is(err, errLeaderEnded) {
		err = p.forward(false, p.queued())
	}
	if p.terminal != nil {
		p.terminal.Close()
		close(p.drained)
		return
	}
	defer unix.Close(p.pipe)
	close(p.drained)
	if err == nil || errors.Is(err, errAbandoned) {
		p.discard()
	}
}

// forward moves bytes until the pipe ends (io.EOF), the leader has ended (errLeaderEnded), or, unless it is to wait, `limit` bytes are
// through (nil) or there are no more (EAGAIN).
func (p *pump) forward(wait bool, limit int) error {
	size := pumpFirstBytes
	state := gathering{interval: gatherFirst}
	for limit != 0 {
		room, err := p.to.reserve(size)
		if err != nil {
			return err
		}
		most := room
		if limit > 0 {
			most = min(most, limit)
		}
		n, err := p.forwardOnce(room, most, wait)
		if err != nil {
			return err
		}
		if n == size && size < pumpMaxBytes {
			size *= 2
			if size == pumpMaxBytes {
				p.widen()
			}
		}
		if limit > 0 {
			limit -= n
		}
		if wait {
			p.gather(n, &state)
		}
	}
	return nil
}

// widen makes room for more between two switches to a command that writes much.
func (p *pump) widen() {
	if p.terminal == nil {
		_, _ = unix.FcntlInt(uintptr(p.pipe), unix.F_SETPIPE_SZ, noisyPipeBytes)
	}
}

// forwardOnce reads at most `most` bytes into the `room` that was reserved for them.
func (p *pump) forwardOnce(room, most int, wait bool) (int, error) {
	for {
		if wait && p.leaderEnded() {
			p.to.commit(room, p.kind, nil)
			return 0, errLeaderEnded
		}
		buffer := pumpBuffers.Get().(*[pumpMaxBytes]byte)
		n, err := readPipe(p.pipe, buffer[:most])
		if err == unix.EAGAIN && wait {
			pumpBuffers.Put(buffer)
			if _, err := pipesReady().wait(p.pipe, unix.EPOLLIN, p.ended, nil); err != nil {
				p.to.commit(room, p.kind, nil)
				return 0, err
			}
			continue
		}
		p.to.commit(room, p.kind, buffer[:n])
		pumpBuffers.Put(buffer)
		p.bytes += int64(n)
		switch {
		case err == unix.EIO && p.terminal != nil: // nobody has it any more
			return 0, io.EOF
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func (p *pump) leaderEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
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

// queued is the number of bytes in the pipe now; of a terminal, which does not tell, as many as there can be.
func (p *pump) queued() int {
	if p.terminal != nil {
		return pty.QueueBytes
	}
	size, err := unix.IoctlGetInt(p.pipe, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return size
}

// discard drops what comes, without copying it, until no writer is left.
func (p *pump) discard() {
	null, err := unix.Open(os.DevNull, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(null)
	for {
		n, err := unix.Splice(p.pipe, nil, null, nil, noisyPipeBytes, unix.SPLICE_F_NONBLOCK)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			if _, err := pipesReady().wait(p.pipe, unix.EPOLLIN, nil, nil); err != nil {
				return
			}
			continue
		case err != nil || n <= 0:
			return
		}
		if n >= noisyBytes {
			p.widen()
		}
		time.Sleep(discardInterval)
	}
}

// drain lets the pumps forward what is there now that the leader has ended.
func drain(pumps []*pump) {
	for _, pump := range pumps {
		pump.finish()
	}
	for _, pump := range pumps {
		<-pump.drained
	}
}

// forwarded is how many bytes of a stream drained pumps have forwarded.
func forwarded(pumps []*pump, kind frames.Type) int64 {
	total := int64(0)
	for _, pump := range pumps {
		if pump.kind == kind {
			total += pump.bytes
		}
	}
	return total
}
