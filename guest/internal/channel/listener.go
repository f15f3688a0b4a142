// Package channel carries HTTP/2 between host and guest: over a virtio-serial port, which has one connection at a time (Listener), or over vsock
// (VsockListener).
//
// Handshake of a port: for every connection of the host the guest opens its end afresh, which drops bytes of earlier ones, waits until the host
// is there, and writes the greeting. The host sends nothing before it has read the greeting. Bytes that are not HTTP/2 make the server close
// the connection, and the handshake starts again.
package channel

import (
	"errors"
	"net"
	"sync"
	"time"
)

const retryDelay = 20 * time.Millisecond

// Port is the guest's end of a channel that has one connection at a time: virtio-serial under QEMU.
type Port interface {
	// Connect opens the port afresh and returns once a host is connected to it.
	Connect() (net.Conn, error)
}

// Listener hands out the port's connections one after the other: Accept waits until the one before is closed.
type Listener struct {
	port     Port
	greeting []byte
	onError  func(error)
	free     chan struct{}
	done     chan struct{}
	stop     sync.Once
}

func Listen(port Port, greeting string, onError func(error)) *Listener {
	l := &Listener{
		port: port, greeting: []byte(greeting), onError: onError,
		free: make(chan struct{}, 1), done: make(chan struct{}),
	}
	l.free <- struct{}{}
	return l
}

func (l *Listener) Accept() (net.Conn, error) {
	select {
	case <-l.free:
	case <-l.done:
		return nil, net.ErrClosed
	}
	for failures := 0; ; failures++ {
		conn, err := l.greet()
		if err == nil {
			return &once{Conn: conn, release: func() { l.free <- struct{}{} }}, nil
		}
		if failures == 0 && !errors.Is(err, net.ErrClosed) {
			l.onError(err)
		}
		select {
		case <-time.After(retryDelay):
		case <-l.done:
			return nil, net.ErrClosed
		}
	}
}

func (l *Listener) greet() (net.Conn, error) {
	conn, err := l.port.Connect()
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(l.greeting); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func (l *Listener) Close() error {
	l.stop.Do(func() { close(l.done) })
	return nil
}

func (l *Listener) Addr() net.Addr { return Addr{} }

// Addr of either end: there is only one host and one guest.
type Addr struct{}

func (Addr) Network() string { return "fuse" }
func (Addr) String() string  { return "guest-channel" }

// once frees the listener's one place when it is closed first.
type once struct {
	net.Conn
	release func()
	closing sync.Once
}

func (c *once) Close() error {
	err := net.ErrClosed
	c.closing.Do(func() {
		err = c.Conn.Close()
		c.release()
	})
	return err
}
