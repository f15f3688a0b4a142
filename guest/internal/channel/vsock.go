package channel

import (
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Firecracker's host end is one program that we trust; more connections than this are none of its.
	vsockBacklog = 16
	greetWait    = 5 * time.Second
)

// VsockListener is the channel under Firecracker. Each connection is a fresh stream, closed at one end when the other goes, so nothing of an
// earlier one can be in it: there may be several, and a host that comes back need not wait. Each begins with the greeting, as on a port.
// Snapshots reset the device: connections end, the listener goes on.
type VsockListener struct {
	socket   *os.File
	raw      rawAccepter
	greeting []byte
	onError  func(error)
}

// rawAccepter is what is used of syscall.RawConn.
type rawAccepter interface {
	Read(func(fd uintptr) bool) error
}

// HasVsock says whether the machine has a vsock device: without one the kernel knows no address of its own.
func HasVsock() bool {
	device, err := os.Open("/dev/vsock")
	if err != nil {
		return false
	}
	defer device.Close()
	cid, err := unix.IoctlGetUint32(int(device.Fd()), unix.IOCTL_VM_SOCKETS_GET_LOCAL_CID)
	return err == nil && cid > unix.VMADDR_CID_HOST && cid != unix.VMADDR_CID_ANY
}

// ListenVsock listens on a port of every address of the machine.
func ListenVsock(port uint32, greeting string, onError func(error)) (*VsockListener, error) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("vsock socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: port}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind vsock port %d: %w", port, err)
	}
	return newVsockListener(fd, greeting, onError)
}

// newVsockListener takes over a bound, non-blocking socket.
func newVsockListener(fd int, greeting string, onError func(error)) (*VsockListener, error) {
	if err := unix.Listen(fd, vsockBacklog); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen: %w", err)
	}
	socket := os.NewFile(uintptr(fd), "guest-channel")
	raw, err := socket.SyscallConn()
	if err != nil {
		socket.Close()
		return nil, err
	}
	return &VsockListener{socket: socket, raw: raw, greeting: []byte(greeting), onError: onError}, nil
}

// Accept returns the next connection of the host's that took the greeting.
func (l *VsockListener) Accept() (net.Conn, error) {
	for {
		conn, peer, err := l.acceptAny()
		if err != nil {
			return nil, err
		}
		if !isHost(peer) {
			conn.Close()
			continue
		}
		if err := greet(conn, l.greeting); err != nil {
			l.onError(err)
			conn.Close()
			continue
		}
		return conn, nil
	}
}

func (l *VsockListener) acceptAny() (*streamConn, unix.Sockaddr, error) {
	for {
		fd, peer, failure := -1, unix.Sockaddr(nil), error(nil)
		err := l.raw.Read(func(listening uintptr) bool {
			fd, peer, failure = unix.Accept4(int(listening), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			return failure != unix.EAGAIN
		})
		if err != nil {
			return nil, nil, net.ErrClosed
		}
		if failure == nil {
			return &streamConn{File: os.NewFile(uintptr(fd), "guest-channel")}, peer, nil
		}
		// A host that left again, or a moment without memory or descriptors: the next one may do better.
		if failure != unix.ECONNABORTED && failure != unix.EINTR {
			l.onError(fmt.Errorf("accept: %w", failure))
			time.Sleep(retryDelay)
		}
	}
}

// isHost keeps out what runs in the guest, should its kernel ever connect it to itself.
func isHost(peer unix.Sockaddr) bool {
	vm, isVM := peer.(*unix.SockaddrVM)
	return !isVM || vm.CID == unix.VMADDR_CID_HOST
}

// greet bounds the time for it: one host that does not read must not keep out the next.
func greet(conn *streamConn, greeting []byte) error {
	if err := conn.SetWriteDeadline(time.Now().Add(greetWait)); err != nil {
		return err
	}
	if _, err := conn.Write(greeting); err != nil {
		return err
	}
	return conn.SetWriteDeadline(time.Time{})
}

func (l *VsockListener) Close() error { return l.socket.Close() }

func (l *VsockListener) Addr() net.Addr { return Addr{} }

// streamConn is a connected stream socket: the net package knows no AF_VSOCK, files do.
type streamConn struct{ *os.File }

func (streamConn) LocalAddr() net.Addr  { return Addr{} }
func (streamConn) RemoteAddr() net.Addr { return Addr{} }
