package egress

import (
	"errors"
	"io"
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
	// Elsewhere the server may be waited for: who is silent for this long gets it connected, and is looked at when it speaks.
	silenceLimit = 200 * time.Millisecond
)

// carry looks at what the guest says first, connects, and passes on until the end.
func (c *connection) carry() *refusal {
	inspected := c.inspected()
	web := c.target.port == 80 || c.target.port == 443
	mustSpeak := web && restricts(c.policies(), c.target)
	wait := silenceLimit
	if mustSpeak {
		wait = preconnectLimit
	}
	kind, err := c.peek(wait)
	switch {
	case err != nil && len(c.pending) == 0 && mustSpeak:
		return nil // nothing was asked of the other side
	case errors.Is(err, os.ErrDeadlineExceeded) && len(c.pending) == 0:
		return c.carrySilent(inspected)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(policy.UnknownProtocol, "the client did not say enough in time")
	case err != nil && !errors.Is(err, io.EOF):
		return nil
	}
	switch kind {
	case sniff.TLS:
		return c.carryTLS(inspected)
	case sniff.HTTP:
		c.speaks(journal.HTTP)
		if inspected {
			return c.carryHTTP(nil)
		}
		return c.carryAsIs(look{})
	case sniff.HTTP2:
		c.speaks(journal.HTTP)
		if inspected {
			return refuse(policy.UnknownProtocol, "HTTP/2 in clear")
		}
		return c.carryAsIs(look{})
	default:
		if mustSpeak {
			return refuse(policy.UnknownProtocol, "neither TLS nor HTTP")
		}
		return c.carryAsIs(look{taken: true, conforms: !web})
	}
}

// peek reads until it is known what is spoken. After the first byte it waits as long as it takes to be sure.
func (c *connection) peek(wait time.Duration) (sniff.Kind, error) {
	_ = c.guest.SetReadDeadline(time.Now().Add(wait))
	defer func() { _ = c.guest.SetReadDeadline(time.Time{}) }()
	buffer := make([]byte, 2048)
	for {
		n, err := c.guest.Read(buffer)
		if n > 0 && len(c.pending) == 0 {
			_ = c.guest.SetReadDeadline(time.Now().Add(firstBytesLimit))
		}
		c.pending = append(c.pending, buffer[:n]...)
		if kind := sniff.First(c.pending); kind != sniff.NeedMore {
			return kind, nil
		}
		if err != nil {
			return sniff.Other, err
		}
	}
}

// carryAsIs passes everything on.
func (c *connection) carryAsIs(l look) *refusal {
	upstream, r := c.connect()
	if r != nil {
		return r
	}
	c.passes(l)
	return c.relay(upstream)
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
