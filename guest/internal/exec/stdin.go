package exec

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/pty"
)

const (
	wideStdinBytes = 256 << 10
	// How long a request waits for the one before it, which may come by another connection, to begin.
	aheadWait = 2 * time.Second
)

var (
	errDetached    = errors.New("the conversation lost its exec")
	errStdinClosed = errors.New("the command takes no stdin")
	errStdinAhead  = errors.New("the piece does not follow what the command has")
)

// stdin is the writing end of an exec's standard input, of a pipe or of a terminal. Writers take turns, piece by piece. One that waits for a
// command which does not read goes when its own context does, or when the stdin is closed.
type stdin struct {
	fd       int           // does not block; needs the turn; negative when the exec has no stdin, and once it is closed
	terminal *pty.Terminal // nil for a pipe
	answered func()        // is called after a write: an answer may follow
	turn     chan struct{} // holds a token; whoever has taken it may write
	open     context.Context
	shut     context.CancelFunc
	taken    atomic.Int64
	last     byte  // the last byte that was written
	endedAt  int64 // where a terminal was last sent its end of file
	wide     bool

	requests struct {
		sync.Mutex
		active  int
		changed chan struct{} // closed when one begins or ends; nil while nobody waits
	}
}

// newStdin takes the descriptor over; a negative one is an exec without stdin.
func newStdin(fd int, terminal *pty.Terminal, answered func()) *stdin {
	s := &stdin{fd: fd, terminal: terminal, answered: answered, turn: make(chan struct{}, 1), endedAt: -1}
	s.open, s.shut = context.WithCancel(context.Background())
	if fd < 0 {
		s.shut()
	}
	s.turn <- struct{}{}
	return s
}

func (s *stdin) take(ctx context.Context) error {
	select {
	case <-s.turn:
		return nil
	default:
	}
	select {
	case <-s.turn:
		return nil
	case <-s.open.Done():
		return errStdinClosed
	case <-ctx.Done():
		return errDetached
	}
}

func (s *stdin) give() { s.turn <- struct{}{} }

// begin waits until the command has everything below the offset, for as long as another request is bringing it, and counts this one. The function
// returned ends it.
func (s *stdin) begin(ctx context.Context, at int64) (end func(), err error) {
	for {
		s.requests.Lock()
		if s.taken.Load() >= at {
			s.count(1)
			s.requests.Unlock()
			return func() {
				s.requests.Lock()
				s.count(-1)
				s.requests.Unlock()
			}, nil
		}
		if s.requests.changed == nil {
			s.requests.changed = make(chan struct{})
		}
		changed := s.requests.changed
		var lonely <-chan time.Time
		if s.requests.active == 0 {
			lonely = time.After(aheadWait)
		}
		s.requests.Unlock()
		select {
		case <-changed:
		case <-lonely:
			return nil, errStdinAhead
		case <-s.open.Done():
			return nil, errStdinClosed
		case <-ctx.Done():
			return nil, errDetached
		}
	}
}

// count needs the lock.
func (s *stdin) count(difference int) {
	s.requests.active += difference
	if s.requests.changed != nil {
		close(s.requests.changed)
		s.requests.changed = nil
	}
}

// write writes a piece that begins at this offset of the command's stdin, but for what it has already; a negative offset appends. It returns
// how much of the piece the command has then.
func (s *stdin) write(ctx context.Context, at int64, piece []byte) (int, error) {
	if err := s.take(ctx); err != nil {
		return 0, err
	}
	defer s.give()
	skipped := 0
	if at >= 0 {
		has := s.taken.Load() - at
		if has < 0 {
			return 0, errStdinAhead
		}
		skipped = int(min(has, int64(len(piece))))
	}
	n, err := s.put(ctx, piece[skipped:], true)
	return skipped + n, err
}

// put needs the turn.
func (s *stdin) put(ctx context.Context, piece []byte, counts bool) (int, error) {
	done := 0
	for done < len(piece) {
		if s.fd < 0 || s.open.Err() != nil {
			return done, errStdinClosed
		}
		n, err := unix.Write(s.fd, piece[done:])
		switch {
		case n > 0:
			done += n
			s.last = piece[done-1]
			if counts {
				s.taken.Add(int64(n))
			}
			s.answered()
		case err == unix.EINTR:
		case err == unix.EAGAIN || err == nil:
			s.widen()
			if err := s.await(ctx); err != nil {
				return done, err
			}
		default: // nobody reads it any more
			s.closeHeld()
			return done, errStdinClosed
		}
	}
	return done, nil
}

// widen makes room for more between two switches to a command that is sent more than fits.
func (s *stdin) widen() {
	if !s.wide && s.terminal == nil {
		s.wide = true
		_, _ = unix.FcntlInt(uintptr(s.fd), unix.F_SETPIPE_SZ, wideStdinBytes)
	}
}

func (s *stdin) await(ctx context.Context) error {
	ready, err := pipesReady().wait(s.fd, unix.EPOLLOUT, ctx.Done(), s.open.Done())
	switch {
	case err != nil:
		return err
	case ready:
		return nil
	case s.open.Err() != nil:
		return errStdinClosed
	default:
		return errDetached
	}
}

// feed is write for a host that counts on every byte to be taken: what the command does not want is thrown away.
func (s *stdin) feed(ctx context.Context, piece []byte) error {
	n, err := s.write(ctx, -1, piece)
	if errors.Is(err, errStdinClosed) {
		s.taken.Add(int64(len(piece) - n))
		return nil
	}
	return err
}

// end closes stdin behind what was written. A terminal stays open: it is sent its end of file, once for each offset.
func (s *stdin) end(ctx context.Context, at int64) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.give()
	if s.terminal == nil {
		s.closeHeld()
		return nil
	}
	if at >= 0 && s.endedAt == s.taken.Load() {
		return nil
	}
	s.endedAt = s.taken.Load()
	_, err := s.put(ctx, s.terminal.EndOfFile(s.last), false)
	return err
}

// close frees whoever waits to write, and takes nothing from then on.
func (s *stdin) close() {
	s.shut()
	<-s.turn
	defer s.give()
	s.closeHeld()
}

func (s *stdin) closeHeld() {
	s.shut()
	closeFD(&s.fd)
}

func (s *stdin) state() (taken int64, closed bool) { return s.taken.Load(), s.open.Err() != nil }
