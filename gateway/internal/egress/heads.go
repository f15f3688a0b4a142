package egress

import (
	"sync"

	"fuse/gateway/internal/policy"
)

var tooManyHeads = refuse(policy.TooMany, "too many headers at a time")

// heads is what the head of one request, and that of its answer, take: from the first byte until the whole answer has passed, since both are kept so long.
type heads struct {
	vm *VM

	mutex sync.Mutex
	held  int64
	// Past the head of the request, and of the answer, bytes are those of bodies.
	judged, answered bool
	ended            bool
}

// asked counts what the guest sent, unless it is a body's; false: there is no room.
func (h *heads) asked(b []byte) bool { return h.count(b, &h.judged) }

// told counts what the server sent.
func (h *heads) told(b []byte) bool { return h.count(b, &h.answered) }

func (h *heads) count(b []byte, past *bool) bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.ended {
		return false
	}
	if *past || len(b) == 0 {
		return true
	}
	taken, ok := h.vm.takeHead(b)
	if ok {
		h.held += taken
	}
	return ok
}

func (h *heads) pass(past *bool) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	*past = true
}

// next is for the next request: nothing is held any more.
func (h *heads) next() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.vm.heads.give(h.held)
	h.held, h.judged, h.answered = 0, false, false
}

func (h *heads) end() {
	h.next()
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.vm.heads.give(h.held) // what came in between
	h.held, h.ended = 0, true
}
