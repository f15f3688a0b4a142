package exec

import (
	"errors"
	"os"
	"sync"
	"time"
)

var errDetached = errors.New("the conversation lost its exec")

// stdin is the writing end of an exec's standard input. One conversation writes at a time; `interrupt` frees one that waits for a command
// which does not read. Once the command no longer reads, what still comes counts as taken and is thrown away.
type stdin struct {
	mu     sync.Mutex
	pipe   *os.File // nil once closed, and when the exec has no stdin
	taken  int64
	closed bool
}

func (s *stdin) write(p []byte) error {
	s.mu.Lock()
	pipe := s.pipe
	s.mu.Unlock()
	if pipe == nil {
		s.count(len(p))
		return nil
	}
	n, err := pipe.Write(p)
	s.count(n)
	if err == nil {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errDetached
	}
	s.close()
	s.count(len(p) - n)
	return nil
}

func (s *stdin) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken += int64(n)
}

func (s *stdin) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.pipe != nil {
		s.pipe.Close()
		s.pipe = nil
	}
}

// interrupt makes a write in progress, and every one until resume, return errDetached.
func (s *stdin) interrupt() { s.deadline(time.Unix(1, 0)) }

func (s *stdin) resume() { s.deadline(time.Time{}) }

func (s *stdin) deadline(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pipe != nil {
		s.pipe.SetWriteDeadline(at)
	}
}

func (s *stdin) state() (taken int64, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken, s.closed
}
