package egress

import (
	"errors"
	"net"
	"os"
	"time"

	"fuse/gateway/internal/journal"
	"fuse/gateway/internal/policy"
	"fuse/gateway/internal/sniff"
)

const handshakeLimit = 30 * time.Second

// carryTLS checks the name that the client gives, and passes on. The handshake stays between the two sides.
func (c *connection) carryTLS(upstream *net.TCPConn, inspected bool) *refusal {
	c.speaks(journal.TLS)
	_ = c.guest.SetReadDeadline(time.Now().Add(firstBytesLimit))
	hello, raw, err := sniff.ReadHello(firstBytes{c, c})
	_ = c.guest.SetReadDeadline(time.Time{})
	if errors.Is(err, tooManyHeads) {
		return tooManyHeads
	}
	if err != nil {
		if inspected {
			return refuse(policy.UnknownProtocol, "no ClientHello: %.100s", err.Error())
		}
		c.pending = append(raw, c.pending...)
		return c.carryAsIs(upstream, look{})
	}
	r := c.checkHello(hello)
	if r != nil {
		return r
	}
	upstream, r = c.connected(upstream)
	if r != nil {
		return r
	}
	c.passes(c.lookAt(hello))
	if !inspected {
		c.pending = append(raw, c.pending...)
		return c.relay(upstream)
	}
	if r := c.handshake(upstream, raw); r != nil {
		return r
	}
	return c.relay(upstream)
}

// checkHello: with Encrypted ClientHello a server reads another name than the one in clear, so under an allow-list it does not get through. What
// some clients send to look as if they used it cannot be told from it.
func (c *connection) checkHello(hello sniff.Hello) *refusal {
	if hello.Encrypted && restricts(c.policies(), c.target) {
		return refuse(policy.NoName, "Encrypted ClientHello may hide another name: switch it off in the client")
	}
	return c.checkName(hello.ServerName)
}

func (c *connection) lookAt(hello sniff.Hello) look {
	name, _ := policy.Name(hello.ServerName)
	return look{taken: true, conforms: name == c.target.name && !hello.Encrypted, name: name}
}

// handshake passes on the first flight of each side. Where the server asks for a second ClientHello, that must name the same host; the
// client is not listened to before the server has spoken.
func (c *connection) handshake(upstream *net.TCPConn, hello []byte) *refusal {
	if c.toUpstream(upstream, hello) != nil {
		return ended
	}
	c.forgetFirst()
	defer c.forgetFirst()
	_ = upstream.SetReadDeadline(time.Now().Add(handshakeLimit))
	retry, raw, err := sniff.ReadServerHello(firstBytes{c, upstream})
	_ = upstream.SetReadDeadline(time.Time{})
	if errors.Is(err, tooManyHeads) {
		return tooManyHeads
	}
	if c.toGuest(raw) != nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return ended
	}
	if err != nil || !retry {
		return nil // what the server says instead is between it and the client
	}
	_ = c.guest.SetReadDeadline(time.Now().Add(handshakeLimit))
	second, raw, err := sniff.ReadSecondHello(firstBytes{c, c})
	_ = c.guest.SetReadDeadline(time.Time{})
	if errors.Is(err, tooManyHeads) {
		return tooManyHeads
	}
	if err != nil {
		return refuse(policy.UnknownProtocol, "no second ClientHello: %.100s", err.Error())
	}
	if r := c.checkHello(second); r != nil {
		return r
	}
	if c.toUpstream(upstream, raw) != nil {
		return ended
	}
	return nil
}

func (c *connection) toUpstream(upstream *net.TCPConn, b []byte) error {
	n, err := upstream.Write(b)
	c.entry.Sent(n)
	return err
}

func (c *connection) toGuest(b []byte) error {
	n, err := c.guest.Write(b)
	c.entry.Received(n)
	return err
}
