package identity

import (
	"errors"
	"net/netip"

	"fuse/guest/internal/network"
	"fuse/guest/internal/protocol"
)

const (
	ResolverFile = "/etc/resolv.conf"
	NoResolver   = "# There is no network: nothing resolves.\n"
)

var usual = protocol.UsualNetwork

// parseNetwork is nil for a machine without a network.
func parseNetwork(given *protocol.Network) (*network.Settings, error) {
	if given == nil {
		return nil, nil
	}
	settings, wrong := network.Parse(given.MAC, given.Address, given.PrefixBits, given.Gateway, given.MTU)
	if wrong != "" {
		return nil, invalid("network."+wrong, "is not legal")
	}
	if _, err := netip.ParseAddr(given.Resolver); err != nil {
		return nil, invalid("network.resolver", "is not legal")
	}
	return &settings, nil
}

// ExpectNetwork is called once, at boot. What every machine with a card is given is set up then, and is part of its templates: the identity of a machine that wakes up in
// one brings another hardware address, and no more.
func (m *Machine) ExpectNetwork() error {
	card, err := network.Find()
	if errors.Is(err, network.ErrNoCard) {
		return nil
	}
	if err != nil {
		return err
	}
	m.card = card
	settings := network.Settings{
		Address: netip.MustParseAddr(usual.Address), PrefixBits: usual.PrefixBits, Gateway: netip.MustParseAddr(usual.Gateway), MTU: usual.MTU,
	}
	if err := card.Apply(settings); err != nil {
		return err
	}
	if err := writeResolver(usual.Resolver); err != nil {
		return err
	}
	m.isAsExpected = true
	return nil
}

// join puts the card and the resolver's file in order. A card that was there once and is not found any more was put away by the guest, whose business that is.
func (m *Machine) join(settings *network.Settings, given *protocol.Network) error {
	if m.card == nil {
		if settings == nil {
			return nil
		}
		return network.ErrNoCard
	}
	isAsExpected := m.isAsExpected
	m.isAsExpected = false // from here on the guest has it
	if settings == nil {
		if err := m.card.Down(); err != nil && !errors.Is(err, network.ErrNoCard) {
			return err
		}
		return WriteFile(ResolverFile, NoResolver)
	}
	if isAsExpected && isUsual(*given) {
		return m.card.SetMAC(settings.MAC)
	}
	if err := m.card.Apply(*settings); err != nil && !errors.Is(err, network.ErrNoCard) {
		return err
	}
	return writeResolver(given.Resolver)
}

func isUsual(given protocol.Network) bool {
	given.MAC = usual.MAC
	return given == usual
}

func writeResolver(address string) error {
	return WriteFile(ResolverFile, "nameserver "+address+"\n")
}
