package lookup

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	idleTimeout   = 15 * time.Second
	maxOverTCP    = 4096 // queries on one connection
	maxQueryBytes = 4096
	// No query for one name comes near this. Each connection may hold so much.
	maxQueryOverTCP = 1024
)

// Source finds who answers at this moment; nil: nobody does, and the datagram is dropped.
type Source func() Names

// ServeUDP answers until the socket is closed. An answer comes from the address that was asked, whichever that was.
func ServeUDP(socket *net.UDPConn, source Source) error {
	if err := withControl(socket, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_PKTINFO, 1) }); err != nil {
		return err
	}
	// Longer ones are cut here, and then malformed.
	message := make([]byte, maxQueryBytes)
	ancillary := make([]byte, 512)
	for {
		n, ancillaryLength, _, from, err := socket.ReadMsgUDPAddrPort(message, ancillary)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			continue // an ICMP error about an earlier answer
		}
		names := source()
		if names == nil {
			continue
		}
		if reply := Answer(names, message[:n]); reply != nil {
			_, _, _ = socket.WriteMsgUDPAddrPort(reply, sendFrom(ancillary[:ancillaryLength]), from)
		}
	}
}

// sendFrom turns what the kernel says about a datagram's destination into the source of its answer.
func sendFrom(ancillary []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(ancillary)
	if err != nil {
		return nil
	}
	for _, message := range messages {
		// struct in_pktinfo: interface, local address, destination of the header.
		if message.Header.Level == unix.SOL_IP && message.Header.Type == unix.IP_PKTINFO && len(message.Data) >= 12 {
			return unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: [4]byte(message.Data[8:12])})
		}
	}
	return nil
}

// ServeTCP answers the queries of one connection, one after the other.
func ServeTCP(connection net.Conn, source Source) {
	defer connection.Close()
	var length [2]byte
	var query, framed []byte
	for range maxOverTCP {
		_ = connection.SetDeadline(time.Now().Add(idleTimeout))
		if _, err := io.ReadFull(connection, length[:]); err != nil {
			return
		}
		size := int(binary.BigEndian.Uint16(length[:]))
		if size > maxQueryOverTCP {
			return
		}
		query = slices.Grow(query[:0], size)
		message := query[:size]
		if _, err := io.ReadFull(connection, message); err != nil {
			return
		}
		names := source()
		if names == nil {
			return
		}
		reply := Answer(names, message)
		if reply == nil {
			return
		}
		framed = append(binary.BigEndian.AppendUint16(framed[:0], uint16(len(reply))), reply...)
		if _, err := connection.Write(framed); err != nil {
			return
		}
	}
}

func withControl(socket *net.UDPConn, do func(fd int) error) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := raw.Control(func(fd uintptr) { result = do(int(fd)) }); err != nil {
		return err
	}
	return result
}
