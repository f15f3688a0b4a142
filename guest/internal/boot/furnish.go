package boot

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/identity"
)

// furnish makes the new root a place where programs find what they expect.
func furnish() error {
	const bare = unix.MS_NOSUID | unix.MS_NODEV
	for _, m := range []mount{
		{target: "/proc", kind: "proc", flags: bare | unix.MS_NOEXEC},
		{target: "/sys", kind: "sysfs", flags: bare | unix.MS_NOEXEC},
		{target: "/dev", kind: "devtmpfs", flags: unix.MS_NOSUID, data: "mode=0755"},
		{target: "/dev/pts", kind: "devpts", flags: unix.MS_NOSUID | unix.MS_NOEXEC, data: "mode=0620,gid=5,ptmxmode=0666"},
		{target: "/dev/shm", kind: "tmpfs", flags: bare, data: "mode=1777,size=50%"},
		{target: "/run", kind: "tmpfs", flags: bare, data: "mode=0755,size=20%"},
		{target: "/sys/fs/cgroup", kind: "cgroup2", flags: bare | unix.MS_NOEXEC},
	} {
		if err := m.attach(); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
		"/dev/ptmx": "pts/ptmx",
	} {
		os.Remove(name)
		if err := os.Symlink(target, name); err != nil {
			return err
		}
	}
	for name, mode := range map[string]uint32{"/tmp": 0o1777, "/var/tmp": 0o1777, "/workspace": 0o755} {
		if err := openDirectory(name, mode); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("/run/lock", 0o755); err != nil {
		return err
	}
	if err := identity.WriteFile(identity.ResolverFile, identity.NoResolver); err != nil {
		return err
	}
	if err := identity.Prepare(); err != nil {
		return err
	}
	setKernel()
	return bringUpLoopback()
}

func openDirectory(name string, mode uint32) error {
	if err := os.MkdirAll(name, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := ensureDirectory(name); err != nil {
		return err
	}
	return unix.Chmod(name, mode)
}

// setKernel adjusts what has a default made for other machines. A kernel without one of these switches works too.
func setKernel() {
	for name, value := range map[string]string{
		"/proc/sys/kernel/panic":           "1", // the VMM ends at the reboot, and the host sees a dead VM instead of a silent one
		"/proc/sys/kernel/sysrq":           "0",
		"/proc/sys/fs/protected_symlinks":  "1",
		"/proc/sys/fs/protected_hardlinks": "1",
	} {
		_ = os.WriteFile(name, []byte(value), 0)
	}
}

func bringUpLoopback() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	return nil
}
