package egress

import (
	"bytes"
	"sync"
)

// What VMs have the gateway hold is bounded for each of them and for all together, in parts of the memory that the gateway may take.
const (
	headPart, bufferPart, namePart, connectionPart, proxyPart, entryPart = 8, 8, 8, 4, 4, 16
	// A connection without what is counted beside it: stacks, sockets' structures, small buffers, look-ups over TCP; and what it takes more where its requests are parsed.
	connectionBytes = 16 << 10
	proxyBytes      = 48 << 10
	// Of a name: twice 253 bytes and what two maps take.
	nameBytes = 1 << 10

	// Of the journal: a name of 253 bytes, a detail of 256, and numbers.
	entryBytes = 1 << 10

	// Heads of requests and answers, and first bytes, at what they take once parsed.
	certainHeadBytes = 256 << 10
	maxHeadBytes     = 8 << 20
	maxBufferBytes   = 16 << 20
	certainNames     = 512
	maxProxies       = 4_096
	// Who has more has them as long as all VMs together leave room.
	certainConnections, certainProxies, certainEntries = 64, 64, 64

	// Head bytes are held twice, as they came and parsed; a line is a string, a list and its place in a map, in what came and in what is sent on.
	bytesPerHeadByte = 2
	bytesPerLine     = 128
)

type pools struct{ heads, buffers, names, connections, proxies, entries *pool }

func newPools(memoryBytes int64, connections int) pools {
	return pools{
		heads:       newPool(memoryBytes / headPart),
		buffers:     newPool(memoryBytes / bufferPart),
		names:       newPool(memoryBytes / namePart / nameBytes),
		connections: newPool(min(memoryBytes/connectionPart/connectionBytes, int64(connections))),
		proxies:     newPool(memoryBytes / proxyPart / proxyBytes),
		entries:     newPool(memoryBytes / entryPart / entryBytes),
	}
}

// takeHead counts bytes that are parsed, until they are given back.
func (vm *VM) takeHead(b []byte) (taken int64, ok bool) {
	cost := int64(bytesPerHeadByte*len(b) + bytesPerLine*bytes.Count(b, []byte{'\n'}))
	return cost, vm.heads.take(cost, maxHeadBytes)
}

// Buffers in which bytes pass: a large one while there is room, otherwise a small one, which is slower and always there.
const smallBuffer = 4 << 10

type bufferPool struct {
	large      int
	full, lean sync.Pool
}

func newBufferPool(large int) *bufferPool {
	return &bufferPool{
		large: large,
		full:  sync.Pool{New: func() any { b := make([]byte, large); return &b }},
		lean:  sync.Pool{New: func() any { b := make([]byte, smallBuffer); return &b }},
	}
}

func (p *bufferPool) get(vm *VM) *[]byte {
	from := &p.lean
	if vm.buffers.take(int64(p.large), maxBufferBytes) {
		from = &p.full
	}
	buffer, _ := from.Get().(*[]byte)
	return buffer
}

func (p *bufferPool) put(vm *VM, buffer *[]byte) {
	if len(*buffer) == p.large {
		p.full.Put(buffer)
		vm.buffers.give(int64(p.large))
		return
	}
	p.lean.Put(buffer)
}
