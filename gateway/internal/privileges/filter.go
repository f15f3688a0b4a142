package privileges

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the gateway needs once it serves: memory, threads, timers and signals of Go's runtime, and sockets that it has or makes. It opens no file and starts nothing.
var allowed = []uint32{
	// The frequent ones first.
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_EPOLL_PWAIT, unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_ACCEPT4, unix.SYS_CLOSE, unix.SYS_CONNECT, unix.SYS_SETSOCKOPT,
	unix.SYS_GETSOCKOPT, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_SENDMSG, unix.SYS_RECVMSG, unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SHUTDOWN,
	unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_CREATE1, unix.SYS_EVENTFD2, unix.SYS_WRITEV, unix.SYS_READV, unix.SYS_FCNTL, unix.SYS_FSTAT, unix.SYS_PREAD64, unix.SYS_LSEEK,
	// io.Copy between sockets.
	unix.SYS_SPLICE, unix.SYS_PIPE2,
	// Time.
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETTIMEOFDAY, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_RESTART_SYSCALL,
	// Memory.
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK,
	// Threads and signals.
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETEUID, unix.SYS_GETUID, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK,
	unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_GETRANDOM, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// A thread of this process, as Go's runtime makes one, and nothing else.
const threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD | unix.CLONE_SETTLS

// The kinds of sockets that connections and look-ups are made of, without SOCK_NONBLOCK and SOCK_CLOEXEC.
const socketKind = 0xf

// Offsets in struct seccomp_data; of arguments the low half, which is all that the kernel looks at in those below.
const (
	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16
	x32Bit       = 0x40000000
)

// Filter refuses (EPERM) every system call that the gateway does not need, on all its threads, for good. New privileges have been renounced before.
func Filter() error {
	code := filter(uint32(os.Getpid()))
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	thread, _, problem := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if problem != 0 {
		return fmt.Errorf("cannot filter system calls: %w", problem)
	}
	if thread != 0 {
		return fmt.Errorf("cannot filter system calls of thread %d", thread)
	}
	return nil
}

func filter(pid uint32) []unix.SockFilter {
	code := []unix.SockFilter{
		load(offsetArch),
		jump(unix.BPF_JEQ, unix.AUDIT_ARCH_X86_64, 1, 0), end(unix.SECCOMP_RET_KILL_PROCESS),
		load(offsetNumber),
		jump(unix.BPF_JGE, x32Bit, 0, 1), end(unix.SECCOMP_RET_KILL_PROCESS),
	}
	on := func(call uint32, then ...unix.SockFilter) {
		code = append(append(code, jump(unix.BPF_JEQ, call, 0, uint8(len(then)))), then...)
	}
	for _, call := range allowed {
		on(call, end(unix.SECCOMP_RET_ALLOW))
	}
	for _, call := range []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT} {
		on(call, argument(2), jump(unix.BPF_JSET, unix.PROT_EXEC, 0, 1), refuse(), end(unix.SECCOMP_RET_ALLOW))
	}
	on(unix.SYS_CLONE, argument(0), jump(unix.BPF_JEQ, threadFlags, 0, 1), end(unix.SECCOMP_RET_ALLOW), refuse())
	for _, call := range []uint32{unix.SYS_TGKILL, unix.SYS_KILL} {
		on(call, argument(0), jump(unix.BPF_JEQ, pid, 0, 1), end(unix.SECCOMP_RET_ALLOW), refuse())
	}
	on(unix.SYS_SOCKET,
		argument(0),
		jump(unix.BPF_JEQ, unix.AF_INET, 1, 0), jump(unix.BPF_JEQ, unix.AF_INET6, 0, 5),
		argument(1), unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: socketKind},
		jump(unix.BPF_JEQ, unix.SOCK_STREAM, 1, 0), jump(unix.BPF_JEQ, unix.SOCK_DGRAM, 0, 1),
		end(unix.SECCOMP_RET_ALLOW), refuse(),
	)
	return append(code, refuse())
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func argument(index uint32) unix.SockFilter { return load(offsetArgs + 8*index) }

func jump(test uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: k, Jt: yes, Jf: no}
}

func end(verdict uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: verdict}
}

func refuse() unix.SockFilter { return end(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)) }
