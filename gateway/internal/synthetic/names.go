// Package synthetic gives names addresses of 198.18.0.0/15 (RFC 2544), each VM its own: by the address of a connection the gateway knows which
// name was looked up.
package synthetic

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"net/netip"
	"strings"
	"sync"
)

// MaxNames bounds the memory that a guest can fill with names: 6 MB at most.
const MaxNames = 16_384

var Range = netip.MustParsePrefix("198.18.0.0/15")

var ErrTooMany = errors.New("this VM has looked up too many names")

const (
	base = 198<<24 | 18<<16
	// Without the first and the last address, which look like those of a network.
	usable = 1<<17 - 2
)

type Names struct {
	mutex  sync.Mutex
	byName map[string]uint32
	byAddr map[uint32]string
	room   func() bool
}

// New makes names of one VM. room is asked for each new name, whether there is room for it among those of all VMs.
func New(room func() bool) *Names {
	return &Names{byName: map[string]uint32{}, byAddr: map[uint32]string{}, room: room}
}

// Address gives a name its address: the same each time, and almost always the same in every VM, so that one which outlives its VM's
// attachment (a program's own cache, a snapshot) still means the same name. It is never given to another name.
func (n *Names) Address(name string) (netip.Addr, error) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if index, ok := n.byName[name]; ok {
		return at(index), nil
	}
	if len(n.byName) >= MaxNames || !n.room() {
		return netip.Addr{}, ErrTooMany
	}
	hash := fnv.New32a()
	hash.Write([]byte(name))
	index := hash.Sum32() % usable
	for taken := true; taken; {
		if _, taken = n.byAddr[index]; taken {
			index = (index + 1) % usable
		}
	}
	name = strings.Clone(name)
	n.byName[name] = index
	n.byAddr[index] = name
	return at(index), nil
}

// Name is what an address of Range was given to.
func (n *Names) Name(address netip.Addr) (string, bool) {
	if !Range.Contains(address) {
		return "", false
	}
	b := address.As4()
	n.mutex.Lock()
	defer n.mutex.Unlock()
	name, ok := n.byAddr[binary.BigEndian.Uint32(b[:])-base-1]
	return name, ok
}

func at(index uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], base+1+index)
	return netip.AddrFrom4(b)
}
