package egress

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"fuse/gateway/internal/policy"
)

// carryEitherFirst is for protocols in which the server may speak first. Once it has, it is none of those that give names, and everything passes. What the client says
// before that is looked at, however late it comes, and before it is sent on.
func (c *connection) carryEitherFirst() *refusal {
	upstream, r := c.connect()
	if r != nil {
		return r
	}
	serverSpoke := c.awaitServer(upstream)
	kind, err := c.peek(idleLimit, c.inspected())
	spoke := serverSpoke()
	switch {
	case errors.Is(err, tooManyHeads):
		return tooManyHeads
	case spoke:
		return c.carryAsIs(upstream, c.opaque())
	case err != nil && len(c.pending) == 0:
		return c.carryAsIs(upstream, c.opaque()) // it has ended its half, or broken: the same is done to the server
	case err != nil && c.inspected():
		return refuse(policy.UnknownProtocol, "the client did not say enough in time")
	default:
		return c.carryKind(kind, upstream)
	}
}

// awaitServer watches for the server's first byte, and ends the wait for the guest's when it comes. What it returns says whether there was one, and
// stops watching.
func (c *connection) awaitServer(upstream *net.TCPConn) (spoke func() bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if readable(upstream) {
			c.serverFirst.Store(true)
			_ = c.guest.SetReadDeadline(time.Unix(1, 0))
		}
	}()
	return func() bool {
		_ = upstream.SetReadDeadline(time.Unix(1, 0))
		<-done
		_ = upstream.SetReadDeadline(time.Time{})
		_ = c.guest.SetReadDeadline(time.Time{})
		return c.serverFirst.Load()
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
