package policy

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

func TestForbidden(t *testing.T) {
	for _, text := range []string{
		"0.0.0.0", "0.255.255.255", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "127.0.0.1", "127.255.255.255", "169.254.0.0", "169.254.255.255",
		"172.16.0.0", "172.31.255.255", "192.0.0.1", "192.0.0.255", "192.0.2.1", "192.88.99.1", "192.168.0.0", "192.168.255.255", "198.18.0.0", "198.19.255.255",
		"198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.0", "255.255.255.255",
		"::", "::1", "::7f00:1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b:1::1", "100::1", "fc00::1", "fdff::1",
		"fe80::1", "fec0::1", "ff02::1", "2001::1", "2001:2::1", "2001:db8::1", "2002::1", "2002:808:808::1", "3fff::1", "4000::1", "5f00::1", "::ffff:0:8.8.8.8",
	} {
		if !Forbidden(netip.MustParseAddr(text), nil, nil) {
			t.Errorf("%s is not forbidden", text)
		}
	}
	for _, text := range []string{
		"1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255",
		"172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8",
		"2600::1", "2001:200::1", "2a00:1450:4001::1", "2003::1", "3ffe::1",
	} {
		if Forbidden(netip.MustParseAddr(text), nil, nil) {
			t.Errorf("%s is forbidden", text)
		}
	}
	if !Forbidden(netip.MustParseAddr("fe80::1%eth0"), everywhere, nil) || !Forbidden(netip.Addr{}, everywhere, nil) {
		t.Error("an address with a zone, or none, is not forbidden")
	}
}

func TestMetadataIsNeverReached(t *testing.T) {
	for _, text := range []string{
		"169.254.169.254", "169.254.169.253", "169.254.170.2", "169.254.170.23", "169.254.42.42", "100.100.100.200", "168.63.129.16", "192.0.0.192",
		"::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "2001:0:a9fe:a9fe::1", "2001:0:808:808:0:0:5601:5601", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254",
		"64:ff9b::168.63.129.16", "fe80::a9fe:a9fe",
	} {
		if !Forbidden(netip.MustParseAddr(text), everywhere, nil) {
			t.Errorf("%s is reached", text)
		}
	}
}

func TestTheOperatorOpensRanges(t *testing.T) {
	allow := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd12::/16")}
	host := []netip.Prefix{netip.MustParsePrefix("8.8.8.8/32"), netip.MustParsePrefix("10.1.0.1/32")}
	for text, forbidden := range map[string]bool{
		"10.1.2.3": false, "10.2.0.1": true, "fd12::1": false, "fd13::1": true, "64:ff9b::10.1.2.3": false, "64:ff9b::10.2.0.1": true,
		"8.8.8.8": true, "::ffff:8.8.8.8": true, "64:ff9b::8.8.8.8": true, "10.1.0.1": false,
	} {
		if got := Forbidden(netip.MustParseAddr(text), allow, host); got != forbidden {
			t.Errorf("%s: forbidden %t", text, got)
		}
	}
}

// However a forbidden IPv4 address is spelt.
func TestEveryWrappingIsForbidden(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		v4 := netip.AddrFrom4([4]byte{byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32()), byte(random.Uint32())})
		forbidden := Forbidden(v4, nil, nil)
		b := v4.As4()
		mapped := netip.AddrFrom16(v4.As16())
		translated := netip.AddrFrom16([16]byte{0, 0x64, 0xff, 0x9b, 12: b[0], 13: b[1], 14: b[2], 15: b[3]})
		if Forbidden(mapped, nil, nil) != forbidden || Forbidden(translated, nil, nil) != forbidden {
			t.Fatalf("%s, %s and %s differ", v4, mapped, translated)
		}
	}
}
