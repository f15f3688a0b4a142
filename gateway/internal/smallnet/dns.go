package smallnet

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// DNS is the servers' own: it answers what a test says and counts what is asked.
type DNS struct {
	mutex   sync.Mutex
	records map[string][]string
	asked   []string
}

// StartDNS serves on an address of the servers.
func (n *Net) StartDNS(t testing.TB, address string) *DNS {
	t.Helper()
	d := &DNS{records: map[string][]string{}}
	socket, err := In(t, n.Servers, func() (*net.UDPConn, error) { return listenUDP(address, false) })
	must(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	listener := n.Servers.Listen(t, address)
	go func() {
		buffer := make([]byte, 4096)
		for {
			read, from, err := socket.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			if reply := d.answer(buffer[:read], 512); reply != nil {
				_, _ = socket.WriteToUDPAddrPort(reply, from)
			}
		}
	}()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go d.overTCP(connection)
		}
	}()
	return d
}

func (d *DNS) overTCP(connection net.Conn) {
	defer connection.Close()
	var length [2]byte
	if _, err := io.ReadFull(connection, length[:]); err != nil {
		return
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(connection, message); err != nil {
		return
	}
	reply := d.answer(message, 65_535)
	_, _ = connection.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
}

// Set gives a name addresses, or another name that it is an alias of.
func (d *DNS) Set(name string, values ...string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.records[name] = values
}

// Asked gives the names of all queries so far.
func (d *DNS) Asked() []string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return append([]string(nil), d.asked...)
}

func (d *DNS) answer(query []byte, limit int) []byte {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	var message dnsmessage.Message
	if message.Unpack(query) != nil || len(message.Questions) != 1 {
		return nil
	}
	question := message.Questions[0]
	name := question.Name.String()
	d.asked = append(d.asked, name[:len(name)-1])
	message.Response, message.Additionals = true, nil
	values, known := d.records[name[:len(name)-1]]
	if !known {
		message.RCode = dnsmessage.RCodeNameError
	}
	for _, value := range values {
		header := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 1}
		address, err := netip.ParseAddr(value)
		switch {
		case err != nil:
			message.Answers = append(message.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(value + ".")}})
		case address.Is4() && question.Type == dnsmessage.TypeA:
			message.Answers = append(message.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: address.As4()}})
		case address.Is6() && question.Type == dnsmessage.TypeAAAA:
			message.Answers = append(message.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: address.As16()}})
		}
	}
	packed, err := message.Pack()
	if err == nil && len(packed) > limit {
		message.Truncated, message.Answers = true, nil
		packed, err = message.Pack()
	}
	if err != nil {
		return nil
	}
	return packed
}

// Query asks whichever server from the guest, by UDP or TCP.
func (n *Net) Query(t testing.TB, network, server, name string, kind dnsmessage.Type) dnsmessage.Message {
	t.Helper()
	query := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 4711, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET}},
	}
	var options dnsmessage.ResourceHeader
	must(t, options.SetEDNS0(1232, dnsmessage.RCodeSuccess, false))
	query.Additionals = []dnsmessage.Resource{{Header: options, Body: &dnsmessage.OPTResource{}}}
	packed, err := query.Pack()
	must(t, err)
	reply, err := In(t, n.Guest, func() ([]byte, error) {
		connection, err := net.Dial(network, server)
		if err != nil {
			return nil, err
		}
		defer connection.Close()
		_ = connection.SetDeadline(time.Now().Add(20 * time.Second))
		if network == "tcp" {
			packed = append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...)
		}
		if _, err := connection.Write(packed); err != nil {
			return nil, err
		}
		buffer := make([]byte, 4096)
		read, err := connection.Read(buffer)
		if network == "tcp" {
			return buffer[2:read], err
		}
		return buffer[:read], err
	})
	must(t, err)
	var message dnsmessage.Message
	must(t, message.Unpack(reply))
	return message
}
