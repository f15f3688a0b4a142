package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func addresses(t *testing.T, r *rig) {
	r.attach(t, allowing("good.test", "*.rebind.test", "45.33.32.0/24@80", "0.0.0.0/0@81", "169.254.0.0/16@80"))
	if _, body, err := ask(t, r.reach(t, shared, 80), "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"); err != nil || !strings.Contains(body, "host=evil.test") {
		t.Fatalf("a range opens its addresses: %q %v", body, err)
	}
	for _, attempt := range []struct {
		address string
		port    int
		reason  string
	}{
		{shared, 443, "not_allowed"},
		{"198.18.77.77", 443, "unknown_address"},
		{other, 80, "forbidden_address"},       // named as the host's
		{"45.33.0.2", 81, "forbidden_address"}, // of the gateway's own interface
		{private, 81, "forbidden_address"},
		{metadata, 80, "forbidden_address"},
		{"192.0.0.1", 81, "forbidden_address"},
		{"255.255.255.254", 81, "forbidden_address"},
	} {
		r.refuses(t, attempt.address, attempt.port)
		if e := r.refusedFor(t, attempt.address, attempt.reason); e.Port == nil || *e.Port != attempt.port || e.Protocol != "tcp" {
			t.Fatalf("%+v", e)
		}
	}

	r.dns.Set("private.rebind.test", private)
	for name, records := range map[string][]string{
		"private.rebind.test":  {private},
		"metadata.rebind.test": {metadata},
		"loopback.rebind.test": {"127.0.0.1", "::1"},
		"mapped.rebind.test":   {"::ffff:169.254.169.254"},
		"nat64.rebind.test":    {"64:ff9b::a9fe:a9fe"},
		"6to4.rebind.test":     {"2002:a9fe:a9fe::1"},
		"ula.rebind.test":      {"fd00:ec2::254"},
		"host.rebind.test":     {other},
		"gateway.rebind.test":  {"2600:3c00::2"},
		"zero.rebind.test":     {"0.0.0.0", "::"},
		"alias.rebind.test":    {"private.rebind.test"},
	} {
		r.dns.Set(name, records...)
		connection := r.reach(t, name, 80)
		_, _ = io.WriteString(connection, "GET / HTTP/1.1\r\nHost: "+name+"\r\n\r\n")
		mustReset(t, connection)
		r.refusedFor(t, name, "forbidden_address")
	}

	// Of a mixed answer only what may be reached is.
	r.dns.Set("mixed.rebind.test", private, metadata, shared)
	if _, body, err := ask(t, r.reach(t, "mixed.rebind.test", 80), "GET / HTTP/1.1\r\nHost: mixed.rebind.test\r\n\r\n"); err != nil || body == "" {
		t.Fatalf("%q %v", body, err)
	}

	// The second look-up says something else.
	r.dns.Set("turns.rebind.test", shared)
	if _, _, err := ask(t, r.reach(t, "turns.rebind.test", 80), "GET / HTTP/1.1\r\nHost: turns.rebind.test\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r.dns.Set("turns.rebind.test", private)
	until(t, "the new address is seen", func() bool {
		connection := r.reach(t, "turns.rebind.test", 80)
		defer connection.Close()
		_, _, err := ask(t, connection, "GET / HTTP/1.1\r\nHost: turns.rebind.test\r\n\r\n")
		return err != nil
	})
	r.refusedFor(t, "turns.rebind.test", "forbidden_address")

	// The operator's word opens what is private, and never metadata.
	r.configure(t, []string{"10.0.0.0/8", "169.254.0.0/16", "0.0.0.0/0", "::/0"}, 40)
	r.attach(t, allowing("10.0.0.0/8@80", "169.254.0.0/16@80", "*.rebind.test"))
	if _, body, err := ask(t, r.reach(t, private, 80), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil || body == "" {
		t.Fatalf("%q %v", body, err)
	}
	r.refuses(t, metadata, 80)
	r.refusedFor(t, metadata, "forbidden_address")
	for _, name := range []string{"metadata.rebind.test", "mapped.rebind.test", "nat64.rebind.test", "6to4.rebind.test", "ula.rebind.test"} {
		connection := r.reach(t, name, 80)
		_, _ = io.WriteString(connection, "GET / HTTP/1.1\r\nHost: "+name+"\r\n\r\n")
		mustReset(t, connection)
		r.refusedFor(t, name, "forbidden_address")
	}
	r.configure(t, nil, 40)

	// Names without an address, and servers that do not answer.
	r.attach(t, allowing("good.test@81", "gone.test"))
	connection := r.reach(t, "gone.test", 80)
	_, _ = io.WriteString(connection, "GET / HTTP/1.1\r\nHost: gone.test\r\n\r\n")
	mustReset(t, connection)
	r.refusedFor(t, "gone.test", "unresolvable")
	r.refuses(t, "good.test", 81)
	if e := r.refusedFor(t, "good.test", "connect_failed"); e.Address != shared {
		t.Fatalf("%+v", e)
	}
}

func everything(t *testing.T, r *rig) {
	r.attach(t, internet("evil.test", "*.evil.test"))
	r.refuses(t, "unheard-of.test", 443)
	r.refusedFor(t, "unheard-of.test", "unresolvable")
	for _, target := range []string{"good.test", shared} {
		if got, err := handshake(r.reach(t, target, 443), "other.test"); err != nil || got != "other.test\n" {
			t.Fatalf("%s: %q %v", target, got, err)
		}
		if got, err := handshake(r.reach(t, target, 443), "sub.evil.test"); err == nil {
			t.Fatalf("%s: a denied name answered: %q", target, got)
		}
		r.refusedFor(t, target, "denied")
		connection := r.reach(t, target, 80)
		_, _ = io.WriteString(connection, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
		mustReset(t, connection)
		r.refusedFor(t, target, "denied")
	}
	// The ceiling counts as well.
	r.attach(t, append(internet(), allowing("good.test")...))
	r.call(t, "PUT", "/vms/"+vmID, object{"slot": slotName, "policies": append(internet("45.33.32.10/32"), internet()...)}, http.StatusNoContent)
	r.refuses(t, "good.test", 80)
	r.refusedFor(t, "good.test", "denied")
}
