package network

import "testing"

func TestSettingsThatAreNotLegalAreNamed(t *testing.T) {
	type given struct {
		mac, address string
		bits         int
		gateway      string
		mtu          int
	}
	legal := given{"02:fc:00:00:00:07", "192.0.0.2", 29, "192.0.0.1", 1500}
	if s, wrong := Parse(legal.mac, legal.address, legal.bits, legal.gateway, legal.mtu); wrong != "" || s.MAC.String() != legal.mac || s.MTU != 1500 {
		t.Errorf("%+v: %q", s, wrong)
	}
	for field, spoil := range map[string]func(*given){
		"mac":         func(g *given) { g.mac = "02:fc:00:00:00:00:00:07" },
		"address":     func(g *given) { g.address = "fe80::1" },
		"prefix_bits": func(g *given) { g.bits = 33 },
		"gateway":     func(g *given) { g.gateway = "" },
		"mtu":         func(g *given) { g.mtu = 68 },
	} {
		g := legal
		spoil(&g)
		if _, wrong := Parse(g.mac, g.address, g.bits, g.gateway, g.mtu); wrong != field {
			t.Errorf("%s: %q", field, wrong)
		}
	}
}

func TestMaskOfPrefix(t *testing.T) {
	if got := mask(29); got != [4]byte{255, 255, 255, 248} {
		t.Errorf("%v", got)
	}
}
