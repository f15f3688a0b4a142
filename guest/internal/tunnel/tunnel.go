// Package tunnel carries TCP connections to servers on the machine's loopback. Each direction ends by itself, as it does in TCP; the end of
// the server's is told by a frame.
package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/frames"
)

const (
	maxTunnels  = 512
	connectWait = 10 * time.Second
	firstBytes  = 4 << 10
	maxBytes    = 64 << 10
)

// Tunnels bounds how many there are at a time.
type Tunnels struct{ open atomic.Int64 }

// Stream is the host's end: what is written is sent at the latest by Flush.
type Stream interface {
	io.Writer
	Flush() error
}

// Connect connects to a port of 127.0.0.1, or of ::1 when that refuses. The connection counts until it is closed.
func (t *Tunnels) Connect(ctx context.Context, port int) (*Connection, error) {
	if t.open.Add(1) > maxTunnels {
		t.open.Add(-1)
		return nil, fault.New(fault.Conflict, "there are %d tunnels already", maxTunnels).With("reason", "too_many_tunnels")
	}
	tcp, err := connect(ctx, port)
	if err != nil {
		t.open.Add(-1)
		return nil, err
	}
	return &Connection{tcp: tcp, tunnels: t}, nil
}

func connect(ctx context.Context, port int) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: connectWait}
	for _, address := range []string{"127.0.0.1", "::1"} {
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if err == nil {
			return conn.(*net.TCPConn), nil // of network tcp
		}
		if address == "127.0.0.1" && !errors.Is(err, unix.ECONNREFUSED) {
			return nil, fault.New(fault.Unavailable, "port %d does not answer: %v", port, err)
		}
	}
	return nil, fault.New(fault.Conflict, "nothing listens on port %d", port).With("reason", "connection_refused")
}

// Connection is one tunnel's connection to its server.
type Connection struct {
	tcp     *net.TCPConn
	tunnels *Tunnels
	closed  atomic.Bool
}

// Close ends the connection; what the server has not read yet still reaches it.
func (c *Connection) Close() {
	if !c.closed.Swap(true) {
		c.tcp.Close()
		c.tunnels.open.Add(-1)
	}
}

// Abort resets the connection.
func (c *Connection) Abort() {
	_ = c.tcp.SetLinger(0)
	c.Close()
}

// Carry carries bytes both ways until both sides have ended theirs (nil) or the connection is lost at either end; then it is closed or aborted.
func (c *Connection) Carry(in io.Reader, out Stream) error {
	sent := make(chan error, 1)
	go func() {
		err := c.send(in)
		if err != nil && !isServers(err) {
			c.Abort() // which ends receive
		}
		sent <- err
	}()
	err := c.receive(out)
	if err == nil {
		err = <-sent
	}
	if err != nil {
		c.Abort() // which ends send, unless it waits for the host, whose request the caller resets
		return err
	}
	c.Close()
	return nil
}

// serverError is a failure at the server's end: what it sent before can still be received.
type serverError struct{ error }

func isServers(err error) bool {
	var server serverError
	return errors.As(err, &server)
}

// send carries what the host sends to the server, to its end.
func (c *Connection) send(in io.Reader) error {
	buffer := make([]byte, firstBytes)
	for {
		n, err := in.Read(buffer)
		if n > 0 {
			if _, err := c.tcp.Write(buffer[:n]); err != nil {
				return serverError{err}
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if err := c.tcp.CloseWrite(); err != nil && !errors.Is(err, unix.ENOTCONN) {
				return serverError{err}
			}
			return nil
		case err != nil:
			return err
		case n == len(buffer) && n < maxBytes:
			buffer = make([]byte, maxBytes)
		}
	}
}

// receive carries what the server sends to the host, a frame a read, and tells its end.
func (c *Connection) receive(out Stream) error {
	buffer := make([]byte, frames.HeaderBytes+firstBytes)
	for {
		n, err := c.tcp.Read(buffer[frames.HeaderBytes:])
		kind := frames.Stdout
		if errors.Is(err, io.EOF) {
			kind = frames.StdinEnd
		} else if err != nil {
			return err
		}
		frames.AppendHeader(buffer[:0], kind, n)
		if _, err := out.Write(buffer[:frames.HeaderBytes+n]); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		if kind == frames.StdinEnd {
			return nil
		}
		if n == len(buffer)-frames.HeaderBytes && n < maxBytes {
			buffer = make([]byte, frames.HeaderBytes+maxBytes)
		}
	}
}
