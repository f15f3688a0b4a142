package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Neither side has said anything for so long.
	idleLimit   = 2 * time.Hour
	bufferBytes = 64 << 10
)

// Buffers are taken while there is something to read, so that silent connections have none.
var buffers = newBufferPool(bufferBytes)

// relay passes on in both directions until both have ended. A side that ends its own half keeps the other.
func (c *connection) relay(upstream *net.TCPConn) *refusal {
	var active atomic.Int64
	done := make(chan error, 2)
	go func() {
		done <- c.pass(upstream, c.guest, &active, c.takePending(), func(n int) { c.entry.Sent(n) })
	}()
	go func() { done <- c.pass(c.guest, upstream, &active, nil, func(n int) { c.entry.Received(n) }) }()
	for range 2 {
		if err := <-done; err != nil {
			c.cut("") // what has broken on one side is broken for the other
		}
	}
	return nil
}

func (c *connection) takePending() []byte {
	pending := c.pending
	c.pending = nil
	return pending
}

// pass copies from one socket to the other until the end of what there is, and then ends that half of the other.
func (c *connection) pass(to, from *net.TCPConn, active *atomic.Int64, first []byte, count func(int)) error {
	if len(first) > 0 {
		n, err := to.Write(first)
		count(n)
		if err != nil {
			return err
		}
		c.forgetFirst()
	}
	raw, err := from.SyscallConn()
	if err != nil {
		return err
	}
	for {
		active.Store(time.Now().UnixNano())
		buffer, n, err := c.readNext(from, raw, active)
		if n > 0 {
			if err = c.waitTurn(n); err == nil {
				n, err = to.Write((*buffer)[:n])
				count(n)
			}
		}
		if buffer != nil {
			buffers.put(c.vm, buffer)
		}
		if errors.Is(err, io.EOF) {
			return to.CloseWrite()
		}
		if err != nil {
			return err
		}
	}
}

// readNext waits until there is something, without a buffer.
func (c *connection) readNext(from *net.TCPConn, raw syscall.RawConn, active *atomic.Int64) (*[]byte, int, error) {
	for {
		idleAt := time.Unix(0, active.Load()).Add(idleLimit)
		if time.Now().After(idleAt) {
			return nil, 0, os.ErrDeadlineExceeded
		}
		_ = from.SetReadDeadline(idleAt)
		var buffer *[]byte
		var n int
		var readErr error
		err := raw.Read(func(fd uintptr) bool {
			buffer = buffers.get(c.vm)
			for {
				n, readErr = unix.Read(int(fd), *buffer)
				if readErr != unix.EINTR {
					break
				}
			}
			if readErr == unix.EAGAIN {
				buffers.put(c.vm, buffer)
				buffer = nil
				return false
			}
			return true
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue // the other direction may have been active meanwhile
		case err != nil:
			return buffer, 0, err
		case readErr != nil:
			return buffer, 0, readErr
		case n == 0:
			return buffer, 0, io.EOF
		default:
			return buffer, n, nil
		}
	}
}

// waitTurn keeps to the VM's rate.
func (c *connection) waitTurn(n int) error {
	for n > 0 {
		turn := min(n, minBurstBytes)
		if err := c.vm.bytes.WaitN(c.ctx, turn); err != nil {
			return err
		}
		n -= turn
	}
	return context.Cause(c.ctx)
}
