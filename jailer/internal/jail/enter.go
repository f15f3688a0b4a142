package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"fuse/jailer/internal/netns"
	"fuse/jailer/internal/seccomp"
)

// Enter is the second stage. It comes back only when it failed, and whoever waits for it knows by then.
func Enter(args []string) error {
	if len(args) != 1 {
		return errors.New("enter is for fuse-jailer itself")
	}
	socket, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	err = enter(socket)
	_ = unix.Sendmsg(socket, append([]byte{saysError}, err.Error()...), nil, nil, unix.MSG_NOSIGNAL)
	return err
}

func enter(socket int) error {
	// What is above the program's own descriptors ends when it is there.
	if err := unix.CloseRange(uint(socket), ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	start, err := hear(socket)
	if err != nil {
		return err
	}
	jail := start.Jail
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"enter its cgroups", func() error { return enterCgroups(jail.CgroupProcs) }},
		{"enter its network", func() error { return enterNetwork(jail.NetworkNamespacePath) }},
		{"be as expendable as others", forgetImportance},
		{"name its machine", func() error { return unix.Sethostname([]byte("vm")) }},
		{"make its root", func() error { return enterRoot(jail.Root, jail.Binds) }},
		{"go to its directory", func() error { return pathError("chdir", start.Cwd, unix.Chdir(start.Cwd)) }},
		{"set its limits", func() error { return setLimits(jail.Limits) }},
		{"give up privileges", func() error { return dropPrivileges(jail.UID, jail.GID) }},
		{"filter its system calls", func() error { return filter(socket, len(jail.ReadOnlyOpens) > 0) }},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("the jail of %s: cannot %s: %w", start.Program, step.name, err)
		}
	}
	// Whether it can be dumped or traced is decided by this exec: where its user may not read the file, it cannot.
	err = syscall.Exec(start.Program, append([]string{start.Program}, start.Args...), []string{})
	return pathError("execute", start.Program, err)
}

func hear(socket int) (instructions, error) {
	message := make([]byte, maxMessageBytes)
	n, _, err := unix.Recvfrom(socket, message, 0)
	if err != nil {
		return instructions{}, os.NewSyscallError("recvfrom", err)
	}
	if n == 0 {
		return instructions{}, errors.New("whoever started it is gone")
	}
	var start instructions
	err = json.Unmarshal(message[:n], &start)
	return start, err
}

// "0" is whoever writes it, in any pid namespace.
func enterCgroups(paths []string) error {
	for _, path := range paths {
		descriptor, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return pathError("open", path, err)
		}
		_, err = unix.Write(descriptor, []byte("0"))
		unix.Close(descriptor)
		if err != nil {
			return pathError("write", path, err)
		}
	}
	return nil
}

// The host agent may be one that the kernel spares when memory runs out; what it starts inherits that.
func forgetImportance() error {
	const path = "/proc/self/oom_score_adj"
	text, err := os.ReadFile(path)
	if err != nil || text[0] != '-' {
		return err
	}
	return os.WriteFile(path, []byte("0"), 0)
}

func enterNetwork(path string) error {
	if path == "" {
		return nil // it is in an empty one
	}
	return netns.Enter(path)
}

func filter(socket int, notify bool) error {
	listener, err := seccomp.Install(seccomp.Qemu(notify))
	if err != nil || listener < 0 {
		return err
	}
	defer unix.Close(listener)
	return unix.Sendmsg(socket, []byte{saysListener}, unix.UnixRights(listener), nil, unix.MSG_NOSIGNAL)
}

func pathError(what, path string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: what, Path: path, Err: err}
}
