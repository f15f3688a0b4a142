// Package network configures the machine's network card. The host's end of the wire speaks to one hardware address and one address alone, so that
// whatever else the guest does to its card only cuts itself off.
package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// The card is there at boot, so its number is a low one; its name the guest may change.
	highestIndex = 16
	driver       = "virtio_net"
	minMTU       = 576
	maxMTU       = 65_535
)

// ErrNoCard tells that this machine has no card, or that the guest has moved it out of the agent's sight.
var ErrNoCard = errors.New("there is no network card")

// Settings are what the card is to have.
type Settings struct {
	MAC        net.HardwareAddr // nil: its own
	Address    netip.Addr
	PrefixBits int
	Gateway    netip.Addr
	MTU        int
}

// Parse checks what the host sent. It names the field that is wrong.
func Parse(mac, address string, prefixBits int, gateway string, mtu int) (Settings, string) {
	s := Settings{PrefixBits: prefixBits, MTU: mtu}
	var err error
	if s.MAC, err = net.ParseMAC(mac); err != nil || len(s.MAC) != 6 {
		return s, "mac"
	}
	if s.Address, err = netip.ParseAddr(address); err != nil || !s.Address.Is4() {
		return s, "address"
	}
	if prefixBits < 1 || prefixBits > 32 {
		return s, "prefix_bits"
	}
	if s.Gateway, err = netip.ParseAddr(gateway); err != nil || !s.Gateway.Is4() {
		return s, "gateway"
	}
	if mtu < minMTU || mtu > maxMTU {
		return s, "mtu"
	}
	return s, ""
}

// Card is the machine's network card.
type Card struct {
	index uint32
}

// Find finds it by its driver; ErrNoCard where there is none.
func Find() (*Card, error) {
	c := &Card{}
	return c, withSocket(func(socket int) (err error) {
		_, err = c.find(socket)
		return err
	})
}

// Apply gives the card the settings, and takes it up with a default route.
func (c *Card) Apply(s Settings) error {
	return c.withName(func(socket int, name string) error {
		for _, step := range []struct {
			what string
			do   func() error
		}{
			{"set hardware address", func() error { return replaceMAC(socket, name, s.MAC) }},
			{"set mtu", func() error {
				return change(socket, name, unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(uint32(s.MTU)); return nil })
			}},
			{"set address", func() error { return setAddress(socket, name, unix.SIOCSIFADDR, s.Address.As4()) }},
			{"set netmask", func() error { return setAddress(socket, name, unix.SIOCSIFNETMASK, mask(s.PrefixBits)) }},
			{"bring up", func() error { return setUp(socket, name, true) }},
			{"set default route", func() error { return addDefaultRoute(socket, s.Gateway.As4()) }},
		} {
			if err := step.do(); err != nil {
				return fmt.Errorf("network card: %s: %w", step.what, err)
			}
		}
		return nil
	})
}

// SetMAC gives a card that has all of its settings another hardware address.
func (c *Card) SetMAC(mac net.HardwareAddr) error {
	return c.withName(func(socket int, name string) error {
		if err := setMAC(socket, name, mac); err != nil {
			return fmt.Errorf("network card: set hardware address: %w", err)
		}
		return nil
	})
}

// replaceMAC does it on a card that is up where the driver can.
func replaceMAC(socket int, name string, mac net.HardwareAddr) error {
	if mac == nil {
		return nil
	}
	err := setMAC(socket, name, mac)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	if err := setUp(socket, name, false); err != nil {
		return err
	}
	return setMAC(socket, name, mac)
}

// Down takes the card down, its addresses and routes with it.
func (c *Card) Down() error {
	return c.withName(func(socket int, name string) error { return setUp(socket, name, false) })
}

// withName knows the card by its number, and looks for it anew when the guest has moved it.
func (c *Card) withName(do func(socket int, name string) error) error {
	return withSocket(func(socket int) error {
		name, found := nameOf(socket, c.index)
		if !found {
			var err error
			if name, err = c.find(socket); err != nil {
				return err
			}
		}
		return do(socket, name)
	})
}

func withSocket(do func(socket int) error) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("network card: %w", err)
	}
	defer unix.Close(socket)
	return do(socket)
}

func (c *Card) find(socket int) (name string, err error) {
	for index := uint32(1); index <= highestIndex; index++ {
		name, found := nameOf(socket, index)
		if !found {
			continue
		}
		if info, err := unix.IoctlGetEthtoolDrvinfo(socket, name); err == nil && unix.ByteSliceToString(info.Driver[:]) == driver {
			c.index = index
			return name, nil
		}
	}
	return "", ErrNoCard
}

func nameOf(socket int, index uint32) (string, bool) {
	request, err := unix.NewIfreq("")
	if err != nil {
		return "", false
	}
	request.SetUint32(index)
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFNAME, request); err != nil {
		return "", false
	}
	return request.Name(), true
}

func change(socket int, name string, call uint, set func(*unix.Ifreq) error) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := set(request); err != nil {
		return err
	}
	return unix.IoctlIfreq(socket, call, request)
}

// setUp leaves the other flags at what a card has at boot.
func setUp(socket int, name string, up bool) error {
	return change(socket, name, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error {
		if up {
			r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING | unix.IFF_BROADCAST | unix.IFF_MULTICAST)
		} else {
			r.SetUint16(unix.IFF_BROADCAST | unix.IFF_MULTICAST)
		}
		return nil
	})
}

// The ifreq of x/sys has no hardware address.
func setMAC(socket int, name string, mac net.HardwareAddr) error {
	var request struct {
		name   [unix.IFNAMSIZ]byte
		family uint16
		data   [22]byte
	}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	request.family = unix.ARPHRD_ETHER
	copy(request.data[:], mac)
	return ioctl(socket, unix.SIOCSIFHWADDR, unsafe.Pointer(&request))
}

func setAddress(socket int, name string, call uint, address [4]byte) error {
	return change(socket, name, call, func(r *unix.Ifreq) error { return r.SetInet4Addr(address[:]) })
}

func mask(bits int) [4]byte { return [4]byte(net.CIDRMask(bits, 32)) }

// addDefaultRoute uses the rtentry of linux/route.h. A default route of the guest's over the same gateway stands in for it.
func addDefaultRoute(socket int, gateway [4]byte) error {
	var route struct {
		_             uint64
		dst, via, msk unix.RawSockaddrInet4
		flags         uint16
		_             int16
		_             uint64
		_             uintptr
		metric        int16
		_             uintptr
		mtu, window   uint64
		irtt          uint16
	}
	route.dst.Family, route.msk.Family = unix.AF_INET, unix.AF_INET
	route.via.Family, route.via.Addr = unix.AF_INET, gateway
	route.flags = unix.RTF_UP | unix.RTF_GATEWAY
	if err := ioctl(socket, unix.SIOCADDRT, unsafe.Pointer(&route)); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}

func ioctl(socket int, call uint, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), uintptr(call), uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}
