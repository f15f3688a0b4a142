package policy

import "net/netip"

// Reason is one of refusalReasons in the contract; "" is none.
type Reason string

const (
	Allowed          Reason = ""
	NotAllowed       Reason = "not_allowed"
	Denied           Reason = "denied"
	ForbiddenAddress Reason = "forbidden_address"
	NameMismatch     Reason = "name_mismatch"
	NoName           Reason = "no_name"
	UnknownProtocol  Reason = "unknown_protocol"
	UnknownAddress   Reason = "unknown_address"
	Unresolvable     Reason = "unresolvable"
	ConnectFailed    Reason = "connect_failed"
	TooMany          Reason = "too_many"
)

// Set is what counts for one VM: all of its policies must allow. An empty set allows nothing.
type Set []Policy

// Name decides on a connection to a name that was looked up. Only rules that name hosts can allow it.
func (s Set) Name(name string, port uint16) Reason {
	if s.DeniesName(name, port) {
		return Denied
	}
	return s.everyPolicy(func(p Policy) bool {
		return p.Egress == Internet || p.Egress == Allowlist && anyRule(p.Allow, func(r Rule) bool {
			return r.matchesName(name) && r.matchesPort(port)
		})
	})
}

// Lookup decides whether a name has an address: it has if any port of it may be reached.
func (s Set) Lookup(name string) Reason {
	for _, port := range []uint16{443, 80} {
		if s.Name(name, port) == Allowed {
			return Allowed
		}
	}
	return s.lookupAnyPort(name)
}

func (s Set) lookupAnyPort(name string) Reason {
	denied := s.anyDeny(func(r Rule) bool { return r.matchesName(name) })
	for _, p := range s {
		if p.Egress == None || p.Egress == Allowlist && !anyRule(p.Allow, func(r Rule) bool { return r.matchesName(name) }) {
			if denied {
				return Denied
			}
			return NotAllowed
		}
	}
	open := []PortRange{{1, 65_535}}
	var refused [][]PortRange
	for _, p := range s {
		if p.Egress == Allowlist {
			open = intersection(open, portsOf(p.Allow, name))
		}
		refused = append(refused, portsOf(p.Deny, name))
	}
	switch {
	case len(s) > 0 && leaves(open, union(refused)):
		return Allowed
	case denied:
		return Denied
	default:
		return NotAllowed
	}
}

// Address decides on a connection to an address that the guest gave itself. Ranges that are forbidden to all are not its matter (Forbidden).
func (s Set) Address(address netip.Addr, port uint16) Reason {
	if s.DeniesAddress(address, port) {
		return Denied
	}
	address = address.Unmap()
	return s.everyPolicy(func(p Policy) bool {
		return p.Egress == Internet || p.Egress == Allowlist && anyRule(p.Allow, func(r Rule) bool {
			return r.Host == "" && r.Prefix.Contains(address) && r.matchesPort(port)
		})
	})
}

// DeniesName says whether a rule of any policy's deny list names the host.
func (s Set) DeniesName(name string, port uint16) bool {
	return s.anyDeny(func(r Rule) bool { return r.matchesName(name) && r.matchesPort(port) })
}

// DeniesAddress says it of an address, one that a name resolved to as well.
func (s Set) DeniesAddress(address netip.Addr, port uint16) bool {
	spellings := embedded(address)
	return s.anyDeny(func(r Rule) bool {
		if r.Host != "" || !r.matchesPort(port) {
			return false
		}
		for _, spelling := range spellings {
			if r.Prefix.Contains(spelling) {
				return true
			}
		}
		return false
	})
}

// Restrictive says whether one of the policies allows by name: then nothing may go to an allowed name's address under another name.
func (s Set) Restrictive() bool {
	for _, p := range s {
		if p.Egress != Internet {
			return true
		}
	}
	return false
}

// DeniesNames says whether any rule of a deny list is about names.
func (s Set) DeniesNames() bool {
	return s.anyDeny(func(r Rule) bool { return r.Host != "" })
}

func (s Set) everyPolicy(allows func(Policy) bool) Reason {
	for _, p := range s {
		if !allows(p) {
			return NotAllowed
		}
	}
	if len(s) == 0 {
		return NotAllowed
	}
	return Allowed
}

func (s Set) anyDeny(matches func(Rule) bool) bool {
	for _, p := range s {
		if anyRule(p.Deny, matches) {
			return true
		}
	}
	return false
}

func anyRule(rules []Rule, matches func(Rule) bool) bool {
	for _, r := range rules {
		if matches(r) {
			return true
		}
	}
	return false
}
