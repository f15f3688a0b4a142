package egress

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

const interfacesAge = 5 * time.Second

// interfaces are the addresses of the namespace that the gateway runs in: the host's own, also those that it got after it was configured.
type interfaces struct {
	mutex sync.Mutex
	read  time.Time
	known []netip.Prefix
}

func (i *interfaces) prefixes() []netip.Prefix {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if time.Since(i.read) < interfacesAge {
		return i.known
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return i.known
	}
	i.read, i.known = time.Now(), nil
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(network.IP); ok {
				ip = ip.Unmap()
				i.known = append(i.known, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}
	return i.known
}
