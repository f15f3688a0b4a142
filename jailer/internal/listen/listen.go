// Package listen opens the three listeners of a slot in its network namespace and hands them to the gateway, which is elsewhere and could not open them:
// packages/host-protocol/src/gateway.ts says how.
package listen

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"fuse/jailer/internal/netns"
)

const (
	dnsPort        = 53
	maxAnswerBytes = 4 << 10
	answerSeconds  = 10
)

var gatewayAddress = [4]byte{192, 0, 0, 1}

// Run is on a thread that belongs to it for ever.
func Run(args []string) error {
	flags := flag.NewFlagSet("listen", flag.ContinueOnError)
	namespace := flags.String("namespace", "", "path of the slot's network namespace")
	slot := flags.String("slot", "", "the slot's name")
	gateway := flags.String("gateway", "", "path of the gateway's listeners.sock")
	port := flags.Int("port", 15001, "of the transparent listener")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *namespace == "" || *slot == "" || *gateway == "" || flags.NArg() > 0 {
		return errors.New("listen needs --namespace, --slot and --gateway")
	}
	connection, err := connect(*gateway)
	if err != nil {
		return fmt.Errorf("reach the gateway at %s: %w", *gateway, err)
	}
	if err := netns.Enter(*namespace); err != nil {
		return err
	}
	listeners, err := open(*port)
	defer func() {
		for _, each := range listeners {
			unix.Close(each)
		}
	}()
	if err != nil {
		return err
	}
	if err := handOver(connection, *slot, listeners); err != nil {
		return fmt.Errorf("hand the listeners to the gateway: %w", err)
	}
	return nil
}

// From the socket's own directory: a path may be longer than the name of a socket.
func connect(path string) (int, error) {
	if err := os.Chdir(filepath.Dir(path)); err != nil {
		return -1, err
	}
	connection, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	limit := unix.Timeval{Sec: answerSeconds}
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(connection, unix.SOL_SOCKET, option, &limit); err != nil {
			return -1, err
		}
	}
	return connection, unix.Connect(connection, &unix.SockaddrUnix{Name: filepath.Base(path)})
}

// open answers the transparent listener, DNS over UDP and DNS over TCP, or as many of them as could be opened.
func open(port int) ([]int, error) {
	var listeners []int
	for _, each := range []struct {
		what        string
		kind        int
		address     [4]byte
		port        int
		transparent bool
	}{
		{"for every address", unix.SOCK_STREAM, [4]byte{}, port, true},
		{"for DNS over UDP", unix.SOCK_DGRAM, gatewayAddress, dnsPort, false},
		{"for DNS over TCP", unix.SOCK_STREAM, gatewayAddress, dnsPort, false},
	} {
		socket, err := unix.Socket(unix.AF_INET, each.kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0) // the gateway's runtime waits for them
		if err == nil {
			listeners = append(listeners, socket)
			err = listenOn(socket, each.kind, unix.SockaddrInet4{Port: each.port, Addr: each.address}, each.transparent)
		}
		if err != nil {
			return listeners, fmt.Errorf("listen %s: %w", each.what, err)
		}
	}
	return listeners, nil
}

func listenOn(socket, kind int, address unix.SockaddrInet4, transparent bool) error {
	// Those that a gateway has already make room for these once it has them; connections of one that is gone may linger.
	options := []int{unix.SO_REUSEPORT, unix.SO_REUSEADDR}
	if kind == unix.SOCK_DGRAM {
		options = options[:1]
	}
	for _, option := range options {
		if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, option, 1); err != nil {
			return err
		}
	}
	if transparent {
		if err := unix.SetsockoptInt(socket, unix.SOL_IP, unix.IP_TRANSPARENT, 1); err != nil {
			return fmt.Errorf("IP_TRANSPARENT: %w", err)
		}
	}
	if err := unix.Bind(socket, &address); err != nil || kind == unix.SOCK_DGRAM {
		return err
	}
	return unix.Listen(socket, unix.SOMAXCONN)
}

func handOver(connection int, slot string, listeners []int) error {
	line, err := json.Marshal(map[string]string{"slot": slot})
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(connection, append(line, '\n'), unix.UnixRights(listeners...), nil, unix.MSG_NOSIGNAL); err != nil {
		return err
	}
	answer, err := readLine(connection)
	switch {
	case err != nil:
		return err
	case answer != "ok":
		return fmt.Errorf("it says %q", answer)
	}
	return nil
}

func readLine(connection int) (string, error) {
	answer := make([]byte, 0, maxAnswerBytes)
	for len(answer) < maxAnswerBytes {
		n, err := unix.Read(connection, answer[len(answer):maxAnswerBytes])
		if err != nil {
			return "", err
		}
		answer = answer[:len(answer)+n]
		if line, _, found := bytes.Cut(answer, []byte{'\n'}); found {
			return string(line), nil
		}
		if n == 0 {
			return "", errors.New("it has hung up")
		}
	}
	return "", errors.New("its answer is too long")
}
