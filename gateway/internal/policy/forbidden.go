package policy

import "net/netip"

type specialRange struct {
	prefix string
	source string
}

// Ranges that are not of the public Internet. Sources: the IANA special-purpose address registries (RFC 6890 and what updates it) and the
// registry of IPv6 address space. An operator may name parts of them.
var special = []specialRange{
	{"0.0.0.0/8", "this network, RFC 791"},
	{"10.0.0.0/8", "private, RFC 1918"},
	{"100.64.0.0/10", "carrier-grade NAT, RFC 6598"},
	{"127.0.0.0/8", "loopback, RFC 1122"},
	{"169.254.0.0/16", "link-local, RFC 3927"},
	{"172.16.0.0/12", "private, RFC 1918"},
	{"192.0.0.0/24", "IETF protocol assignments, RFC 6890; the guest's own link is in it"},
	{"192.0.2.0/24", "documentation, RFC 5737"},
	{"192.88.99.0/24", "6to4 relays, RFC 7526"},
	{"192.168.0.0/16", "private, RFC 1918"},
	{"198.18.0.0/15", "benchmarking, RFC 2544; looked-up names are in it"},
	{"198.51.100.0/24", "documentation, RFC 5737"},
	{"203.0.113.0/24", "documentation, RFC 5737"},
	{"224.0.0.0/4", "multicast, RFC 5771"},
	{"240.0.0.0/4", "reserved, RFC 1112; broadcast"},
	// All but 2000::/3 is unassigned, local or multicast: ::1, ::/96, fc00::/7 (RFC 4193), fe80::/10 (RFC 4291), fec0::/10 (RFC 3879),
	// ff00::/8, 100::/64 (RFC 6666), 64:ff9b:1::/48 (RFC 8215), 5f00::/16 (RFC 9602). 64:ff9b::/96 is judged by what is embedded.
	{"::/3", "not global unicast, RFC 4291"},
	{"4000::/2", "not global unicast, RFC 4291"},
	{"8000::/1", "not global unicast, RFC 4291: unique local, link-local, multicast"},
	{"2001::/23", "IETF protocol assignments, RFC 2928: Teredo, benchmarking, ORCHID"},
	{"2001:db8::/32", "documentation, RFC 3849"},
	{"2002::/16", "6to4, RFC 3056, RFC 7526"},
	{"3fff::/20", "documentation, RFC 9637"},
}

// Where clouds serve credentials to whoever runs on a machine of theirs. No policy and no operator opens these.
var metadata = []specialRange{
	{"169.254.169.0/24", "EC2, Google Cloud, Azure, OpenStack, DigitalOcean, Hetzner and others"},
	{"169.254.170.0/24", "ECS and EKS credentials"},
	{"169.254.42.42/32", "Scaleway"},
	{"169.254.0.23/32", "Tencent Cloud"},
	{"100.100.100.200/32", "Alibaba Cloud"},
	{"168.63.129.16/32", "Azure's host agent"},
	{"192.0.0.192/32", "Oracle Cloud"},
	{"fd00:ec2::/32", "EC2: metadata, DNS, EKS credentials"},
	{"fd20:ce::254/128", "Google Cloud"},
	{"fd00:42::42/128", "Scaleway"},
	{"fd00:c1::a9fe:a9fe/128", "Oracle Cloud"},
	{"fe80::a9fe:a9fe/128", "OpenStack"},
}

var (
	specialPrefixes  = prefixes(special)
	metadataPrefixes = prefixes(metadata)
	nat64            = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour        = netip.MustParsePrefix("2002::/16")
	teredo           = netip.MustParsePrefix("2001::/32")
)

// Metadata says whether the address, or one embedded in it, is never to be reached.
func Metadata(address netip.Addr) bool {
	return containsAny(metadataPrefixes, embedded(address))
}

// Forbidden says whether an address may be reached under no policy: not public, or one of the host's, and not among those that the operator
// named; or a metadata address. Addresses embedded in an IPv6 one (mapped, NAT64, 6to4, Teredo) count like itself.
func Forbidden(address netip.Addr, privateAllow, host []netip.Prefix) bool {
	if !address.IsValid() || address.Zone() != "" || Metadata(address) {
		return true
	}
	for _, spelling := range embedded(address) {
		if (contains(specialPrefixes, spelling) && !nat64.Contains(spelling) || contains(host, spelling)) && !contains(privateAllow, spelling) {
			return true
		}
	}
	return false
}

// embedded gives an address and those that it stands for.
func embedded(address netip.Addr) []netip.Addr {
	address = address.Unmap()
	if address.Is4() {
		return []netip.Addr{address}
	}
	b := address.As16()
	v4 := func(at int) netip.Addr { return netip.AddrFrom4([4]byte(b[at : at+4])) }
	switch {
	case nat64.Contains(address):
		return []netip.Addr{address, v4(12)}
	case sixToFour.Contains(address):
		return []netip.Addr{address, v4(2)}
	case teredo.Contains(address):
		client := netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})
		return []netip.Addr{address, v4(4), client}
	default:
		return []netip.Addr{address}
	}
}

func containsAny(prefixes []netip.Prefix, addresses []netip.Addr) bool {
	for _, address := range addresses {
		if contains(prefixes, address) {
			return true
		}
	}
	return false
}

func contains(prefixes []netip.Prefix, address netip.Addr) bool {
	for _, prefix := range prefixes {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}

func prefixes(ranges []specialRange) []netip.Prefix {
	parsed := make([]netip.Prefix, len(ranges))
	for i, r := range ranges {
		parsed[i] = netip.MustParsePrefix(r.prefix)
	}
	return parsed
}
