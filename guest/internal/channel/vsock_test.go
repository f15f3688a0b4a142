package channel

import (
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// listenUnix is the listener on a Unix socket: the same system calls, and a host that can be here.
func listenUnix(t *testing.T) (*VsockListener, func() net.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	listener, err := newVsockListener(fd, "hello", func(err error) { t.Log(err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener, func() net.Conn {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
}

func accept(t *testing.T, listener net.Listener) net.Conn {
	t.Helper()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestEveryStreamIsGreetedBesideTheOthers(t *testing.T) {
	listener, dial := listenUnix(t)
	for range 3 {
		host := dial()
		guest := accept(t, listener)
		readGreeting(t, host)
		if _, err := host.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		guest.SetReadDeadline(time.Now().Add(5 * time.Second))
		if n, err := guest.Read(make([]byte, 8)); n != 1 || err != nil {
			t.Fatalf("read %d bytes, %v", n, err)
		}
	}
}

func TestAStreamEndsWhenTheHostLeaves(t *testing.T) {
	listener, dial := listenUnix(t)
	host := dial()
	guest := accept(t, listener)
	host.Close()
	guest.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := guest.Read(make([]byte, 8)); err == nil {
		t.Fatal("the end of the stream was not seen")
	}
	readGreeting(t, dialAndAccept(t, listener, dial))
}

func dialAndAccept(t *testing.T, listener *VsockListener, dial func() net.Conn) net.Conn {
	t.Helper()
	host := dial()
	accept(t, listener)
	return host
}

func TestAListenerThatIsClosedEndsAccept(t *testing.T) {
	listener, _ := listenUnix(t)
	time.AfterFunc(10*time.Millisecond, func() { listener.Close() })
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestOnlyTheHostIsLetIn(t *testing.T) {
	if !isHost(&unix.SockaddrVM{CID: unix.VMADDR_CID_HOST, Port: 7}) || isHost(&unix.SockaddrVM{CID: 3, Port: 7}) {
		t.Error("the address decides who is the host")
	}
}
