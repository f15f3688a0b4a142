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

// join puts the card and the resolver's file in order. A card that was there once and is not found any more was put away by the guest, whose business that is.
func (m *Machine) join(card *network.Settings, given *protocol.Network) error {
	if card == nil {
		if err := network.Down(); err != nil || !m.networked {
			return err
		}
		return WriteFile(ResolverFile, NoResolver)
	}
	if err := network.Apply(*card); err != nil && !(m.networked && errors.Is(err, network.ErrNoCard)) {
		return err
	}
	m.networked = true
	return WriteFile(ResolverFile, "nameserver "+given.Resolver+"\n")
}
