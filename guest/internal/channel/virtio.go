package channel

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	pollDelay = 2 * time.Millisecond
	busyWait  = 5 * time.Second
	busyDelay = time.Millisecond
	// Wake-ups come from the kernel; looking again after this long costs nothing and covers one that was lost.
	hostRecheck = time.Second
)

// VirtioPort is a virtio-serial port, opened through a device node in a directory that only the agent has.
type VirtioPort struct {
	dir  int
	node string
}

// errNoPort: there is none of that name, yet.
var errNoPort = errors.New("no such virtio port")

// FindVirtioPort makes a node for the port of this name in dir. The node in /dev is removed: the guest
// has no use for it, and `rm -rf /dev` must not cost the channel.
func FindVirtioPort(name string, dir int) (*VirtioPort, error) {
	device, err := virtioPortNamed(name)
	if err != nil {
		return nil, err
	}
	return openNode(device, dir)
}

func virtioPortNamed(name string) (string, error) {
	const class = "/sys/class/virtio-ports"
	entries, err := os.ReadDir(class)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	for _, entry := range entries {
		text, err := os.ReadFile(class + "/" + entry.Name() + "/name")
		if err == nil && strings.TrimSpace(string(text)) == name {
			return entry.Name(), nil
		}
	}
	return "", fmt.Errorf("%w: %s", errNoPort, name)
}

func openNode(device string, dir int) (*VirtioPort, error) {
	numbers, err := os.ReadFile("/sys/class/virtio-ports/" + device + "/dev")
	if err != nil {
		return nil, err
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(numbers), "%d:%d", &major, &minor); err != nil {
		return nil, fmt.Errorf("device number of %s: %w", device, err)
	}
	if err := unix.Mknodat(dir, device, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))); err != nil {
		return nil, fmt.Errorf("make node of %s: %w", device, err)
	}
	if err := os.Remove("/dev/" + device); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return &VirtioPort{dir: dir, node: device}, nil
}

// Connect opens the port and waits until the host is connected, which the kernel shows by the absence of POLLHUP.
func (p *VirtioPort) Connect() (net.Conn, error) {
	fd, err := p.open()
	if err != nil {
		return nil, err
	}
	// The descriptor is non-blocking: a blocking write would spin in the kernel until the host takes the bytes.
	conn := &virtioConn{File: os.NewFile(uintptr(fd), p.node)}
	if err := conn.awaitHost(); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// open retries while the descriptor of the connection before is still held by a read that is returning.
func (p *VirtioPort) open() (int, error) {
	for deadline := time.Now().Add(busyWait); ; time.Sleep(busyDelay) {
		fd, err := unix.Openat(p.dir, p.node, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		switch {
		case err == nil:
			return fd, nil
		case err == unix.EINTR:
		case err != unix.EBUSY || time.Now().After(deadline):
			return -1, fmt.Errorf("open guest port: %w", err)
		}
	}
}

// virtioConn is one connection of the host. Once the host is seen gone nothing is written any more: it would reach the next host.
type virtioConn struct {
	*os.File
	hostGone atomic.Bool
}

func (c *virtioConn) Read(p []byte) (int, error) {
	n, err := c.File.Read(p)
	if errors.Is(err, io.EOF) {
		c.hostGone.Store(true)
	}
	return n, err
}

func (c *virtioConn) Write(p []byte) (int, error) {
	if c.hostGone.Load() {
		return 0, net.ErrClosed
	}
	return c.File.Write(p)
}

func (c *virtioConn) LocalAddr() net.Addr  { return Addr{} }
func (c *virtioConn) RemoteAddr() net.Addr { return Addr{} }

func (c *virtioConn) awaitHost() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	defer c.SetWriteDeadline(time.Time{})
	for {
		if err := c.SetWriteDeadline(time.Now().Add(hostRecheck)); err != nil {
			return err
		}
		err := raw.Write(func(fd uintptr) bool { return hostConnected(int(fd)) })
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}

func hostConnected(fd int) bool {
	poll := []unix.PollFd{{Fd: int32(fd)}}
	_, err := unix.Poll(poll, 0)
	return err == nil && poll[0].Revents&unix.POLLHUP == 0
}
