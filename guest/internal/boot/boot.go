// Package boot turns the bare kernel of an initramfs into the guest: modules, disks, the stacked root, the mounts that a Linux userland
// expects. It runs once, as PID 1. The image is not trusted: whatever it has in the place of a mount point is moved out of the way.
package boot

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/pty"
)

const deviceWait = 15 * time.Second

// Machine is what the agent keeps of the boot. All of it is held by descriptors, so that nothing the guest does to its file system or
// its mounts (`rm -rf /`, `umount -a`) takes it away.
type Machine struct {
	// Devices is a directory that no path leads to, for device nodes of the agent's own.
	Devices int
	// Disk is a directory of the writable file system beneath the root.
	Disk int
	// Cgroups is the root of the cgroup tree.
	Cgroups int
	// Random is the kernel's generator, to be reseeded.
	Random *os.File
	// OOMScore is the agent's own oom_score_adj.
	OOMScore *os.File
	// Processes is the root of procfs.
	Processes int
	// Terminals is the root of devpts.
	Terminals int
}

// Early prepares what everything else needs, errors being told included: a log, and devices.
func Early() error {
	for _, m := range []mount{
		{target: "/dev", kind: "devtmpfs", flags: unix.MS_NOSUID, data: "mode=0755"},
		{target: "/proc", kind: "proc", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{target: "/sys", kind: "sysfs", flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	} {
		if err := m.attach(); err != nil {
			return err
		}
	}
	return nil
}

// Run does the rest and leaves the process inside the new root. Early has been called.
func Run() (*Machine, error) {
	// The network is IPv4 alone. Set before there is a card, it counts for that; the loopback keeps ::1.
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	if err := loadModules("/modules"); err != nil {
		return nil, err
	}
	disk, err := enterRoot(time.Now().Add(deviceWait))
	if err != nil {
		return nil, err
	}
	if err := furnish(); err != nil {
		return nil, err
	}
	return hold(disk)
}

func hold(disk int) (*Machine, error) {
	m := &Machine{Disk: disk}
	var err error
	if m.Devices, err = detachedMount("tmpfs", map[string]string{"size": "64k", "mode": "0700"}); err != nil {
		return nil, err
	}
	if m.Cgroups, err = unix.Open("/sys/fs/cgroup", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open cgroup tree: %w", err)
	}
	if m.Processes, err = unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open the table of processes: %w", err)
	}
	if m.Terminals, err = pty.OpenDirectory("/dev/pts"); err != nil {
		return nil, fmt.Errorf("open the terminals: %w", err)
	}
	if m.Random, err = os.OpenFile("/dev/urandom", os.O_RDWR, 0); err != nil {
		return nil, err
	}
	if m.OOMScore, err = os.OpenFile("/proc/self/oom_score_adj", os.O_WRONLY, 0); err != nil {
		return nil, err
	}
	if _, err := m.OOMScore.WriteString("-1000"); err != nil {
		return nil, fmt.Errorf("protect the agent from the out-of-memory killer: %w", err)
	}
	return m, nil
}
