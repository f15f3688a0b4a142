package egress

import (
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fuse/gateway/internal/journal"
	"fuse/gateway/internal/policy"
	"fuse/gateway/internal/sniff"
)

// carrySilent is for protocols in which the server may speak first. Once it has, it is none of those that give names, and everything passes. What the client says before
// that is looked at first, however late it comes.
func (c *connection) carrySilent(inspected bool) *refusal {
	if !inspected {
		return c.carryAsIs(look{})
	}
	upstream, r := c.connect()
	if r != nil {
		return r
	}
	c.passes(look{taken: true, conforms: true})
	spoke := c.awaitServer(upstream)
	kind, err := c.peek(idleLimit)
	if spoke() {
		return c.relay(upstream)
	}
	if err != nil && len(c.pending) == 0 {
		return c.relay(upstream) // it has ended its half, or broken: the same is done to the server
	}
	switch {
	case err != nil:
		return refuse(policy.UnknownProtocol, "the client did not say enough in time")
	case kind == sniff.TLS:
		return c.lateTLS(upstream)
	case kind == sniff.HTTP:
		return c.carryHTTP(upstream)
	case kind == sniff.HTTP2:
		return refuse(policy.UnknownProtocol, "HTTP/2 in clear")
	default:
		return c.relay(upstream)
	}
}

// awaitServer watches for the server's first byte, and ends the wait for the guest's when it comes. What it returns says whether there was one, and
// stops watching.
func (c *connection) awaitServer(upstream *net.TCPConn) (spoke func() bool) {
	var first atomic.Bool
	var ending atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		if readable(upstream) && !ending.Load() {
			first.Store(true)
			_ = c.guest.SetReadDeadline(time.Unix(1, 0))
		}
	}()
	return func() bool {
		ending.Store(true)
		_ = upstream.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = upstream.SetReadDeadline(time.Time{})
		_ = c.guest.SetReadDeadline(time.Time{})
		return first.Load()
	}
}

// readable waits until there is something to read, or the end, and takes nothing.
func readable(connection *net.TCPConn) bool {
	raw, err := connection.SyscallConn()
	if err != nil {
		return false
	}
	var one [1]byte
	err = raw.Read(func(fd uintptr) bool {
		_, _, peekErr := unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK)
		return peekErr != unix.EAGAIN && peekErr != unix.EINTR
	})
	return err == nil
}

// lateTLS is carryTLS with a connection that is there already.
func (c *connection) lateTLS(upstream *net.TCPConn) *refusal {
	c.speaks(journal.TLS)
	_ = c.guest.SetReadDeadline(time.Now().Add(firstBytesLimit))
	hello, raw, err := sniff.ReadHello(c)
	_ = c.guest.SetReadDeadline(time.Time{})
	if err != nil {
		return refuse(policy.UnknownProtocol, "no ClientHello: %.100s", err.Error())
	}
	if r := c.checkHello(hello); r != nil {
		return r
	}
	c.passes(c.lookAt(hello))
	if r := c.handshake(upstream, raw); r != nil {
		return r
	}
	return c.relay(upstream)
}
