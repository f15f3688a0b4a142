// Package policy decides what a guest may reach. Policies come in the canonical form of packages/contract/src/network.ts; what is decided
// depends on nothing but them, the name, the address and the port.
package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

const (
	MaxRules = 256
	maxPorts = 64
)

type Egress string

const (
	None      Egress = "none"
	Allowlist Egress = "allowlist"
	Internet  Egress = "internet"
)

// PortRange holds both ends.
type PortRange struct {
	From uint16 `json:"from"`
	To   uint16 `json:"to"`
}

// Rule has a host or a prefix, never both.
type Rule struct {
	Host   string
	Prefix netip.Prefix
	// In ascending order, without those that overlap or touch.
	Ports []PortRange
}

type Policy struct {
	Egress Egress `json:"egress"`
	Allow  []Rule `json:"allow"`
	Deny   []Rule `json:"deny"`
}

type wireRule struct {
	Host  *string     `json:"host,omitempty"`
	CIDR  *string     `json:"cidr,omitempty"`
	Ports []PortRange `json:"ports"`
}

func (r Rule) MarshalJSON() ([]byte, error) {
	if r.Host != "" {
		return json.Marshal(wireRule{Host: &r.Host, Ports: r.Ports})
	}
	cidr := r.Prefix.String()
	return json.Marshal(wireRule{CIDR: &cidr, Ports: r.Ports})
}

func (r *Rule) UnmarshalJSON(data []byte) error {
	var wire wireRule
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wire); err != nil {
		return err
	}
	if (wire.Host == nil) == (wire.CIDR == nil) {
		return errors.New("a rule has either host or cidr")
	}
	if len(wire.Ports) == 0 || len(wire.Ports) > maxPorts {
		return fmt.Errorf("a rule has 1 to %d port ranges", maxPorts)
	}
	for _, ports := range wire.Ports {
		if ports.From == 0 || ports.From > ports.To {
			return fmt.Errorf("ports %d to %d are no range", ports.From, ports.To)
		}
	}
	rule := Rule{Ports: inOrder(wire.Ports)}
	if wire.Host != nil {
		name, ok := Name(strings.TrimPrefix(*wire.Host, "*."))
		if !ok {
			return errors.New("host is no name")
		}
		if strings.HasPrefix(*wire.Host, "*.") {
			name = "*." + name
		}
		rule.Host = name
	} else {
		prefix, err := ParsePrefix(*wire.CIDR)
		if err != nil {
			return errors.New("cidr is no range of addresses")
		}
		rule.Prefix = prefix
	}
	*r = rule
	return nil
}

// Validate says what a policy that came in JSON has wrong beyond its rules.
func (p Policy) Validate() error {
	switch p.Egress {
	case None, Allowlist, Internet:
	default:
		return fmt.Errorf("egress %.32q is not known", string(p.Egress))
	}
	if len(p.Allow) > MaxRules || len(p.Deny) > MaxRules {
		return fmt.Errorf("more than %d rules", MaxRules)
	}
	return nil
}

// ParsePrefix takes a range or a single address, and gives an IPv4-mapped one as IPv4.
func ParsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		address, addressErr := netip.ParseAddr(text)
		if addressErr != nil || address.Zone() != "" {
			return netip.Prefix{}, err
		}
		prefix = netip.PrefixFrom(address, address.BitLen())
	}
	if prefix.Addr().Is4In6() {
		if prefix.Bits() < 96 {
			return netip.Prefix{}, errors.New("covers more than the IPv4-mapped addresses")
		}
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked(), nil
}
