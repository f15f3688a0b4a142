package netns

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// OpenTap opens the tap of that name, which is there already, in the namespace of a path.
func OpenTap(namespacePath, name string) (*os.File, error) {
	var tap *os.File
	err := in(namespacePath, func() (err error) {
		tap, err = openTap(name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open the tap %s in %s: %w", name, namespacePath, err)
	}
	return tap, nil
}

func openTap(name string) (*os.File, error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	// TUNSETIFF would make one.
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(socket)
	if err := unix.IoctlIfreq(socket, unix.SIOCGIFINDEX, request); err != nil {
		return nil, err
	}
	descriptor, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/net/tun: %w", err)
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(descriptor, unix.TUNSETIFF, request); err != nil {
		unix.Close(descriptor)
		return nil, err
	}
	return os.NewFile(uintptr(descriptor), name), nil
}
