// Package seccomp makes, installs and serves system call filters.
package seccomp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data, and the bit that marks a call of the x32 interface.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
	x32Bit       = 0x40000000
)

// Filter is a classic BPF program over struct seccomp_data: what no rule of it names is allowed.
type Filter struct {
	code []unix.SockFilter
	// Whether some calls are asked about.
	notifies bool
}

func instruction(code uint16, k uint32, jt, jf uint8) unix.SockFilter {
	return unix.SockFilter{Code: code, K: k, Jt: jt, Jf: jf}
}

func load(offset uint32) unix.SockFilter {
	return instruction(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0)
}

// Arguments that are int for the kernel, which are all that rules look at: the low half.
func loadArgument(index uint32) unix.SockFilter {
	return load(offsetArgs + 8*index)
}

func verdict(action uint32) unix.SockFilter {
	return instruction(unix.BPF_RET|unix.BPF_K, action, 0, 0)
}

func errno(number unix.Errno) uint32 {
	return unix.SECCOMP_RET_ERRNO | uint32(number)
}

// newFilter begins a filter that ends whoever calls by another interface than amd64's.
func newFilter() *Filter {
	return &Filter{code: []unix.SockFilter{
		load(offsetArch),
		instruction(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, unix.AUDIT_ARCH_X86_64, 1, 0),
		verdict(unix.SECCOMP_RET_KILL_PROCESS),
		load(offsetNumber),
		instruction(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, x32Bit, 0, 1),
		verdict(unix.SECCOMP_RET_KILL_PROCESS),
	}}
}

// on adds what is done about one call; each way through it ends in a verdict.
func (f *Filter) on(call uint32, then ...unix.SockFilter) {
	f.code = append(f.code, instruction(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, call, 0, uint8(len(then))))
	f.code = append(f.code, then...)
}

// unlessArgument refuses a call but for this value of an argument.
func (f *Filter) unlessArgument(call, index, value uint32, action uint32) {
	f.on(call, loadArgument(index), instruction(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, value, 1, 0), verdict(action), verdict(unix.SECCOMP_RET_ALLOW))
}

// ifBits acts on a call when `argument & mask` is not zero.
func (f *Filter) ifBits(call, index, mask uint32, action uint32) {
	f.on(call, loadArgument(index), instruction(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, mask, 0, 1), verdict(action), verdict(unix.SECCOMP_RET_ALLOW))
}

// ifOneOf acts on a call when an argument is one of these values.
func (f *Filter) ifOneOf(call, index uint32, values []uint32, action uint32) {
	then := []unix.SockFilter{loadArgument(index)}
	for position, value := range values {
		toAction := uint8(len(values) - position) // over the other comparisons and the verdict that allows
		then = append(then, instruction(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, value, toAction, 0))
	}
	f.on(call, append(then, verdict(unix.SECCOMP_RET_ALLOW), verdict(action))...)
}

// Install puts the calling thread, whose privileges are gone already, behind the filter. It answers the filter's listener, or -1.
func Install(f *Filter) (int, error) {
	code := append(append([]unix.SockFilter{}, f.code...), verdict(unix.SECCOMP_RET_ALLOW))
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	flags := uintptr(0)
	if f.notifies {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	listener, _, number := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program)))
	switch {
	case number != 0:
		return -1, number
	case f.notifies:
		return int(listener), nil
	default:
		return -1, nil
	}
}
