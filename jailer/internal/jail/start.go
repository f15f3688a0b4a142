// Package jail starts a program confined: see apps/host-agent/src/vmm/jail.ts for what that means. It takes two stages. Start clones a process into
// new namespaces, which is this program again, and tells it the rest over a socket; there Enter puts itself into the jail and becomes the
// program, with the pid that it had. The socket closes with that exec; before it, an error comes through it, or the listener of the filter.
package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fuse/jailer/internal/protocol"
	"fuse/jailer/internal/seccomp"
)

// EnterCommand is this program's argument for the second stage, followed by the socket's descriptor.
const EnterCommand = "enter"

const (
	maxMessageBytes = 128 << 10
	// Of what takes milliseconds, when it does not hang.
	enterWithin = 30 * time.Second
)

// What Enter says.
const (
	saysListener = 'l' // with it as ancillary data
	saysError    = 'e' // and a sentence
)

// instructions for the second stage.
type instructions struct {
	Program string
	Args    []string
	Cwd     string
	Jail    *protocol.Jail
}

// Jailed is a program that runs in its jail.
type Jailed struct {
	Process  *os.Process
	listener *seccomp.Listener
}

// Up says that the program has started: from now on nothing is opened for it. Idempotent.
func (j *Jailed) Up() {
	j.listener.Close()
}

// Start returns once the program runs, or else nothing of it is left. `hold` is a file that the process has open until then.
func Start(start protocol.Start, files []*os.File, hold *os.File) (*Jailed, error) {
	if err := check(start); err != nil {
		return nil, fmt.Errorf("a jail that cannot be: %w", err)
	}
	message, err := json.Marshal(instructions{start.Program, start.Args, start.Cwd, start.Jail})
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	process, err := cloneSelf(start, append(append([]*os.File{}, files...), theirs, hold), len(files))
	theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("make namespaces: %w", err)
	}
	jailed := &Jailed{Process: process}
	if err := jailed.instruct(ours, message, start.Jail.ReadOnlyOpens); err != nil {
		jailed.Up()
		_ = process.Kill()
		_, _ = process.Wait()
		return nil, err
	}
	return jailed, nil
}

func check(start protocol.Start) error {
	jail := start.Jail
	absolute := []string{start.Program, start.Cwd, jail.Root}
	for _, bind := range jail.Binds {
		absolute = append(absolute, bind.Source, bind.Target)
	}
	for _, path := range append(absolute, jail.ReadOnlyOpens...) {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			return fmt.Errorf("%q is no absolute path in its shortest form", path)
		}
	}
	switch {
	case jail.UID <= 0 || jail.GID <= 0:
		return errors.New("its user is root")
	case jail.Seccomp != "qemu":
		return fmt.Errorf("there is no filter %q", jail.Seccomp)
	case jail.Limits.OpenFiles == 0 || jail.Limits.FileSizeBytes == 0:
		return errors.New("it has no limits")
	}
	return nil
}

func socketPair() (ours, theirs *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	if err := unix.SetNonblock(ends[0], true); err != nil {
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(ends[0]), "jail"), os.NewFile(uintptr(ends[1]), "jail"), nil
}

func cloneSelf(start protocol.Start, files []*os.File, socket int) (*os.Process, error) {
	flags := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS)
	if start.Jail.NetworkNamespacePath == "" {
		flags |= unix.CLONE_NEWNET
	}
	return os.StartProcess("/proc/self/exe", []string{"fuse-jailer", EnterCommand, strconv.Itoa(socket)}, &os.ProcAttr{
		Dir:   "/",
		Env:   []string{},
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: start.Session, Cloneflags: flags},
	})
}

// instruct tells the second stage what to do and waits until the program is there.
func (j *Jailed) instruct(socket *os.File, message []byte, readOnlyOpens []string) error {
	connection, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	if err := socket.SetDeadline(time.Now().Add(enterWithin)); err != nil {
		return err
	}
	if err := send(connection, message); err != nil {
		return fmt.Errorf("tell the jail what it is: %w", err)
	}
	for {
		said, listener, err := receive(connection)
		switch {
		case err != nil:
			return fmt.Errorf("hear from the jail: %w", err)
		case len(said) == 0:
			return nil
		case said[0] == saysListener && listener >= 0:
			j.listener = seccomp.Listen(listener, readOnlyOpens)
		default:
			return errors.New(string(said[1:]))
		}
	}
}

func send(connection syscall.RawConn, message []byte) (err error) {
	failed := connection.Write(func(descriptor uintptr) bool {
		err = unix.Sendmsg(int(descriptor), message, nil, nil, unix.MSG_NOSIGNAL)
		return err != unix.EAGAIN
	})
	return errors.Join(failed, err)
}

// receive answers nothing once the other side has closed; listener is -1 without one.
func receive(connection syscall.RawConn) (said []byte, listener int, err error) {
	buffer := make([]byte, 4<<10)
	ancillary := make([]byte, unix.CmsgSpace(4))
	var n, m int
	failed := connection.Read(func(descriptor uintptr) bool {
		n, m, _, _, err = unix.Recvmsg(int(descriptor), buffer, ancillary, unix.MSG_CMSG_CLOEXEC)
		return err != unix.EAGAIN
	})
	if err = errors.Join(failed, err); err != nil || m == 0 {
		return buffer[:max(n, 0)], -1, err
	}
	messages, err := unix.ParseSocketControlMessage(ancillary[:m])
	if err != nil || len(messages) != 1 {
		return nil, -1, errors.Join(err, errors.New("ancillary data that is none"))
	}
	descriptors, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(descriptors) != 1 {
		return nil, -1, errors.Join(err, errors.New("descriptors that are none"))
	}
	return buffer[:n], descriptors[0], nil
}
