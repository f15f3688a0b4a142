// Package egress takes what comes out of VMs: it holds slots and VMs, and each connection's way from the guest to the other side.
package egress

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"

	"fuse/gateway/internal/journal"
	"fuse/gateway/internal/policy"
	"fuse/gateway/internal/resolve"
)

var (
	ErrUnknownVM   = errors.New("no such VM is attached")
	ErrUnknownSlot = errors.New("no such slot was handed over")
	ErrSlotTaken   = errors.New("another VM is attached to this slot")
)

// Config is GatewayConfig of the host protocol, parsed.
type Config struct {
	Resolvers           []string
	PrivateAllow        []netip.Prefix
	HostAddresses       []netip.Prefix
	MaxConnectionsPerVM int
}

// Until the host agent has said otherwise nothing can be resolved.
var unconfigured = Config{MaxConnectionsPerVM: 64}

type Gateway struct {
	logger     *slog.Logger
	config     atomic.Pointer[Config]
	resolver   *resolve.Resolver
	interfaces *interfaces
	pools      pools

	mutex sync.Mutex
	slots map[string]*slot
	vms   map[string]*VM
}

// New makes a gateway whose VMs together have it hold about as many bytes, and no more connections.
func New(logger *slog.Logger, memoryBytes int64, connections int) (*Gateway, error) {
	interfaces, err := newInterfaces()
	if err != nil {
		return nil, err
	}
	g := &Gateway{
		logger: logger, resolver: resolve.New(), interfaces: interfaces, pools: newPools(memoryBytes, connections),
		slots: map[string]*slot{}, vms: map[string]*VM{},
	}
	g.config.Store(&unconfigured)
	return g, nil
}

// Configure counts for what comes next.
func (g *Gateway) Configure(config Config) {
	g.config.Store(&config)
	g.resolver.Configure(config.Resolvers)
}

// AddSlot takes over the listeners of a slot, in place of those that it had.
func (g *Gateway) AddSlot(name string, listeners Listeners) error {
	s := &slot{name: name, gateway: g, listeners: listeners}
	g.mutex.Lock()
	old := g.slots[name]
	g.slots[name] = s
	for _, vm := range g.vms {
		if vm.slotName == name {
			s.vm.Store(vm)
		}
	}
	g.mutex.Unlock()
	if old != nil {
		old.close()
	}
	return s.start()
}

// RemoveSlot closes its listeners and cuts the connections that came by them. A VM stays attached until it is removed itself.
func (g *Gateway) RemoveSlot(name string) {
	g.mutex.Lock()
	s := g.slots[name]
	delete(g.slots, name)
	g.mutex.Unlock()
	if s != nil {
		s.close()
	}
}

// Attach makes a slot a VM's. Of one that is attached it changes the policies, cuts what they do not allow, and keeps names and journal; in
// another slot its connections are cut.
func (g *Gateway) Attach(id, slotName string, policies policy.Set, bytesPerSecond int) error {
	g.mutex.Lock()
	s, ok := g.slots[slotName]
	if !ok {
		g.mutex.Unlock()
		return ErrUnknownSlot
	}
	if other := s.vm.Load(); other != nil && other.id != id {
		g.mutex.Unlock()
		return fmt.Errorf("%w: %s", ErrSlotTaken, other.id)
	}
	vm := g.vms[id]
	moved := false
	if vm == nil {
		vm = newVM(id, slotName, policies, g.pools)
		g.vms[id] = vm
	} else if vm.slotName != slotName {
		if old := g.slots[vm.slotName]; old != nil {
			old.vm.CompareAndSwap(vm, nil)
		}
		vm.slotName = slotName
		moved = true
	}
	vm.limit(bytesPerSecond)
	vm.policies.Store(&policies)
	s.vm.Store(vm)
	g.mutex.Unlock()
	if moved {
		vm.cutAll("the VM moved to another slot")
	} else {
		vm.recheck(policies)
	}
	return nil
}

// Detach ends everything of a VM and gives its last sums.
func (g *Gateway) Detach(id string) (Report, error) {
	g.mutex.Lock()
	vm := g.vms[id]
	if vm == nil {
		g.mutex.Unlock()
		return Report{}, ErrUnknownVM
	}
	delete(g.vms, id)
	if s := g.slots[vm.slotName]; s != nil {
		s.vm.CompareAndSwap(vm, nil)
	}
	slotName := vm.slotName
	g.mutex.Unlock()
	vm.end()
	return Report{vm.id, slotName, vm.journal.Totals()}, nil
}

// Report is GatewayTotals of the host protocol.
type Report struct {
	ID   string `json:"id"`
	Slot string `json:"slot"`
	journal.Totals
}

func (g *Gateway) Reports() []Report {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	reports := make([]Report, 0, len(g.vms))
	for _, vm := range g.vms {
		reports = append(reports, Report{vm.id, vm.slotName, vm.journal.Totals()})
	}
	return reports
}

// Details is GatewayReport of the host protocol.
type Details struct {
	Report
	Policies    policy.Set           `json:"policies"`
	Connections []journal.Connection `json:"connections"`
}

func (g *Gateway) Details(id string) (Details, error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	vm := g.vms[id]
	if vm == nil {
		return Details{}, ErrUnknownVM
	}
	return Details{Report{vm.id, vm.slotName, vm.journal.Totals()}, *vm.policies.Load(), vm.journal.Connections()}, nil
}

// Close ends everything.
func (g *Gateway) Close() {
	g.mutex.Lock()
	slots, vms := g.slots, g.vms
	g.slots, g.vms = map[string]*slot{}, map[string]*VM{}
	g.mutex.Unlock()
	for _, s := range slots {
		s.close()
	}
	for _, vm := range vms {
		vm.end()
	}
	g.interfaces.close()
}

// forbidden judges by what the operator configured and by the addresses of our own interfaces at this moment.
func (g *Gateway) forbidden(address netip.Addr) bool {
	config := g.config.Load()
	return policy.Forbidden(address, config.PrivateAllow, config.HostAddresses) ||
		policy.Forbidden(address, config.PrivateAllow, g.interfaces.prefixes())
}
