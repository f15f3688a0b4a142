package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"fuse/gateway/internal/policy"
	"fuse/gateway/internal/resolve"
)

const (
	connectLimit = 15 * time.Second
	// RFC 8305: the next address is tried when the one before has not answered for this long.
	nextAddressDelay = 250 * time.Millisecond
	keepAlive        = 30 * time.Second
	maxTried         = 8
)

// connect opens a connection to what the guest meant, and makes it part of this one. A name is resolved now, and each of its addresses judged.
func (c *connection) connect() (*net.TCPConn, *refusal) {
	ctx, cancel := context.WithTimeout(c.ctx, connectLimit)
	defer cancel()
	addresses := []netip.Addr{c.target.address}
	if c.target.name != "" {
		var r *refusal
		if addresses, r = c.resolve(ctx); r != nil {
			return nil, r
		}
	}
	upstream, address, err := dialFirst(ctx, addresses, c.target.port)
	if err != nil {
		if len(addresses) == 1 {
			c.connectsTo(addresses[0])
		}
		return nil, refuse(policy.ConnectFailed, "%.200s", plain(err))
	}
	c.connectsTo(address)
	if !c.own(upstream) {
		return nil, ended
	}
	// A policy that came during the resolution did not know the address.
	if c.policies().DeniesAddress(address, c.target.port) {
		return nil, refuse(policy.Denied, "")
	}
	return upstream, nil
}

func (c *connection) connectsTo(address netip.Addr) {
	c.mutex.Lock()
	c.real = address
	c.mutex.Unlock()
}

// resolve gives those of a name's addresses that may be connected to.
func (c *connection) resolve(ctx context.Context) ([]netip.Addr, *refusal) {
	select {
	case c.vm.resolving <- struct{}{}:
		defer func() { <-c.vm.resolving }()
	case <-ctx.Done():
		return nil, refuse(policy.Unresolvable, "too many look-ups at a time")
	}
	all, err := c.gateway.resolver.Addresses(ctx, c.target.name)
	if errors.Is(err, resolve.ErrNoAddress) {
		return nil, refuse(policy.Unresolvable, "")
	}
	if err != nil {
		return nil, refuse(policy.Unresolvable, "%.100s", plain(err))
	}
	var allowed []netip.Addr
	why := refuse(policy.Unresolvable, "")
	for _, address := range all {
		switch {
		case c.gateway.forbidden(address):
			c.connectsTo(address)
			why = refuse(policy.ForbiddenAddress, "")
		case c.policies().DeniesAddress(address, c.target.port):
			c.connectsTo(address)
			why = refuse(policy.Denied, "")
		default:
			allowed = append(allowed, address)
		}
	}
	if len(allowed) == 0 {
		return nil, why
	}
	return interleave(allowed), nil
}

// interleave alternates the families, IPv6 first, in the order of each.
func interleave(addresses []netip.Addr) []netip.Addr {
	var families [2][]netip.Addr
	for _, address := range addresses {
		family := 0
		if address.Unmap().Is4() {
			family = 1
		}
		families[family] = append(families[family], address.Unmap())
	}
	mixed := make([]netip.Addr, 0, len(addresses))
	for i := range max(len(families[0]), len(families[1])) {
		for _, family := range families {
			if i < len(family) {
				mixed = append(mixed, family[i])
			}
		}
	}
	return mixed[:min(len(mixed), maxTried)]
}

type dialed struct {
	connection *net.TCPConn
	address    netip.Addr
	err        error
}

// dialFirst tries the addresses, each beginning when the one before has failed or keeps us waiting, and takes the first that answers.
func dialFirst(ctx context.Context, addresses []netip.Addr, port uint16) (*net.TCPConn, netip.Addr, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan dialed, len(addresses))
	start := func(address netip.Addr) {
		go func() {
			connection, err := dial(ctx, netip.AddrPortFrom(address, port))
			results <- dialed{connection, address, err}
		}()
	}
	next, running := 0, 0
	delay := time.NewTimer(0)
	defer delay.Stop()
	err := errors.New("no address")
	for next < len(addresses) || running > 0 {
		select {
		case <-delay.C:
			if next < len(addresses) {
				start(addresses[next])
				next, running = next+1, running+1
				delay.Reset(nextAddressDelay)
			}
		case result := <-results:
			running--
			if result.err == nil {
				go closeLate(results, running)
				return result.connection, result.address, nil
			}
			err = result.err
			delay.Reset(0)
		}
	}
	return nil, netip.Addr{}, err
}

func closeLate(results <-chan dialed, running int) {
	for range running {
		if late := <-results; late.err == nil {
			reset(late.connection)
		}
	}
}

func dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	dialer := net.Dialer{KeepAlive: keepAlive}
	dialer.SetMultipathTCP(false)
	opened, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	connection, ok := opened.(*net.TCPConn)
	if !ok {
		_ = opened.Close()
		return nil, errors.New("not a TCP connection")
	}
	return connection, nil
}

// plain takes addresses and operations off an error, so that equal refusals look equal.
func plain(err error) string {
	var operation *net.OpError
	if errors.As(err, &operation) {
		err = operation.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return err.Error()
}
