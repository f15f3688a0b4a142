package main

import (
	"bytes"
	"net/http"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func TestGateway(t *testing.T) {
	r := start(t)
	r.dns.Set("good.test", shared)
	r.dns.Set("evil.test", shared)
	r.dns.Set("one.wild.test", shared)
	r.dns.Set("six.test", sixth)
	descriptors := r.descriptors(t)
	t.Run("unprivileged", func(t *testing.T) { unprivileged(t, r) })
	for _, part := range []struct {
		name string
		test func(*testing.T, *rig)
	}{
		{"look-ups", lookUps},
		{"TLS names", tlsNames},
		{"HTTP names", httpNames},
		{"addresses", addresses},
		{"internet", everything},
		{"opaque protocols", opaque},
		{"limits", limits},
		{"rates", rates},
		{"changes", changes},
		{"slots", slots},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, r) })
	}
	// Of a VM that is gone nothing is left.
	r.attach(t, allowing())
	r.call(t, "DELETE", "/vms/"+vmID, nil, http.StatusOK)
	until(t, "no descriptor is left", func() bool { return r.descriptors(t) <= descriptors })
}

func lookUps(t *testing.T, r *rig) {
	r.attach(t, allowing("good.test", "*.wild.test"))
	for _, network := range []string{"udp", "tcp"} {
		answer := r.Query(t, network, "8.8.8.8:53", "Good.test", dnsmessage.TypeA)
		if len(answer.Answers) != 1 {
			t.Fatalf("%s: %s", network, answer.GoString())
		}
		address := netip.AddrFrom4(answer.Answers[0].Body.(*dnsmessage.AResource).A)
		if !netip.MustParsePrefix("198.18.0.0/15").Contains(address) || address.String() != r.lookUp(t, "good.test") {
			t.Fatalf("good.test is %s", address)
		}
		for _, kind := range []dnsmessage.Type{dnsmessage.TypeAAAA, 65, dnsmessage.TypeMX, dnsmessage.TypeTXT} {
			if answer := r.Query(t, network, "192.0.0.1:53", "good.test", kind); answer.RCode != 0 || len(answer.Answers) != 0 {
				t.Fatalf("type %d: %s", kind, answer.GoString())
			}
		}
		for _, name := range []string{"evil.test", "wild.test", "xgood.test", "secret.good.test"} {
			answer := r.Query(t, network, "192.0.0.1:53", name, dnsmessage.TypeA)
			if answer.RCode != dnsmessage.RCodeNameError || len(answer.Answers) != 0 {
				t.Fatalf("%s: %s", name, answer.GoString())
			}
			options := answer.Additionals[0].Body.(*dnsmessage.OPTResource).Options
			if len(options) != 1 || options[0].Code != 15 || !bytes.Contains(options[0].Data, []byte("policy")) {
				t.Fatalf("%s: no extended error: %v", name, options)
			}
			r.refusedFor(t, name, "not_allowed")
		}
	}
	r.lookUp(t, "a.b.wild.test")
	if asked := r.dns.Asked(); len(asked) != 0 {
		t.Fatalf("queries left: %v", asked)
	}
}
