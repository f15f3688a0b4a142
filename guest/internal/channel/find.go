package channel

import (
	"errors"
	"net"
	"time"
)

// Names says where the host may be found.
type Names struct {
	Greeting string
	// VirtioPort under QEMU, VsockPort under Firecracker.
	VirtioPort string
	VsockPort  uint32
}

// Find waits for whichever channel this machine has and listens on it. Devices is where nodes may be made.
func Find(names Names, devices int, wait time.Duration, onError func(error)) (net.Listener, error) {
	deadline := time.Now().Add(wait)
	for {
		port, err := FindVirtioPort(names.VirtioPort, devices)
		if err == nil {
			return Listen(port, names.Greeting, onError), nil
		}
		if !errors.Is(err, errNoPort) {
			return nil, err
		}
		if HasVsock() {
			return ListenVsock(names.VsockPort, names.Greeting, onError)
		}
		if time.Now().After(deadline) {
			return nil, errors.Join(err, errors.New("no vsock device"))
		}
		time.Sleep(pollDelay)
	}
}
