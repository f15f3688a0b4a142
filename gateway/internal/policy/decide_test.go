package policy

import (
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func parse(t testing.TB, text string) Set {
	t.Helper()
	var set Set
	if err := json.Unmarshal([]byte(text), &set); err != nil {
		t.Fatal(err)
	}
	return set
}

const webPorts = `"ports":[{"from":80,"to":80},{"from":443,"to":443}]`

func TestNames(t *testing.T) {
	set := parse(t, `[{"egress":"allowlist","allow":[{"host":"pypi.org",`+webPorts+`},{"host":"*.npmjs.org",`+webPorts+`},
		{"host":"git.example","ports":[{"from":22,"to":22}]},{"cidr":"45.33.0.0/16",`+webPorts+`}],
		"deny":[{"host":"bad.npmjs.org","ports":[{"from":1,"to":65535}]},{"host":"*.half.npmjs.org","ports":[{"from":443,"to":443}]}]}]`)
	for _, c := range []struct {
		name string
		port uint16
		want Reason
	}{
		{"pypi.org", 443, Allowed}, {"pypi.org", 80, Allowed}, {"pypi.org", 8080, NotAllowed}, {"xpypi.org", 443, NotAllowed},
		{"a.pypi.org", 443, NotAllowed}, {"pypi.org.evil.example", 443, NotAllowed},
		{"npmjs.org", 443, NotAllowed}, {"a.npmjs.org", 443, Allowed}, {"a.b.c.npmjs.org", 443, Allowed}, {"anpmjs.org", 443, NotAllowed},
		{"bad.npmjs.org", 443, Denied}, {"x.bad.npmjs.org", 443, Allowed},
		{"x.half.npmjs.org", 443, Denied}, {"x.half.npmjs.org", 80, Allowed}, {"half.npmjs.org", 443, Allowed},
		{"git.example", 22, Allowed}, {"git.example", 443, NotAllowed},
	} {
		if got := set.Name(c.name, c.port); got != c.want {
			t.Errorf("%s:%d is %q, not %q", c.name, c.port, got, c.want)
		}
	}
	for name, want := range map[string]Reason{"git.example": Allowed, "bad.npmjs.org": Denied, "x.half.npmjs.org": Allowed, "evil.example": NotAllowed} {
		if got := set.Lookup(name); got != want {
			t.Errorf("look-up of %s is %q, not %q", name, got, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	set := parse(t, `[{"egress":"allowlist","allow":[{"cidr":"255.255.255.0/24",`+webPorts+`},{"cidr":"8.8.0.0/16",`+webPorts+`},{"cidr":"2600::/16",`+webPorts+`}],
		"deny":[{"cidr":"8.8.8.0/24","ports":[{"from":443,"to":443}]}]}]`)
	for _, c := range []struct {
		address string
		port    uint16
		want    Reason
	}{
		{"255.255.255.255", 443, Allowed}, {"255.255.254.255", 443, NotAllowed}, {"8.8.4.4", 80, Allowed}, {"::ffff:8.8.4.4", 80, Allowed},
		{"8.8.8.8", 443, Denied}, {"8.8.8.8", 80, Allowed}, {"::ffff:8.8.8.8", 443, Denied}, {"64:ff9b::808:808", 443, Denied},
		{"2600::1", 443, Allowed}, {"2601::1", 443, NotAllowed},
	} {
		if got := set.Address(netip.MustParseAddr(c.address), c.port); got != c.want {
			t.Errorf("%s:%d is %q, not %q", c.address, c.port, got, c.want)
		}
	}
	whole := parse(t, `[{"egress":"allowlist","allow":[{"cidr":"0.0.0.0/0","ports":[{"from":1,"to":65535}]}],"deny":[]}]`)
	for _, address := range []string{"0.0.0.0", "255.255.255.255", "1.2.3.4"} {
		if got := whole.Address(netip.MustParseAddr(address), 65535); got != Allowed {
			t.Errorf("%s is %q", address, got)
		}
	}
}

func TestEveryPolicyMustAllow(t *testing.T) {
	own := `{"egress":"allowlist","allow":[{"host":"*.example",` + webPorts + `}],"deny":[]}`
	for ceiling, want := range map[string]Reason{
		`{"egress":"internet","allow":[],"deny":[]}`:                                       Allowed,
		`{"egress":"internet","allow":[],"deny":[{"host":"a.example",` + webPorts + `}]}`:  Denied,
		`{"egress":"none","allow":[],"deny":[]}`:                                           NotAllowed,
		`{"egress":"allowlist","allow":[{"host":"a.example",` + webPorts + `}],"deny":[]}`: Allowed,
		`{"egress":"allowlist","allow":[{"host":"b.example",` + webPorts + `}],"deny":[]}`: NotAllowed,
		`{"egress":"none","allow":[{"host":"a.example",` + webPorts + `}],"deny":[]}`:      NotAllowed,
		`{"egress":"internet","allow":[],"deny":[{"cidr":"0.0.0.0/0",` + webPorts + `}]}`:  Allowed, // judged once the address is known
		`{"egress":"allowlist","allow":[{"cidr":"0.0.0.0/0",` + webPorts + `}],"deny":[]}`: NotAllowed,
	} {
		set := parse(t, `[`+own+`,`+ceiling+`]`)
		if got := set.Name("a.example", 443); got != want {
			t.Errorf("%s: %q, not %q", ceiling, got, want)
		}
		if got := set.Lookup("a.example"); got != want {
			t.Errorf("%s: look-up %q, not %q", ceiling, got, want)
		}
	}
	if got := (Set{}).Name("a.example", 443); got != NotAllowed {
		t.Errorf("no policy: %q", got)
	}
}

// A name has an address if and only if one of its ports may be reached.
func TestLookupAgreesWithConnections(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	hosts := []string{"a.example", "*.example", "b.example"}
	ports := []uint16{1, 2, 3, 79, 80, 81, 443, 444, 65_534, 65_535}
	rules := func() []Rule {
		list := make([]Rule, random.IntN(4))
		for i := range list {
			from, to := ports[random.IntN(len(ports))], ports[random.IntN(len(ports))]
			again := ports[random.IntN(len(ports))]
			list[i] = Rule{Host: hosts[random.IntN(len(hosts))], Ports: inOrder([]PortRange{{min(from, to), max(from, to)}, {again, again}})}
		}
		return list
	}
	for range 100 {
		set := make(Set, 1+random.IntN(3))
		for i := range set {
			set[i] = Policy{Egress: []Egress{None, Allowlist, Allowlist, Allowlist, Internet}[random.IntN(5)], Allow: rules(), Deny: rules()}
		}
		reachable := false
		for port := 1; port <= 65_535 && !reachable; port++ {
			reachable = set.Name("a.example", uint16(port)) == Allowed
		}
		if got := set.Lookup("a.example"); (got == Allowed) != reachable {
			t.Fatalf("look-up %q, reachable %t: %+v", got, reachable, set)
		}
	}
}

func TestNamesThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		"PyPI.org": "pypi.org", "pypi.org.": "pypi.org", "_dmarc.x-y.org": "_dmarc.x-y.org", "xn--bcher-kva.example": "xn--bcher-kva.example", "localhost": "localhost",
		"": "", ".": "", "..": "", "a..b": "", ".a": "", "a b": "", "a\x00b": "", "bücher.example": "", "*.a": "", "a/b": "", "a:80": "",
		"127.0.0.1": "", "2130706433": "", "0x7f000001": "", "1.0x7f": "", "::1": "", "[::1]": "", "a.1": "",
	} {
		if got, ok := Name(text); got != want || ok != (want != "") {
			t.Errorf("%q is %q, not %q", text, got, want)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, seed := range []string{"a.example", "*.a", "0x7f.1", "a..b", "xn--a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, ok := Name(text)
		if again, stable := Name(name); ok && (!stable || again != name) {
			t.Fatalf("%q becomes %q, then %q", text, name, again)
		}
		if _, err := netip.ParseAddr(name); ok && err == nil {
			t.Fatalf("%q is an address", text)
		}
	})
}

func BenchmarkName(b *testing.B) {
	rules := make([]Rule, MaxRules)
	for i := range rules {
		rules[i] = Rule{Host: "*.of-" + string(rune('a'+i%26)) + ".example", Ports: []PortRange{{80, 80}, {443, 443}}}
	}
	set := Set{{Egress: Allowlist, Allow: rules}, {Egress: Allowlist, Allow: rules}}
	for _, name := range []string{"www.of-z.example", "www.not-there.example"} {
		b.Run("connect "+name, func(b *testing.B) {
			for range b.N {
				set.Name(name, 443)
			}
		})
		b.Run("look up "+name, func(b *testing.B) {
			for range b.N {
				set.Lookup(name)
			}
		})
	}
}

// BenchmarkLookupOffTheWeb looks up names that are allowed on neither 80 nor 443.
func BenchmarkLookupOffTheWeb(b *testing.B) {
	scattered := make([]Rule, MaxRules)
	for i := range scattered {
		scattered[i] = Rule{Host: "*.scattered.example"}
		for port := range maxPorts {
			from := uint16(1 + 256*((port*37+i)%200) + i%200)
			scattered[i].Ports = append(scattered[i].Ports, PortRange{from, from})
		}
		slices.SortFunc(scattered[i].Ports, func(a, b PortRange) int { return int(a.From) - int(b.From) })
	}
	one := []Rule{{Host: "db.example", Ports: []PortRange{{5432, 5432}}}}
	for name, allow := range map[string][]Rule{"db.example": one, "www.scattered.example": scattered} {
		set := Set{{Egress: Allowlist, Allow: allow}, {Egress: Allowlist, Allow: allow, Deny: allow}}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				set.Lookup(name)
			}
		})
	}
}
