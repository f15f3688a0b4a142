package server

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/frames"
)

// server answers each connection to a port of the loopback.
func serve(t *testing.T, address string, answer func(*net.TCPConn)) int {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go answer(conn.(*net.TCPConn))
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// tunneled is the host's end of a tunnel.
type tunneled struct {
	up     *io.PipeWriter
	frames *frames.Reader
	body   io.Closer
}

func (g *guest) tunnel(port int) *tunneled {
	g.Helper()
	reader, writer := io.Pipe()
	request, err := http.NewRequest("POST", fmt.Sprintf("http://guest/v1/tunnels?port=%d", port), reader)
	if err != nil {
		g.Fatal(err)
	}
	response, err := g.client.Do(request)
	if err != nil {
		g.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		g.Fatalf("%d %s", response.StatusCode, text)
	}
	g.Cleanup(func() { response.Body.Close() })
	return &tunneled{up: writer, frames: frames.NewReader(response.Body), body: response.Body}
}

// received reads what the server says to the end of its side.
func (c *tunneled) received() ([]byte, error) {
	var all []byte
	for {
		kind, _, err := c.frames.Next()
		if err != nil {
			return all, err
		}
		payload, err := c.frames.Payload(frames.MaxPayloadBytes)
		if err != nil {
			return all, err
		}
		if kind == frames.StdinEnd {
			return all, nil
		}
		all = append(all, payload...)
	}
}

func TestATunnelReachesTheLoopbackOfBothFamilies(t *testing.T) {
	g := newGuest(t)
	for _, address := range []string{"127.0.0.1", "::1"} {
		port := serve(t, address, func(conn *net.TCPConn) {
			fmt.Fprintf(conn, "from %s", conn.LocalAddr())
			conn.Close()
		})
		c := g.tunnel(port)
		got, err := c.received()
		if err != nil || !strings.Contains(string(got), address) {
			t.Errorf("%q, %v", got, err)
		}
		c.up.Close()
		if _, _, err := c.frames.Next(); err != io.EOF {
			t.Errorf("the end: %v", err)
		}
	}
}

func TestATunnelIsByteIdenticalBothWaysAtOnce(t *testing.T) {
	g := newGuest(t)
	port := serve(t, "127.0.0.1", func(conn *net.TCPConn) {
		io.Copy(conn, conn)
		conn.Close()
	})
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			input := make([]byte, 2<<20)
			rand.Read(input)
			c := g.tunnel(port)
			go func() {
				for at, size := 0, 1; at < len(input); at, size = at+size, size*7%50_000+1 {
					if _, err := c.up.Write(input[at:min(at+size, len(input))]); err != nil {
						return
					}
				}
				c.up.Close()
			}()
			if got, err := c.received(); err != nil || !bytes.Equal(got, input) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		}()
	}
	all.Wait()
}

func TestEachSideOfATunnelEndsByItself(t *testing.T) {
	g := newGuest(t)
	heard := make(chan []byte, 1)
	port := serve(t, "127.0.0.1", func(conn *net.TCPConn) {
		io.WriteString(conn, "that is all")
		conn.CloseWrite()
		all, _ := io.ReadAll(conn)
		heard <- all
		conn.Close()
	})
	c := g.tunnel(port)
	if got, err := c.received(); err != nil || string(got) != "that is all" {
		t.Fatalf("%q, %v", got, err)
	}
	long := make([]byte, 1<<20) // after the server has ended its side
	rand.Read(long)
	if _, err := c.up.Write(long); err != nil {
		t.Fatal(err)
	}
	c.up.Close()
	if got := <-heard; !bytes.Equal(got, long) {
		t.Errorf("%d bytes arrived", len(got))
	}
	if _, _, err := c.frames.Next(); err != io.EOF {
		t.Errorf("the end: %v", err)
	}

	port = serve(t, "127.0.0.1", func(conn *net.TCPConn) {
		all, _ := io.ReadAll(conn) // to the host's end, before it answers
		fmt.Fprintf(conn, "%d bytes", len(all))
		conn.Close()
	})
	c = g.tunnel(port)
	c.up.Write(long)
	c.up.Close()
	if got, err := c.received(); err != nil || string(got) != "1048576 bytes" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAResetIsAnAbortEitherWay(t *testing.T) {
	g := newGuest(t)
	ended := make(chan error, 1)
	port := serve(t, "127.0.0.1", func(conn *net.TCPConn) {
		io.WriteString(conn, "hello")
		_, err := io.Copy(io.Discard, conn)
		ended <- err
		conn.Close()
	})
	c := g.tunnel(port)
	if _, _, err := c.frames.Next(); err != nil {
		t.Fatal(err)
	}
	c.body.Close()
	if err := <-ended; !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the server saw %v", err)
	}

	port = serve(t, "127.0.0.1", func(conn *net.TCPConn) {
		io.WriteString(conn, "hello")
		time.Sleep(50 * time.Millisecond)
		conn.SetLinger(0)
		conn.Close()
	})
	c = g.tunnel(port)
	if got, err := c.received(); err == nil || errors.Is(err, io.EOF) || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAnAnswerOfAServerThatReadsNoMoreStillComes(t *testing.T) {
	g := newGuest(t)
	port := serve(t, "127.0.0.1", func(conn *net.TCPConn) {
		io.WriteString(conn, "too large")
		conn.CloseRead()
		conn.CloseWrite()
		time.Sleep(100 * time.Millisecond)
		conn.Close()
	})
	c := g.tunnel(port)
	go func() {
		for {
			if _, err := c.up.Write(make([]byte, 100_000)); err != nil {
				return
			}
		}
	}()
	if got, err := c.received(); err != nil || string(got) != "too large" {
		t.Errorf("%q, %v", got, err)
	}
	if _, _, err := c.frames.Next(); err == nil || err == io.EOF {
		t.Errorf("what was written in vain is not told: %v", err)
	}
}

func TestTunnelsThatCannotBeAreRefused(t *testing.T) {
	g := newGuest(t)
	for _, query := range []string{"", "?port=0", "?port=65536", "?port=-1", "?port=x", "?port=%zz"} {
		g.refused(fault.InvalidArgument, "POST", "/v1/tunnels"+query, nil)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	if e := g.refused(fault.Conflict, "POST", fmt.Sprintf("/v1/tunnels?port=%d", port), nil); e.Details["reason"] != "connection_refused" {
		t.Errorf("%+v", e)
	}
}

func TestTunnelsAreBoundedAndLeaveNothing(t *testing.T) {
	g := newGuest(t)
	port := serve(t, "127.0.0.1", func(conn *net.TCPConn) {
		io.Copy(io.Discard, conn)
		conn.Close()
	})
	open := []*tunneled{}
	for range 512 {
		open = append(open, g.tunnel(port))
	}
	if e := g.refused(fault.Conflict, "POST", fmt.Sprintf("/v1/tunnels?port=%d", port), nil); e.Details["reason"] != "too_many_tunnels" {
		t.Errorf("%+v", e)
	}
	for _, each := range open {
		each.body.Close()
	}
	for deadline := time.Now().Add(20 * time.Second); descriptors(t) > 60; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors", descriptors(t))
		}
	}
	c := g.tunnel(port)
	c.up.Close()
	if _, err := c.received(); err != nil {
		t.Error(err)
	}
}

func FuzzPortQuery(f *testing.F) {
	for _, seed := range []string{"port=80", "port=0", "port=65536", "", "port=%38", "port=+80", "port=1&port=2", "%zz"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if port, err := portQuery(text); err == nil && (port < 1 || port > 65_535) {
			t.Errorf("%q: %d", text, port)
		}
	})
}
