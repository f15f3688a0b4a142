package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"fuse/gateway/internal/egress"
)

const (
	handOverLimit = 5 * time.Second
	maxHandOver   = 256
)

// ServeListeners takes over the listeners of slots until the socket is closed: one stream for each slot, a line of JSON with three descriptors.
func (s *Server) ServeListeners(listener *net.UnixListener) error {
	for {
		stream, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go s.takeOver(stream)
	}
}

func (s *Server) takeOver(stream *net.UnixConn) {
	defer stream.Close()
	_ = stream.SetDeadline(time.Now().Add(handOverLimit))
	name, err := s.receiveSlot(stream)
	if err != nil {
		s.logger.Warn("a slot was not taken over", "error", err.Error())
		_, _ = fmt.Fprintf(stream, "error: %s\n", err)
		return
	}
	s.logger.Debug("slot taken over", "slot", name)
	_, _ = stream.Write([]byte("ok\n"))
}

func (s *Server) receiveSlot(stream *net.UnixConn) (string, error) {
	if err := s.checkPeer(stream); err != nil {
		return "", err
	}
	line, files, err := receive(stream)
	defer func() {
		for _, file := range files {
			_ = file.Close()
		}
	}()
	if err != nil {
		return "", err
	}
	var message struct {
		Slot string `json:"slot"`
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&message); err != nil || decoder.More() {
		return "", errors.New("not a line {\"slot\": …}")
	}
	if !validName.MatchString(message.Slot) {
		return "", errors.New("not a slot's name")
	}
	listeners, err := adopt(files)
	if err != nil {
		return "", err
	}
	return message.Slot, s.gateway.AddSlot(message.Slot, listeners)
}

// receive reads up to the end of the line. Descriptors come with its first byte.
func receive(stream *net.UnixConn) (line []byte, files []*os.File, err error) {
	buffer := make([]byte, maxHandOver)
	// Room for more than are expected: those that do not fit would be lost without a word.
	ancillary := make([]byte, unix.CmsgSpace(8*4))
	n, ancillaryLength, flags, _, err := stream.ReadMsgUnix(buffer, ancillary)
	if err != nil {
		return nil, nil, err
	}
	files, err = descriptors(ancillary[:ancillaryLength])
	if err != nil {
		return nil, files, err
	}
	if flags&unix.MSG_CTRUNC != 0 || len(files) != 3 {
		return nil, files, fmt.Errorf("%d descriptors in place of 3", len(files))
	}
	for !bytes.Contains(buffer[:n], []byte("\n")) {
		if n == len(buffer) {
			return nil, files, errors.New("line is too long")
		}
		more, err := stream.Read(buffer[n:])
		if err != nil {
			return nil, files, err
		}
		n += more
	}
	return buffer[:bytes.IndexByte(buffer[:n], '\n')], files, nil
}

func descriptors(ancillary []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(ancillary)
	if err != nil {
		return nil, err
	}
	for _, message := range messages {
		fds, err := unix.ParseUnixRights(&message)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "listener"))
		}
	}
	return files, nil
}

// adopt makes listeners of descriptors whose kind it has checked.
func adopt(files []*os.File) (listeners egress.Listeners, err error) {
	for i, want := range []kind{
		{"a transparent TCP listener", unix.SOCK_STREAM, true, true},
		{"a UDP socket", unix.SOCK_DGRAM, false, false},
		{"a TCP listener", unix.SOCK_STREAM, true, false},
	} {
		if err := want.check(int(files[i].Fd())); err != nil {
			return egress.Listeners{}, fmt.Errorf("descriptor %d is not %s: %w", i+1, want.name, err)
		}
		// Fd() has made it blocking; the copies that net makes are not.
	}
	transparent, err := net.FileListener(files[0])
	if err != nil {
		return egress.Listeners{}, err
	}
	dns, err := net.FilePacketConn(files[1])
	if err != nil {
		return egress.Listeners{}, errors.Join(err, transparent.Close())
	}
	dnsTCP, err := net.FileListener(files[2])
	if err != nil {
		return egress.Listeners{}, errors.Join(err, transparent.Close(), dns.Close())
	}
	tcp, tcpOK := transparent.(*net.TCPListener)
	udp, udpOK := dns.(*net.UDPConn)
	overTCP, overTCPOK := dnsTCP.(*net.TCPListener)
	if !tcpOK || !udpOK || !overTCPOK {
		return egress.Listeners{}, errors.Join(errors.New("not sockets of IPv4"), transparent.Close(), dns.Close(), dnsTCP.Close())
	}
	return egress.Listeners{TCP: tcp, DNS: udp, DNSTCP: overTCP}, nil
}

type kind struct {
	name        string
	socketType  int
	listening   bool
	transparent bool
}

func (k kind) check(fd int) error {
	for _, option := range []struct {
		level, name, want int
		what              string
	}{
		{unix.SOL_SOCKET, unix.SO_DOMAIN, unix.AF_INET, "domain"},
		{unix.SOL_SOCKET, unix.SO_TYPE, k.socketType, "type"},
		{unix.SOL_SOCKET, unix.SO_ACCEPTCONN, toInt(k.listening), "listening"},
	} {
		got, err := unix.GetsockoptInt(fd, option.level, option.name)
		if err != nil {
			return err
		}
		if got != option.want {
			return fmt.Errorf("its %s is %d", option.what, got)
		}
	}
	if k.transparent {
		got, err := unix.GetsockoptInt(fd, unix.SOL_IP, unix.IP_TRANSPARENT)
		if err != nil || got != 1 {
			return errors.New("it is not transparent")
		}
	}
	return nil
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
