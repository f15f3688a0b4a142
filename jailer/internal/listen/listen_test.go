package listen

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fuse/jailer/internal/netns"
)

const answerWithin = 30 * time.Second

// slot is a namespace with the gateway's address in it.
func slot(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	holder := exec.Command("unshare", "--net", "sh", "-c", "ip link set lo up && ip address add 192.0.0.1/29 dev lo && echo ready && exec sleep 600")
	output, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	if _, err := io.ReadFull(output, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid)
}

type handed struct {
	line      string
	listeners []int
	err       error
}

// gateway takes one slot and answers so.
func gateway(t *testing.T, answer string) (path string, taken chan handed) {
	t.Helper()
	directory := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(directory)
	server, err := net.ListenUnix("unix", &net.UnixAddr{Name: "listeners.sock", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	taken = make(chan handed, 1)
	go func() {
		connection, err := server.AcceptUnix()
		if err != nil {
			taken <- handed{err: err}
			return
		}
		defer connection.Close()
		got := take(connection)
		_, _ = io.WriteString(connection, answer)
		taken <- got
	}()
	return filepath.Join(directory, "listeners.sock"), taken
}

func take(connection *net.UnixConn) handed {
	line, ancillary := make([]byte, 256), make([]byte, 256)
	n, m, _, _, err := connection.ReadMsgUnix(line, ancillary)
	if err != nil {
		return handed{err: err}
	}
	messages, err := unix.ParseSocketControlMessage(ancillary[:m])
	if err != nil || len(messages) != 1 {
		return handed{err: errors.Join(err, fmt.Errorf("%d messages", len(messages)))}
	}
	listeners, err := unix.ParseUnixRights(&messages[0])
	return handed{string(line[:n]), listeners, err}
}

// run is what the program does, on a thread that ends with it.
func run(args ...string) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		result <- Run(args)
	}()
	return <-result
}

// connectIn connects within a namespace.
func connectIn(t *testing.T, namespace, network, address string) net.Conn {
	t.Helper()
	type dialed struct {
		net.Conn
		error
	}
	result := make(chan dialed, 1)
	go func() {
		runtime.LockOSThread()
		if err := netns.Enter(namespace); err != nil {
			result <- dialed{nil, err}
			return
		}
		connection, err := net.DialTimeout(network, address, answerWithin)
		result <- dialed{connection, err}
	}()
	got := <-result
	if got.error != nil {
		t.Fatal(got.error)
	}
	t.Cleanup(func() { got.Close() })
	return got
}

func TestAGatewayElsewhereGetsTheListenersOfASlot(t *testing.T) {
	namespace := slot(t)
	path, taken := gateway(t, "ok\n")
	if err := run("--namespace", namespace, "--slot", "one", "--gateway", path); err != nil {
		t.Fatal(err)
	}
	got := <-taken
	if got.err != nil || got.line != "{\"slot\":\"one\"}\n" || len(got.listeners) != 3 {
		t.Fatalf("the gateway got %+v", got)
	}
	for index, want := range []struct {
		kind, transparent, port int
		address                 [4]byte
	}{
		{unix.SOCK_STREAM, 1, 15001, [4]byte{}},
		{unix.SOCK_DGRAM, 0, 53, gatewayAddress},
		{unix.SOCK_STREAM, 0, 53, gatewayAddress},
	} {
		socket := got.listeners[index]
		t.Cleanup(func() { unix.Close(socket) })
		kind, _ := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_TYPE)
		transparent, _ := unix.GetsockoptInt(socket, unix.SOL_IP, unix.IP_TRANSPARENT)
		name, err := unix.Getsockname(socket)
		bound, ok := name.(*unix.SockaddrInet4)
		if err != nil || !ok || kind != want.kind || transparent != want.transparent || bound.Port != want.port || bound.Addr != want.address {
			t.Errorf("listener %d: kind %d, transparent %d, %+v, %v", index, kind, transparent, name, err)
		}
	}
	// A gateway that has them takes them anew.
	again, takenAgain := gateway(t, "ok\n")
	if err := run("--namespace", namespace, "--slot", "one", "--gateway", again); err != nil {
		t.Fatal(err)
	}
	for _, each := range (<-takenAgain).listeners {
		unix.Close(each)
	}
	// We are not in that namespace, and hear of who connects there.
	client := connectIn(t, namespace, "tcp", "127.0.0.9:15001")
	accepted := acceptOn(t, got.listeners[0])
	name, err := unix.Getsockname(accepted)
	if bound, ok := name.(*unix.SockaddrInet4); err != nil || !ok || bound.Addr != [4]byte{127, 0, 0, 9} {
		t.Errorf("the address that %v meant: %+v, %v", client.LocalAddr(), name, err)
	}
	query := connectIn(t, namespace, "udp", "192.0.0.1:53")
	if _, err := query.Write([]byte("query")); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64)
	waitFor(t, got.listeners[1])
	if n, _, err := unix.Recvfrom(got.listeners[1], buffer, 0); err != nil || string(buffer[:n]) != "query" {
		t.Errorf("DNS over UDP: %q, %v", buffer[:n], err)
	}
}

func acceptOn(t *testing.T, listener int) int {
	t.Helper()
	waitFor(t, listener)
	accepted, _, err := unix.Accept(listener)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(accepted) })
	return accepted
}

func waitFor(t *testing.T, socket int) {
	t.Helper()
	ready := []unix.PollFd{{Fd: int32(socket), Events: unix.POLLIN}}
	if n, err := unix.Poll(ready, int(answerWithin.Milliseconds())); n != 1 {
		t.Fatalf("nothing comes: %v", err)
	}
}

func TestWhatAGatewayRefusesIsAnError(t *testing.T) {
	namespace := slot(t)
	for answer, want := range map[string]string{
		"error: no more slots\n":          "no more slots",
		"":                                "hung up",
		strings.Repeat("x", 8<<10):        "too long",
		strings.Repeat("x", 100) + "ok\n": "it says",
	} {
		path, _ := gateway(t, answer)
		err := run("--namespace", namespace, "--slot", "one", "--gateway", path)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("to %.20q: %v", answer, err)
		}
	}
}

func TestWithoutAGatewayOrANamespaceItSaysSo(t *testing.T) {
	namespace := slot(t)
	if err := run("--namespace", namespace, "--slot", "one", "--gateway", "/none/listeners.sock"); err == nil || !strings.Contains(err.Error(), "reach the gateway") {
		t.Errorf("it says %v", err)
	}
	path, _ := gateway(t, "ok\n")
	if err := run("--namespace", "/none", "--slot", "one", "--gateway", path); err == nil || !strings.Contains(err.Error(), "network namespace /none") {
		t.Errorf("it says %v", err)
	}
	if err := run("--slot", "one"); err == nil {
		t.Error("it wants no namespace")
	}
}
