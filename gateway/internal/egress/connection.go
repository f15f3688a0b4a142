package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fuse/gateway/internal/journal"
	"fuse/gateway/internal/policy"
	"fuse/gateway/internal/synthetic"
)

// target is what the guest asked for: a name that it looked up, or an address of its own.
type target struct {
	name    string
	address netip.Addr
	port    uint16
}

func (t target) host() string {
	if t.name != "" {
		return t.name
	}
	return t.address.String()
}

// connection is one from a guest, until both of its sides are closed. Whatever a policy can forbid of it is kept, so that a new policy is applied to it.
type connection struct {
	gateway *Gateway
	vm      *VM
	guest   *net.TCPConn
	// Read from the guest and not yet sent on.
	pending []byte
	// What the first bytes took, until they are passed on.
	looked atomic.Int64
	// The server has said something before the guest has.
	serverFirst atomic.Bool
	began       time.Time
	ctx         context.Context
	cancel      context.CancelFunc

	mutex    sync.Mutex
	target   target
	real     netip.Addr
	look     look
	upstream []*net.TCPConn
	entry    *journal.Entry
	cutBy    string
	protocol journal.Protocol
}

// look is what is known of what a connection speaks.
type look struct {
	// taken: nothing gives a name that was not looked at, so a policy that denies names can let it be.
	taken bool
	// conforms: it would pass under an allow-list too.
	conforms bool
	// The name that TLS gave.
	name string
}

// refusal is why a connection does not get through.
type refusal struct {
	reason policy.Reason
	detail string
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %s", r.reason, r.detail) }

// ended is a connection that broke on its way: neither refused nor to be gone on with.
var ended = &refusal{}

func refuse(reason policy.Reason, format string, args ...any) *refusal {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}

// serve takes a connection from its guest to its end.
func (g *Gateway) serve(vm *VM, guest *net.TCPConn) {
	c := &connection{gateway: g, vm: vm, guest: guest, began: time.Now(), protocol: journal.TCP}
	c.ctx, c.cancel = context.WithCancel(vm.ctx)
	defer c.cancel()
	vm.add(c)
	defer vm.remove(c)
	defer c.forgetFirst()
	defer c.close()
	defer func() {
		// One guest must not end the gateway for all.
		if problem := recover(); problem != nil {
			g.logger.Error("a connection failed", "vm", vm.id, "problem", fmt.Sprintf("%.200v", problem))
		}
	}()
	asked, ok := destination(guest)
	if !ok {
		return
	}
	if r := c.identify(asked); r != nil {
		c.refuse(r)
		return
	}
	if r := c.carry(); r != nil {
		c.refuse(r)
	}
}

// identify finds what is meant and asks the policy.
func (c *connection) identify(asked netip.AddrPort) *refusal {
	t := target{address: asked.Addr(), port: asked.Port()}
	known := true
	if synthetic.Range.Contains(asked.Addr()) {
		t.name, known = c.vm.names.Name(asked.Addr())
	}
	// In this order: a policy that comes now either is the one asked here, or finds the target when it looks for what to cut.
	c.mutex.Lock()
	c.target = t
	c.mutex.Unlock()
	switch {
	case !known:
		return refuse(policy.UnknownAddress, "no name was given this address")
	case t.name != "":
		if reason := c.policies().Name(t.name, t.port); reason != policy.Allowed {
			return refuse(reason, "")
		}
	case c.gateway.forbidden(t.address):
		return refuse(policy.ForbiddenAddress, "")
	default:
		if reason := c.policies().Address(t.address, t.port); reason != policy.Allowed {
			return refuse(reason, "")
		}
	}
	return nil
}

func (c *connection) policies() policy.Set { return *c.vm.policies.Load() }

// inspected says whether what the connection speaks is looked at: its name must be the one looked up, or must not be a denied one.
func (c *connection) inspected() bool { return inspects(c.policies(), c.target) }

func inspects(policies policy.Set, t target) bool {
	return restricts(policies, t) || policies.DeniesNames()
}

// restricts: what is spoken must name what was looked up.
func restricts(policies policy.Set, t target) bool { return t.name != "" && policies.Restrictive() }

// checkName judges a name that TLS or HTTP gives; "" is none.
func (c *connection) checkName(given string) *refusal {
	policies := c.policies()
	name, _ := policy.Name(given)
	if name != "" && policies.DeniesName(name, c.target.port) {
		return refuse(policy.Denied, "asks for %.128s", name)
	}
	if !restricts(policies, c.target) {
		return nil
	}
	switch {
	case given == "":
		return refuse(policy.NoName, "")
	case name != c.target.name:
		return refuse(policy.NameMismatch, "asks for %.128q", given)
	default:
		return nil
	}
}

// recheck applies a policy that changed.
func (c *connection) recheck(policies policy.Set) {
	c.mutex.Lock()
	t, realAddress, look, carried := c.target, c.real, c.look, c.entry != nil
	c.mutex.Unlock()
	if t.port == 0 {
		return // not identified yet
	}
	var reason policy.Reason
	if t.name != "" {
		reason = policies.Name(t.name, t.port)
	} else {
		reason = policies.Address(t.address, t.port)
	}
	switch {
	case reason != policy.Allowed:
	case realAddress.IsValid() && policies.DeniesAddress(realAddress, t.port),
		look.name != "" && policies.DeniesName(look.name, t.port):
		reason = policy.Denied
	case carried && (restricts(policies, t) && !look.conforms || policies.DeniesNames() && !look.taken):
		reason = policy.NotAllowed
	default:
		return
	}
	c.cut(fmt.Sprintf("cut by a new policy: %s", reason))
}

// cut ends the connection at once, on both sides.
func (c *connection) cut(why string) {
	c.cancel()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.cutBy == "" {
		c.cutBy = why
	}
	reset(c.guest)
	for _, upstream := range c.upstream {
		reset(upstream)
	}
}

// own makes an upstream connection part of this one, so that it is cut with it.
func (c *connection) own(upstream *net.TCPConn) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.ctx.Err() != nil {
		reset(upstream)
		return false
	}
	c.upstream = append(c.upstream, upstream)
	return true
}

func (c *connection) disown(upstream *net.TCPConn) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for i, owned := range c.upstream {
		if owned == upstream {
			c.upstream = append(c.upstream[:i], c.upstream[i+1:]...)
			return
		}
	}
}

// close ends what is left; a side that has not been closed in order is reset.
func (c *connection) close() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	_ = c.guest.Close()
	for _, upstream := range c.upstream {
		_ = upstream.Close()
	}
	if c.entry != nil {
		c.entry.Close(c.cutBy)
	}
}

// refuse notes it and resets. What was cut meanwhile has failed because of that.
func (c *connection) refuse(r *refusal) {
	c.mutex.Lock()
	cutBy, subject, carried := c.cutBy, c.subject(), c.entry != nil
	c.mutex.Unlock()
	if c.vm.ctx.Err() == nil && r != ended && !(carried && cutBy != "") {
		if cutBy != "" {
			r = refuse(policy.NotAllowed, "%s", cutBy)
		}
		c.vm.journal.Refuse(subject, r.reason, r.detail)
	}
	c.cut("")
}

// subject is under the mutex.
func (c *connection) subject() journal.Subject {
	port := c.target.port
	subject := journal.Subject{Name: c.target.name, Port: &port, Protocol: c.protocol}
	switch {
	case c.real.IsValid():
		subject.Address = c.real.String()
	case c.target.name == "":
		subject.Address = c.target.address.String()
	}
	return subject
}

func (c *connection) speaks(protocol journal.Protocol) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.protocol = protocol
	if c.entry != nil {
		c.entry.Refine(protocol)
	}
}

// allow notes that the connection got through, once.
func (c *connection) allow() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.entry == nil {
		c.entry = c.vm.journal.Allow(c.subject(), c.began)
	}
}

// lookAtFirst counts bytes that are kept to be looked at.
func (c *connection) lookAtFirst(b []byte) bool {
	taken, ok := c.vm.takeHead(b)
	if ok {
		c.looked.Add(taken)
	}
	return ok
}

func (c *connection) forgetFirst() { c.vm.heads.give(c.looked.Swap(0)) }

// firstBytes counts what is read of the beginning of one side.
type firstBytes struct {
	of   *connection
	side io.Reader
}

func (f firstBytes) Read(b []byte) (int, error) {
	counted := f.side == io.Reader(f.of) && len(f.of.pending) > 0
	n, err := f.side.Read(b)
	if !counted && !f.of.lookAtFirst(b[:n]) {
		return 0, tooManyHeads
	}
	return n, err
}

// Read takes from the guest what was read ahead first.
func (c *connection) Read(b []byte) (int, error) {
	if len(c.pending) > 0 {
		n := copy(b, c.pending)
		c.pending = c.pending[n:]
		return n, nil
	}
	return c.guest.Read(b)
}
