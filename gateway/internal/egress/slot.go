package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fuse/gateway/internal/lookup"
)

// Listeners were made in a slot's namespace.
type Listeners struct {
	// Transparent: the local address of what it accepts is the one that the guest asked for.
	TCP    *net.TCPListener
	DNS    *net.UDPConn
	DNSTCP *net.TCPListener
}

func (l Listeners) Close() {
	_ = l.TCP.Close()
	_ = l.DNS.Close()
	_ = l.DNSTCP.Close()
}

// slot is where a VM's packets come from: who is attached to it is who sent them.
type slot struct {
	name      string
	gateway   *Gateway
	listeners Listeners
	vm        atomic.Pointer[VM]

	mutex       sync.Mutex
	closed      bool
	connections map[*net.TCPConn]struct{}
}

func (s *slot) start() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return net.ErrClosed // replaced already
	}
	s.connections = map[*net.TCPConn]struct{}{}
	go s.accept(s.listeners.TCP, func(vm *VM, guest *net.TCPConn) { s.gateway.serve(vm, guest) })
	go s.accept(s.listeners.DNSTCP, func(vm *VM, guest *net.TCPConn) { lookup.ServeTCP(guest, vm.answering) })
	go func() {
		if err := lookup.ServeUDP(s.listeners.DNS, s.names); err != nil {
			s.gateway.logger.Error("a slot's resolver has ended", "slot", s.name, "error", err.Error())
		}
	}()
	return nil
}

// names is who answers a look-up: the VM of this moment, as long as it does not ask faster than it may.
func (s *slot) names() lookup.Names {
	if vm := s.vm.Load(); vm != nil {
		return vm.answering()
	}
	return nil
}

func (s *slot) accept(listener *net.TCPListener, serve func(*VM, *net.TCPConn)) {
	for {
		guest, err := listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.gateway.logger.Warn("cannot accept", "slot", s.name, "error", err.Error())
			time.Sleep(50 * time.Millisecond)
			continue
		}
		vm := s.vm.Load()
		if vm == nil || !s.keep(guest) {
			reset(guest)
			continue
		}
		// A guest that connects faster than it may waits: the kernel holds what we have not accepted.
		_ = vm.accepts.Wait(vm.ctx)
		if !s.gateway.admit(vm) {
			vm.tooMany(guest)
			s.forget(guest)
			continue
		}
		go func() {
			defer s.forget(guest)
			defer vm.connecting.give(1)
			defer context.AfterFunc(vm.ctx, func() { reset(guest) })()
			serve(vm, guest)
		}()
	}
}

func (s *slot) keep(guest *net.TCPConn) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.closed {
		s.connections[guest] = struct{}{}
	}
	return !s.closed
}

func (s *slot) forget(guest *net.TCPConn) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.connections, guest)
}

func (s *slot) close() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.closed = true
	s.listeners.Close()
	for guest := range s.connections {
		reset(guest)
	}
}

// reset ends a connection at once, with RST.
func reset(connection *net.TCPConn) {
	_ = connection.SetLinger(0)
	_ = connection.Close()
}

func destination(guest *net.TCPConn) (netip.AddrPort, bool) {
	address, ok := guest.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, false
	}
	asked := address.AddrPort()
	return netip.AddrPortFrom(asked.Addr().Unmap(), asked.Port()), true
}

func (g *Gateway) admit(vm *VM) bool {
	return vm.connecting.take(1, int64(g.config.Load().MaxConnectionsPerVM))
}
