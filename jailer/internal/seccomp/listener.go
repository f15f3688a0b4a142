package seccomp

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Whoever never says that the program is up has given up on it by then.
const listenFor = 60 * time.Second

// struct seccomp_notif, seccomp_notif_resp and seccomp_notif_addfd of linux/seccomp.h.
type notification struct {
	id     uint64
	thread uint32
	flags  uint32
	call   int32
	arch   uint32
	at     uint64
	args   [6]uint64
}

type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

type addedDescriptor struct {
	id        uint64
	flags     uint32
	source    uint32
	target    uint32
	fileFlags uint32
}

// Listener answers a program that opens files for reading and writing: some, by their names, are opened for reading only, in its root; the rest is the kernel's to decide.
// It is no barrier (the program could change the name after we have read it), and need be none: it gives descriptors that are worth less than what was asked for.
type Listener struct {
	file  *os.File
	paths []string
}

// Listen serves until Close, or for a minute.
func Listen(descriptor int, paths []string) *Listener {
	_ = unix.SetNonblock(descriptor, true) // so that Go's poller waits for it
	l := &Listener{file: os.NewFile(uintptr(descriptor), "seccomp listener"), paths: paths}
	_ = l.file.SetReadDeadline(time.Now().Add(listenFor))
	go l.serve()
	return l
}

// Close is idempotent; what would be asked is refused from then on.
func (l *Listener) Close() {
	if l != nil {
		l.file.Close()
	}
}

func (l *Listener) serve() {
	defer l.file.Close()
	connection, err := l.file.SyscallConn()
	if err != nil {
		return
	}
	for {
		over := false
		err := connection.Read(func(descriptor uintptr) bool {
			// Receiving waits when there is nothing: look first.
			ready := []unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}
			if n, _ := unix.Poll(ready, 0); n <= 0 {
				return false
			}
			if over = ready[0].Revents&unix.POLLIN == 0; !over {
				l.answerOne(descriptor)
			}
			return true
		})
		if err != nil || over {
			return
		}
	}
}

func (l *Listener) answerOne(descriptor uintptr) {
	var asked notification
	if ioctl(descriptor, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&asked)) != nil {
		return // it is gone
	}
	file, isOurs := l.open(descriptor, &asked)
	answer := response{id: asked.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	if isOurs && file < 0 {
		answer = response{id: asked.id, errno: -int32(unix.EACCES)}
	}
	if file >= 0 {
		defer unix.Close(file)
		added := addedDescriptor{id: asked.id, flags: unix.SECCOMP_ADDFD_FLAG_SEND, source: uint32(file)}
		if ioctl(descriptor, unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&added)) == nil {
			return
		}
		answer = response{id: asked.id, errno: -int32(unix.EMFILE)}
	}
	_ = ioctl(descriptor, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&answer)) // it may be gone
}

// open answers whether the file is one of those, and it, or -1 when it cannot be opened.
func (l *Listener) open(listener uintptr, asked *notification) (file int, isOurs bool) {
	argument := 1
	if asked.call == unix.SYS_OPEN {
		argument = 0
	}
	process := "/proc/" + strconv.FormatUint(uint64(asked.thread), 10)
	path, err := readString(process+"/mem", asked.args[argument])
	if err != nil || !slices.Contains(l.paths, path) {
		return -1, false
	}
	root, err := unix.Open(process+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, true
	}
	defer unix.Close(root)
	// Its number may be another process's by now, unless the question still stands.
	if ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&asked.id)) != nil {
		return -1, true
	}
	how := unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS}
	file, err = unix.Openat2(root, path, &how)
	if err != nil {
		return -1, true
	}
	return file, true
}

func readString(memory string, at uint64) (string, error) {
	file, err := os.Open(memory)
	if err != nil {
		return "", err
	}
	defer file.Close()
	buffer := make([]byte, unix.PathMax)
	n, err := file.ReadAt(buffer, int64(at))
	end := bytes.IndexByte(buffer[:n], 0) // what follows it may not be there to be read
	if end < 0 {
		return "", err
	}
	return string(buffer[:end]), nil
}

func ioctl(descriptor uintptr, request uintptr, argument unsafe.Pointer) error {
	if _, _, number := unix.Syscall(unix.SYS_IOCTL, descriptor, request, uintptr(argument)); number != 0 {
		return number
	}
	return nil
}
