package egress

import (
	"sync"
	"sync/atomic"
)

// pool is what all VMs have together of something that runs out.
type pool struct{ left atomic.Int64 }

func newPool(amount int64) *pool {
	p := &pool{}
	p.left.Store(amount)
	return p
}

// share is what one VM has of it. So much is its own for certain, and not of the pool: whatever other VMs do, it has that.
type share struct {
	pool    *pool
	certain int64

	mutex sync.Mutex
	used  int64
	ended bool
}

// take says whether the VM may have so much more, without having more than most.
func (s *share) take(amount, most int64) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.ended || s.used+amount > most {
		return false
	}
	common := s.common(s.used+amount) - s.common(s.used)
	if s.pool.left.Add(-common) < 0 {
		s.pool.left.Add(common)
		return false
	}
	s.used += amount
	return true
}

func (s *share) give(amount int64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.pool.left.Add(s.common(s.used) - s.common(s.used-amount))
	s.used -= amount
}

// end gives everything back, for good.
func (s *share) end() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.pool.left.Add(s.common(s.used))
	s.used, s.ended = 0, true
}

// common is how much of what is used is the pool's.
func (s *share) common(used int64) int64 { return max(0, used-s.certain) }
