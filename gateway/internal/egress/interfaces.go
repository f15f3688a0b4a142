package egress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	interfacesAge    = 5 * time.Second
	interfacesAnswer = 64 << 10
)

// interfaces are the addresses of the namespace that the gateway runs in: the host's own, also those that it got after it was configured. The kernel is asked over a
// socket that is there before the gateway's system calls are filtered: no other can be made then.
type interfaces struct {
	mutex  sync.Mutex
	socket int
	asked  uint32
	read   time.Time
	known  []netip.Prefix
}

func newInterfaces() (*interfaces, error) {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("cannot ask for interfaces: %w", err)
	}
	i := &interfaces{socket: socket}
	err = unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 2})
	if err == nil {
		err = i.ask()
	}
	if err != nil {
		i.close()
		return nil, fmt.Errorf("cannot ask for interfaces: %w", err)
	}
	return i, nil
}

func (i *interfaces) close() { _ = unix.Close(i.socket) }

// prefixes are those of the last answer when there is no other.
func (i *interfaces) prefixes() []netip.Prefix {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	if time.Since(i.read) >= interfacesAge {
		_ = i.ask()
	}
	return i.known
}

func (i *interfaces) ask() error {
	i.asked++
	// struct nlmsghdr, and ifaddrmsg of any family.
	request := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfAddrmsg)
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], unix.RTM_GETADDR)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	binary.NativeEndian.PutUint32(request[8:], i.asked)
	if err := unix.Sendto(i.socket, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	var found []netip.Prefix
	for answer := make([]byte, interfacesAnswer); ; {
		n, _, err := unix.Recvfrom(i.socket, answer, 0)
		if err != nil {
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(answer[:n])
		if err != nil {
			return err
		}
		for _, message := range messages {
			switch {
			case message.Header.Seq != i.asked: // of an answer that was given up
			case message.Header.Type == unix.NLMSG_ERROR || message.Header.Flags&unix.NLM_F_DUMP_INTR != 0:
				return errors.New("the kernel's answer is not whole")
			case message.Header.Type == unix.NLMSG_DONE:
				i.read, i.known = time.Now(), found
				return nil
			case message.Header.Type == unix.RTM_NEWADDR:
				if address, ok := addressOf(message); ok {
					found = append(found, netip.PrefixFrom(address, address.BitLen()))
				}
			}
		}
	}
}

// addressOf is the interface's own: between two points IFA_ADDRESS is the other's.
func addressOf(message syscall.NetlinkMessage) (address netip.Addr, ok bool) {
	attributes, err := syscall.ParseNetlinkRouteAttr(&message)
	if err != nil {
		return address, false
	}
	for _, attribute := range attributes {
		isLocal := attribute.Attr.Type == unix.IFA_LOCAL
		if !isLocal && (attribute.Attr.Type != unix.IFA_ADDRESS || ok) {
			continue
		}
		if parsed, legal := netip.AddrFromSlice(attribute.Value); legal {
			address, ok = parsed.Unmap(), true
		}
	}
	return address, ok
}
