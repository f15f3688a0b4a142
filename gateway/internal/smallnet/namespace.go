// Package smallnet is an Internet of the tests' own, in network namespaces: a guest behind a slot, a gateway, servers and their DNS. It needs root.
package smallnet

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Namespace is one that the test has made, and that goes with it.
type Namespace string

func (n Namespace) Path() string { return "/run/netns/" + string(n) }

func newNamespace(t testing.TB, role string) Namespace {
	name := Namespace(fmt.Sprintf("fgw%d%s", os.Getpid(), role))
	run(t, "ip", "netns", "add", string(name))
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", string(name)).Run() })
	n := name
	n.ip(t, "link set lo up")
	return n
}

func (n Namespace) ip(t testing.TB, arguments string) {
	t.Helper()
	run(t, "ip", append([]string{"-n", string(n)}, strings.Fields(arguments)...)...)
}

// Command is a program started in the namespace.
func (n Namespace) Command(name string, arguments ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", string(n), name}, arguments...)...)
}

// In does something on a thread of the namespace: sockets that it makes belong there.
func In[T any](t testing.TB, n Namespace, do func() (T, error)) (result T, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		var file *os.File
		if file, err = os.Open(n.Path()); err != nil {
			return
		}
		defer file.Close()
		if err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err == nil {
			result, err = do()
		}
	}()
	<-done
	return result, err
}

// Listen opens a listener in the namespace; it is closed with the test.
func (n Namespace) Listen(t testing.TB, address string) *net.TCPListener {
	t.Helper()
	listener, err := In(t, n, func() (*net.TCPListener, error) { return listenTCP(address, false) })
	must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func listenTCP(address string, transparent bool) (*net.TCPListener, error) {
	config := net.ListenConfig{Control: control(transparent)}
	network := "tcp"
	if transparent {
		network = "tcp4" // IPv4 alone, as the gateway asks
	}
	listener, err := config.Listen(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	return listener.(*net.TCPListener), nil
}

func listenUDP(address string, transparent bool) (*net.UDPConn, error) {
	config := net.ListenConfig{Control: control(transparent)}
	network := "udp"
	if transparent {
		network = "udp4"
	}
	socket, err := config.ListenPacket(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	return socket.(*net.UDPConn), nil
}

func control(transparent bool) func(string, string, syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) (err error) {
		if !transparent {
			return nil
		}
		controlErr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TRANSPARENT, 1) })
		if err == nil {
			err = controlErr
		}
		return err
	}
}

func run(t testing.TB, name string, arguments ...string) {
	t.Helper()
	if output, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(arguments, " "), err, output)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
