// Package identity makes a restored machine a new one: its clock, its random numbers, its names. All VMs of one template wake with the same
// memory, so whatever should differ between them is set here before the machine is handed over.
package identity

import (
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/network"
	"fuse/guest/internal/protocol"
)

const (
	entropyBytes = 64
	// _IOW('R', 3, int[2]) and _IO('R', 7) of linux/random.h.
	rndAddEntropy = 0x40085203
	rndReseedCRNG = 0x5207
)

const (
	maxHostnameBytes = 63
	maxReasonBytes   = 32
	maxHooksMs       = 60_000
	machineIDDigits  = 32
	hexDigits        = "0123456789abcdef"
	lettersAndDigits = "abcdefghijklmnopqrstuvwxyz0123456789"
)

// Machine is the identity of the running machine.
type Machine struct {
	random *os.File

	mu           sync.Mutex // one identity is taken on after the other
	card         *network.Card
	isAsExpected bool         // the network is as ExpectNetwork left it
	generation   atomic.Int64 // read by who must not wait
}

// New needs the kernel's generator open for writing.
func New(random *os.File) *Machine { return &Machine{random: random} }

// Generation is the number of the last confirmed identity; 0 before the first.
func (m *Machine) Generation() int64 { return m.generation.Load() }

// Assume takes the identity on. It returns without an error only when all of it is in force. The one that is in force may be taken on again,
// to set the clock anew.
func (m *Machine) Assume(id protocol.Identity) error {
	unixNs, entropy, err := parse(id)
	if err != nil {
		return err
	}
	card, err := parseNetwork(id.Network)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if inForce := m.Generation(); id.Generation < inForce {
		return fault.New(fault.Conflict, "generation %d is older than %d, which is in force", id.Generation, inForce)
	}
	clock := unix.NsecToTimespec(unixNs)
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &clock); err != nil {
		return fmt.Errorf("set clock: %w", err)
	}
	if err := reseed(m.random, entropy); err != nil {
		return err
	}
	if err := m.join(card, id.Network); err != nil {
		return err
	}
	if err := rename(id); err != nil {
		return err
	}
	m.generation.Store(id.Generation)
	return nil
}

func parse(id protocol.Identity) (unixNs int64, entropy []byte, err error) {
	unixNs, err = strconv.ParseInt(id.TimeUnixNs, 10, 64)
	if err != nil || unixNs <= 0 {
		return 0, nil, invalid("time_unix_ns", "must be nanoseconds since the epoch in decimal")
	}
	entropy, err = base64.StdEncoding.DecodeString(id.EntropyBase64)
	if err != nil || len(entropy) != entropyBytes {
		return 0, nil, invalid("entropy_base64", "must be 64 bytes in base64")
	}
	if !isLabel(id.Hostname) {
		return 0, nil, invalid("hostname", "must be one label of lower-case letters, digits and inner hyphens")
	}
	if len(id.MachineID) != machineIDDigits || !holdsOnly(id.MachineID, hexDigits) {
		return 0, nil, invalid("machine_id", "must be 32 lower-case hex digits")
	}
	if id.Generation <= 0 {
		return 0, nil, invalid("generation", "must be positive")
	}
	if len(id.Reason) > maxReasonBytes || !holdsOnly(id.Reason, lettersAndDigits+"-_") {
		return 0, nil, invalid("reason", "must be at most 32 lower-case letters, digits, hyphens and underscores")
	}
	if id.HooksDeadlineMs < 0 || id.HooksDeadlineMs > maxHooksMs {
		return 0, nil, invalid("hooks_deadline_ms", "must be 0 to 60000")
	}
	return unixNs, entropy, nil
}

// isLabel tells whether a name is one label of a host name. The checks here do without regexp and fmt: a restored machine runs all of this for
// the first time, and under emulation code costs most when it is first run.
func isLabel(name string) bool {
	return name != "" && len(name) <= maxHostnameBytes && holdsOnly(name, lettersAndDigits+"-") &&
		name[0] != '-' && name[len(name)-1] != '-'
}

func holdsOnly(text, allowed string) bool {
	for i := range len(text) {
		if strings.IndexByte(allowed, text[i]) < 0 {
			return false
		}
	}
	return true
}

func invalid(field, problem string) error {
	return fault.New(fault.InvalidArgument, "%s %s", field, problem).With("field", field)
}

// reseed credits the bytes to the kernel's generator and makes it use them at once: until its own next reseed, forks would go on with equal keys.
func reseed(random *os.File, entropy []byte) error {
	pool := struct {
		bits, size int32
		bytes      [entropyBytes]byte
	}{bits: entropyBytes * 8, size: entropyBytes}
	copy(pool.bytes[:], entropy)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, random.Fd(), rndAddEntropy, uintptr(unsafe.Pointer(&pool))); errno != 0 {
		return fmt.Errorf("add entropy: %w", errno)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, random.Fd(), rndReseedCRNG, 0); errno != 0 {
		return fmt.Errorf("reseed the random generator: %w", errno)
	}
	return nil
}
