package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"fuse/gateway/internal/journal"
	"fuse/gateway/internal/lookup"
	"fuse/gateway/internal/policy"
	"fuse/gateway/internal/synthetic"
)

const (
	connectsPerSecond = 1_000
	lookupsPerSecond  = 1_000
	maxResolving      = 32
	minBurstBytes     = 64 << 10
)

// VM is what the gateway knows of one: its policies, its names, its connections.
type VM struct {
	id       string
	slotName string // under the gateway's mutex

	ctx       context.Context
	cancel    context.CancelFunc
	policies  atomic.Pointer[policy.Set]
	names     *synthetic.Names
	journal   *journal.Journal
	accepts   *rate.Limiter
	lookups   *rate.Limiter
	bytes     *rate.Limiter
	resolving chan struct{}
	// Admitted connections, DNS over TCP too.
	connecting share
	// Those whose requests are parsed.
	proxied share
	// Heads and first bytes, by what they take; buffers in bytes; names; what the journal keeps.
	heads, buffers, named, noted share

	mutex       sync.Mutex
	connections map[*connection]struct{}
}

func newVM(id, slotName string, policies policy.Set, pools pools) *VM {
	vm := &VM{
		id: id, slotName: slotName,
		accepts: rate.NewLimiter(connectsPerSecond, connectsPerSecond), lookups: rate.NewLimiter(lookupsPerSecond, lookupsPerSecond),
		bytes: rate.NewLimiter(rate.Inf, minBurstBytes), resolving: make(chan struct{}, maxResolving),
		connecting: share{pool: pools.connections, certain: certainConnections},
		proxied:    share{pool: pools.proxies, certain: certainProxies},
		heads:      share{pool: pools.heads, certain: certainHeadBytes}, buffers: share{pool: pools.buffers},
		named:       share{pool: pools.names, certain: certainNames},
		noted:       share{pool: pools.entries, certain: certainEntries},
		connections: map[*connection]struct{}{},
	}
	vm.names = synthetic.New(func() bool { return vm.named.take(1, synthetic.MaxNames) })
	vm.journal = journal.New(func() bool { return vm.noted.take(1, journal.MaxEntries) })
	vm.ctx, vm.cancel = context.WithCancel(context.Background())
	vm.policies.Store(&policies)
	return vm
}

// limit sets how many bytes a second go through, both ways together; 0: no limit.
func (vm *VM) limit(bytesPerSecond int) {
	if bytesPerSecond == 0 {
		vm.bytes.SetLimit(rate.Inf)
		return
	}
	vm.bytes.SetBurst(max(bytesPerSecond/4, minBurstBytes))
	vm.bytes.SetLimit(rate.Limit(bytesPerSecond))
}

// answering is the VM, unless it asks faster than it may.
func (vm *VM) answering() lookup.Names {
	if !vm.lookups.Allow() {
		return nil
	}
	return vm
}

// Lookup is that of lookup.Names.
func (vm *VM) Lookup(name string) (netip.Addr, policy.Reason) {
	reason := vm.policies.Load().Lookup(name)
	var address netip.Addr
	if reason == policy.Allowed {
		var err error
		if address, err = vm.names.Address(name); errors.Is(err, synthetic.ErrTooMany) {
			reason = policy.TooMany
		}
	}
	if reason != policy.Allowed {
		vm.journal.Refuse(journal.Subject{Name: name, Protocol: journal.DNS}, reason, "")
	}
	return address, reason
}

func (vm *VM) add(c *connection) {
	vm.mutex.Lock()
	defer vm.mutex.Unlock()
	vm.connections[c] = struct{}{}
}

func (vm *VM) remove(c *connection) {
	vm.mutex.Lock()
	defer vm.mutex.Unlock()
	delete(vm.connections, c)
}

func (vm *VM) open() []*connection {
	vm.mutex.Lock()
	defer vm.mutex.Unlock()
	open := make([]*connection, 0, len(vm.connections))
	for c := range vm.connections {
		open = append(open, c)
	}
	return open
}

// recheck cuts what is not allowed any more.
func (vm *VM) recheck(policies policy.Set) {
	for _, c := range vm.open() {
		c.recheck(policies)
	}
}

func (vm *VM) cutAll(why string) {
	for _, c := range vm.open() {
		c.cut(why)
	}
}

func (vm *VM) end() {
	vm.cancel()
	vm.cutAll("the VM is gone")
	vm.named.end()
	vm.noted.end()
}

func (vm *VM) tooMany(guest *net.TCPConn) {
	subject := journal.Subject{Protocol: journal.TCP}
	if asked, ok := destination(guest); ok {
		subject.Port = portOf(asked)
		if subject.Name, ok = vm.names.Name(asked.Addr()); !ok {
			subject.Address = asked.Addr().String()
		}
	}
	vm.journal.Refuse(subject, policy.TooMany, "too many connections at a time")
	reset(guest)
}

func portOf(asked netip.AddrPort) *uint16 {
	port := asked.Port()
	return &port
}
