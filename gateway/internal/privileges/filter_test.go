package privileges

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const asChild = "FUSE_TEST_FILTERED"

// attempts are system calls by what they would do; pointers are to memory that is there, so that nothing but the filter refuses them.
func attempts() map[string]func() unix.Errno {
	path := append([]byte("/bin/true"), 0)
	at := uintptr(unsafe.Pointer(&path[0]))
	argv := []uintptr{at, 0}
	call := func(number uintptr, arguments ...uintptr) func() unix.Errno {
		var a [6]uintptr
		copy(a[:], arguments)
		return func() unix.Errno {
			_, _, problem := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
			return problem
		}
	}
	const here = ^uintptr(99) // AT_FDCWD
	parent := uintptr(os.Getppid())
	return map[string]func() unix.Errno{
		"execve":                call(unix.SYS_EXECVE, at, uintptr(unsafe.Pointer(&argv[0])), 0),
		"execveat":              call(unix.SYS_EXECVEAT, here, at, uintptr(unsafe.Pointer(&argv[0])), 0, 0),
		"fork":                  call(unix.SYS_CLONE, uintptr(unix.SIGCHLD)),
		"vfork":                 call(unix.SYS_VFORK),
		"clone3":                call(unix.SYS_CLONE3, at, 64),
		"a new user namespace":  call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
		"ptrace":                call(unix.SYS_PTRACE, unix.PTRACE_TRACEME),
		"another's memory":      call(unix.SYS_PROCESS_VM_READV, parent, at, 0, at, 0, 0),
		"a signal to another":   call(unix.SYS_KILL, parent, 0),
		"mount":                 call(unix.SYS_MOUNT, at, at, at, 0, 0),
		"chroot":                call(unix.SYS_CHROOT, at),
		"setns":                 call(unix.SYS_SETNS, 0, 0),
		"bpf":                   call(unix.SYS_BPF, 0, at, 8),
		"io_uring":              call(unix.SYS_IO_URING_SETUP, 1, at),
		"perf_event_open":       call(unix.SYS_PERF_EVENT_OPEN, at, 0, 0, 0, 0),
		"userfaultfd":           call(unix.SYS_USERFAULTFD, 0),
		"keyctl":                call(unix.SYS_KEYCTL, 0),
		"open":                  call(unix.SYS_OPEN, at, unix.O_RDONLY),
		"openat":                call(unix.SYS_OPENAT, here, at, unix.O_RDONLY),
		"unlink":                call(unix.SYS_UNLINK, at),
		"chmod":                 call(unix.SYS_CHMOD, at, 0),
		"ioctl":                 call(unix.SYS_IOCTL, 0, 0, 0),
		"prctl":                 call(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 1),
		"setuid":                call(unix.SYS_SETUID, 0),
		"executable memory":     call(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0)),
		"memory made so":        call(unix.SYS_MPROTECT, at&^4095, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC),
		"a netlink socket":      call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, 0),
		"a packet socket":       call(unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW, 0),
		"a Unix socket":         call(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0),
		"a vsock":               call(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0),
		"a raw socket":          call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP),
		"a raw socket of IPv6":  call(unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6),
		"a pair of sockets":     call(unix.SYS_SOCKETPAIR, unix.AF_UNIX, unix.SOCK_STREAM, 0, at),
		"bind":                  call(unix.SYS_BIND, 0, at, 16),
		"listen":                call(unix.SYS_LISTEN, 0, 1),
		"a stream socket":       call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0),
		"a datagram of IPv6":    call(unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0),
		"memory":                call(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0)),
		"a signal to ourselves": call(unix.SYS_TGKILL, uintptr(os.Getpid()), uintptr(unix.Gettid()), 0),
	}
}

var needed = map[string]bool{"a stream socket": true, "a datagram of IPv6": true, "memory": true, "a signal to ourselves": true}

func TestMain(m *testing.M) {
	if os.Getenv(asChild) == "" {
		os.Exit(m.Run())
	}
	runtime.LockOSThread()
	tries := attempts()
	if err := NoNewPrivileges(); err != nil {
		panic(err)
	}
	if err := Filter(); err != nil {
		panic(err)
	}
	for name, try := range tries {
		fmt.Printf("%s: %d\n", name, try())
	}
	// The filter is that of the other threads, too.
	other := make(chan unix.Errno)
	go func() { other <- tries["ptrace"]() }()
	fmt.Printf("another thread's ptrace: %d\n", <-other)
	os.Exit(0)
}

func TestOfTheFilteredNothingIsLeftButWhatServingTakes(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), asChild+"=1")
	output, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	lines := 0
	for scanner := bufio.NewScanner(strings.NewReader(string(output))); scanner.Scan(); lines++ {
		name, number, _ := strings.Cut(scanner.Text(), ": ")
		want := fmt.Sprint(uintptr(unix.EPERM))
		if needed[name] {
			want = "0"
		}
		if number != want {
			t.Errorf("%s: errno %s in place of %s", name, number, want)
		}
	}
	if want := len(attempts()) + 1; lines != want {
		t.Errorf("%d attempts in place of %d:\n%s", lines, want, output)
	}
}
