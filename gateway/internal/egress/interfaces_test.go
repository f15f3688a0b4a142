package egress

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestInterfacesAreThoseOfTheNamespaceEachTime(t *testing.T) {
	i, err := newInterfaces()
	if err != nil {
		t.Fatal(err)
	}
	defer i.close()
	want, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		found := map[netip.Prefix]bool{}
		for _, prefix := range i.prefixes() {
			found[prefix] = true
		}
		if len(found) == 0 {
			t.Fatal("there is not even a loopback")
		}
		for _, address := range want {
			ip, _ := netip.AddrFromSlice(address.(*net.IPNet).IP)
			if !found[netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen())] {
				t.Errorf("%s is not among %v", ip, found)
			}
		}
		i.read = time.Time{} // it is asked anew
	}
}
