// Command probe looks around in its jail, says what it found as JSON, and waits until its stdin ends. With an argument it tries one thing more first.
package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"sort"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type found struct {
	Args        []string
	Environment []string
	Directory   string
	UID, GID    int
	Groups      []int
	Root        []string
	Descriptors []int
	Hostname    string
	PID         int
	Attempts    map[string]string
}

func main() {
	f := found{
		Args: os.Args, Environment: os.Environ(), UID: os.Getuid(), GID: os.Getgid(), Descriptors: descriptors(), PID: os.Getpid(), Attempts: map[string]string{},
	}
	f.Directory, _ = os.Getwd()
	f.Groups, _ = os.Getgroups()
	f.Hostname, _ = os.Hostname()
	f.Root, _ = filepath.Glob("/*")
	sort.Strings(f.Root)
	for name, attempt := range attempts {
		f.Attempts[name] = outcome(attempt())
	}
	if len(os.Args) > 1 {
		special[os.Args[1]](f.Attempts)
	}
	_ = json.NewEncoder(os.Stdout).Encode(f)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func outcome(err error) string {
	switch number := err.(type) {
	case nil:
		return "ok"
	case syscall.Errno:
		return unix.ErrnoName(number)
	case *os.PathError:
		return outcome(number.Err)
	default:
		return err.Error()
	}
}

// What is open, but for what Go opens for itself.
func descriptors() []int {
	var open []int
	for descriptor := 0; descriptor < 64; descriptor++ {
		flags, err := unix.FcntlInt(uintptr(descriptor), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			open = append(open, descriptor)
		}
	}
	return open
}

func call(number uintptr, args ...uintptr) func() error {
	var a [3]uintptr
	copy(a[:], args)
	return func() error {
		if _, _, errno := unix.RawSyscall(number, a[0], a[1], a[2]); errno != 0 {
			return errno
		}
		return nil
	}
}

func open(path string, flags int) func() error {
	return func() error {
		descriptor, err := unix.Open(path, flags, 0)
		unix.Close(descriptor)
		return err
	}
}

func write(path string) func() error {
	return func() error { return os.WriteFile(path, []byte("written"), 0o755) }
}

var attempts = map[string]func() error{
	"socket unix":             call(unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM),
	"socket inet":             call(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM),
	"socket inet6":            call(unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_DGRAM),
	"socket netlink":          call(unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW),
	"socket packet":           call(unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW),
	"socket vsock":            call(unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM),
	"mount":                   call(unix.SYS_MOUNT),
	"unshare user":            call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER),
	"clone user":              call(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD)),
	"clone3":                  call(unix.SYS_CLONE3),
	"ptrace":                  call(unix.SYS_PTRACE),
	"process_vm_readv":        call(unix.SYS_PROCESS_VM_READV),
	"bpf":                     call(unix.SYS_BPF),
	"perf_event_open":         call(unix.SYS_PERF_EVENT_OPEN),
	"userfaultfd":             call(unix.SYS_USERFAULTFD),
	"io_uring_setup":          call(unix.SYS_IO_URING_SETUP),
	"keyctl":                  call(unix.SYS_KEYCTL),
	"setuid":                  call(unix.SYS_SETUID),
	"chroot":                  call(unix.SYS_CHROOT),
	"mknod":                   call(unix.SYS_MKNODAT),
	"openat2":                 call(unix.SYS_OPENAT2),
	"push into a terminal":    call(unix.SYS_IOCTL, 0, unix.TIOCSTI),
	"rename a card":           call(unix.SYS_IOCTL, 0, unix.SIOCSIFHWADDR),
	"keep a tap":              call(unix.SYS_IOCTL, 0, unix.TUNSETPERSIST),
	"another control":         call(unix.SYS_IOCTL, 0, unix.TUNGETFEATURES),
	"read the host's":         open("/etc/passwd", unix.O_RDONLY),
	"read proc":               open("/proc/self/status", unix.O_RDONLY),
	"read another user's":     open("/readonly/secret", unix.O_RDONLY),
	"read a bind":             open("/readonly/file", unix.O_RDONLY),
	"read and write a bind":   open("/readonly/file", unix.O_RDWR),
	"write to a bind":         write("/readonly/new"),
	"write to the root":       write("/new"),
	"write to a writable one": write("/writable/new"),
	"write and remove":        func() error { _ = os.WriteFile("/writable/kept", nil, 0o600); return unix.Unlink("/writable/kept") },
	"remove by another call":  call(unix.SYS_UNLINKAT),
	"write and rename":        call(unix.SYS_RENAMEAT2),
	"write without a name":    open("/writable", unix.O_TMPFILE|unix.O_RDWR),
	"execute there":           func() error { return unix.Exec("/writable/program", []string{"program"}, nil) },
	"read a device there":     open("/writable/zero", unix.O_RDONLY),
	"read a device":           open("/dev/zero", unix.O_RDONLY),
}

var special = map[string]func(map[string]string){
	"x32": func(map[string]string) { _ = call(0x40000000 + unix.SYS_GETPID)() },
	"large file": func(attempts map[string]string) {
		attempts["large file"] = outcome(unix.Truncate("/writable/new", 1<<30))
	},
	// Twice: as long as the host has not heard that we are up, and after that.
	"read-only opens": func(attempts map[string]string) {
		descriptor, err := unix.Open("/readonly/template", unix.O_RDWR, 0)
		attempts["open"] = outcome(err)
		buffer := make([]byte, 8)
		n, _ := unix.Pread(descriptor, buffer, 0)
		attempts["content"] = string(buffer[:n])
		_, err = unix.Write(descriptor, buffer)
		attempts["write to it"] = outcome(err)
		_, err = unix.Mmap(descriptor, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		attempts["map it privately"] = outcome(err)
		_, err = unix.Mmap(descriptor, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		attempts["map it shared"] = outcome(err)
		attempts["open another"] = outcome(open("/readonly/file", unix.O_RDWR)())
		attempts["open its own"] = outcome(open("/writable/new", unix.O_RDWR)())
		attempts["open one that is missing"] = outcome(open("/readonly/missing", unix.O_RDWR)())
		attempts["with another flag"] = outcome(open("/readonly/template", unix.O_RDWR|unix.O_CLOEXEC)())
		attempts["by another name"] = outcome(open("/readonly/../readonly/template", unix.O_RDWR)())
		_, _ = os.Stdout.WriteString("waiting\n")
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline) && attempts["afterwards"] != "ENOSYS"; time.Sleep(time.Millisecond) {
			attempts["afterwards"] = outcome(open("/readonly/template", unix.O_RDWR)())
		}
		attempts["its own, afterwards"] = outcome(open("/writable/new", unix.O_RDWR|unix.O_CLOEXEC)())
		attempts["for reading, afterwards"] = outcome(open("/readonly/template", unix.O_RDONLY)())
	},
}
