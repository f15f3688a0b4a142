package egress

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"fuse/gateway/internal/journal"
	"fuse/gateway/internal/policy"
	"fuse/gateway/internal/sniff"
)

const (
	// On a port of TLS or HTTP the client speaks first. Browsers connect ahead of need; what is not needed is closed after this.
	preconnectLimit = time.Minute
	// Who has begun says within this what it wants.
	firstBytesLimit = 15 * time.Second
)

// carry looks at what is said first, connects, and passes on until the end.
func (c *connection) carry() *refusal {
	if c.mustSpeak() {
		return c.carryClientFirst()
	}
	return c.carryEitherFirst()
}

// mustSpeak: TLS or HTTP is expected, and anything else refused.
func (c *connection) mustSpeak() bool { return c.isWeb() && restricts(c.policies(), c.target) }

func (c *connection) isWeb() bool { return c.target.port == 80 || c.target.port == 443 }

// carryClientFirst asks nothing of the other side before the client has said who that is.
func (c *connection) carryClientFirst() *refusal {
	kind, err := c.peek(preconnectLimit, true)
	switch {
	case errors.Is(err, tooManyHeads):
		return tooManyHeads
	case err != nil && len(c.pending) == 0:
		return nil // nothing was asked of the other side
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(policy.UnknownProtocol, "the client did not say enough in time")
	case err != nil && !errors.Is(err, io.EOF):
		return nil
	}
	return c.carryKind(kind, nil)
}

// carryKind has upstream where it is connected already.
func (c *connection) carryKind(kind sniff.Kind, upstream *net.TCPConn) *refusal {
	inspected := c.inspected()
	switch kind {
	case sniff.TLS:
		return c.carryTLS(upstream, inspected)
	case sniff.HTTP:
		c.speaks(journal.HTTP)
		if inspected {
			return c.carryHTTP(upstream)
		}
		return c.carryAsIs(upstream, look{})
	case sniff.HTTP2:
		c.speaks(journal.HTTP)
		if inspected {
			return refuse(policy.UnknownProtocol, "HTTP/2 in clear")
		}
		return c.carryAsIs(upstream, look{})
	default:
		if c.mustSpeak() {
			return refuse(policy.UnknownProtocol, "neither TLS nor HTTP")
		}
		return c.carryAsIs(upstream, c.opaque())
	}
}

// opaque is the look at a protocol that gives no name.
func (c *connection) opaque() look { return look{taken: true, conforms: !c.isWeb()} }

// peek reads until it is known what is spoken. Who is patient waits after the first byte until that is sure; who is not takes what came with it.
func (c *connection) peek(wait time.Duration, patient bool) (sniff.Kind, error) {
	c.listen(wait)
	defer func() { _ = c.guest.SetReadDeadline(time.Time{}) }()
	buffer := make([]byte, 2048)
	for {
		n, err := c.guest.Read(buffer)
		if n > 0 && len(c.pending) == 0 {
			c.listen(firstBytesLimit)
		}
		if !c.lookAtFirst(buffer[:n]) {
			return sniff.Other, tooManyHeads
		}
		c.pending = append(c.pending, buffer[:n]...)
		if kind := sniff.First(c.pending); kind != sniff.NeedMore {
			return kind, nil
		}
		if err != nil || !patient {
			return sniff.Other, err
		}
	}
}

// listen sets how long the guest is waited for. When the server speaks meanwhile, the wait is over, in whatever order the two come.
func (c *connection) listen(wait time.Duration) {
	_ = c.guest.SetReadDeadline(time.Now().Add(wait))
	if c.serverFirst.Load() {
		_ = c.guest.SetReadDeadline(time.Unix(1, 0))
	}
}

// carryAsIs passes everything on.
func (c *connection) carryAsIs(upstream *net.TCPConn, l look) *refusal {
	upstream, r := c.connected(upstream)
	if r != nil {
		return r
	}
	c.passes(l)
	return c.relay(upstream)
}

// connected connects unless that has been done.
func (c *connection) connected(upstream *net.TCPConn) (*net.TCPConn, *refusal) {
	if upstream != nil {
		return upstream, nil
	}
	return c.connect()
}

// passes notes what was seen, and that the connection got through.
func (c *connection) passes(l look) {
	c.mutex.Lock()
	c.look = l
	c.mutex.Unlock()
	c.allow()
	// A policy that came after the look at what is spoken, and before this, has not seen it.
	c.recheck(c.policies())
}
