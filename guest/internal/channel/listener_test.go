package channel

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// fakePort hands out ends of pipes; the other ends come out of hosts.
type fakePort struct {
	hosts    chan net.Conn
	failures int
}

func (p *fakePort) Connect() (net.Conn, error) {
	if p.failures > 0 {
		p.failures--
		return nil, errors.New("port is busy")
	}
	guest, host := net.Pipe()
	p.hosts <- host
	return guest, nil
}

func readGreeting(t *testing.T, host net.Conn) {
	t.Helper()
	text := make([]byte, 5)
	host.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.ReadFull(host, text); err != nil || string(text) != "hello" {
		t.Fatalf("greeting %q, %v", text, err)
	}
}

func TestEveryConnectionIsGreetedAndOnlyOneIsOpenAtATime(t *testing.T) {
	port := &fakePort{hosts: make(chan net.Conn, 1)}
	listener := Listen(port, "hello", func(err error) { t.Error(err) })
	for range 3 {
		accepted := make(chan net.Conn)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				t.Error(err)
			}
			accepted <- conn
		}()
		readGreeting(t, <-port.hosts)
		conn := <-accepted
		next := make(chan net.Conn, 1)
		go func() {
			conn, _ := listener.Accept()
			next <- conn
		}()
		select {
		case <-port.hosts:
			t.Fatal("a second connection was opened beside the first")
		case <-time.After(20 * time.Millisecond):
		}
		conn.Close()
		conn.Close() // a second close frees nothing twice
		readGreeting(t, <-port.hosts)
		(<-next).Close()
	}
}

func TestAPortThatFailsIsTriedAgainAndToldOnce(t *testing.T) {
	told := 0
	port := &fakePort{hosts: make(chan net.Conn, 1), failures: 3}
	listener := Listen(port, "hello", func(error) { told++ })
	go func() { readGreeting(t, <-port.hosts) }()
	conn, err := listener.Accept()
	if err != nil || told != 1 {
		t.Fatalf("%v, told %d times", err, told)
	}
	conn.Close()
}

func TestAHostThatLeavesBeforeItsGreetingIsFollowedByTheNext(t *testing.T) {
	port := &fakePort{hosts: make(chan net.Conn, 1)}
	listener := Listen(port, "hello", func(error) {})
	go func() {
		(<-port.hosts).Close()
		readGreeting(t, <-port.hosts)
	}()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestAClosedListenerAcceptsNothing(t *testing.T) {
	listener := Listen(&fakePort{failures: 1 << 30}, "hello", func(error) {})
	time.AfterFunc(10*time.Millisecond, func() { listener.Close() })
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
