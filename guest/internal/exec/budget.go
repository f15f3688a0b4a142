package exec

import "sync/atomic"

// budget bounds the memory of all rings together, beyond the floor that each may have in any case.
type budget struct {
	limit   int64
	used    atomic.Int64
	reclaim func() // makes room by dropping output of the longest ended execs
}

func (b *budget) allows(more int64) bool {
	if b.used.Load()+more <= b.limit {
		return true
	}
	if b.reclaim != nil {
		b.reclaim()
	}
	return b.used.Load()+more <= b.limit
}

func (b *budget) add(bytes int64) { b.used.Add(bytes) }
