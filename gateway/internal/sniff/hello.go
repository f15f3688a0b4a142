package sniff

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

const (
	recordHeader     = 5
	maxRecord        = 16<<10 + 256
	typeHandshake    = 22
	helloMessage     = 1
	extensionECH     = 0xfe0d
	maxHelloMessages = MaxBytes
	readAtOnce       = 2 << 10
)

var (
	errNotHello  = errors.New("TLS does not begin with a ClientHello")
	errLongHello = errors.New("ClientHello is too long")
)

// Hello is what a ClientHello says of where it goes.
type Hello struct {
	// ServerName is "" where there is none.
	ServerName string
	// Encrypted: it has the extension of Encrypted ClientHello, which may hide another name.
	Encrypted bool
}

// ReadHello reads the records of one ClientHello, no byte more, however it is cut into records. raw is what was read.
func ReadHello(r io.Reader) (hello Hello, raw []byte, err error) {
	message := 0
	for length := -1; length < 0 || message < length; {
		start := len(raw)
		if raw, err = readRecord(r, raw); err != nil {
			return Hello{}, raw, err
		}
		if raw[start] != typeHandshake || len(raw) == start+recordHeader {
			return Hello{}, raw, errNotHello
		}
		message += len(raw) - start - recordHeader
		if len(raw) > maxHelloMessages {
			return Hello{}, raw, errLongHello
		}
		if length < 0 {
			length = helloLength(raw)
		}
		if length > maxHelloMessages {
			return Hello{}, raw, errLongHello
		}
		if length >= 0 && message > length {
			return Hello{}, raw, errNotHello // more in the same record
		}
	}
	hello, err = parseHello(raw)
	return hello, raw, err
}

// readRecord appends one record, its header too, or what there was of it.
func readRecord(r io.Reader, to []byte) ([]byte, error) {
	var header [recordHeader]byte
	n, err := io.ReadFull(r, header[:])
	to = append(to, header[:n]...)
	if err != nil {
		return to, err
	}
	length := int(binary.BigEndian.Uint16(header[3:]))
	if length > maxRecord || header[1] != 3 {
		return to, errNotHello
	}
	// What is announced takes no room before it is there.
	for err == nil && length > 0 {
		start := len(to)
		to = slices.Grow(to, min(length, readAtOnce))[:start+min(length, readAtOnce)]
		n, err = r.Read(to[start:])
		to = to[:start+n]
		length -= n
	}
	if length == 0 {
		return to, nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return to, err
}

// helloLength gives the length of the handshake message that raw begins with, or -1 while its header is not complete.
func helloLength(raw []byte) int {
	var header []byte
	for len(raw) >= recordHeader && len(header) < 4 {
		end := recordHeader + int(binary.BigEndian.Uint16(raw[3:]))
		header = append(header, raw[recordHeader:end]...)
		raw = raw[end:]
	}
	if len(header) < 4 {
		return -1
	}
	return 4 + int(header[1])<<16 + int(header[2])<<8 + int(header[3])
}

var errSeen = errors.New("seen")

// parseHello has crypto/tls parse: the server that will read this is no stricter about doubled extensions or names.
func parseHello(raw []byte) (Hello, error) {
	var hello Hello
	seen := false
	config := &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		hello = Hello{ServerName: info.ServerName, Encrypted: slices.Contains(info.Extensions, extensionECH)}
		seen = true
		return nil, errSeen
	}}
	err := tls.Server(&oneWay{Reader: bytes.NewReader(raw)}, config).Handshake()
	if !seen {
		return Hello{}, errors.Join(errNotHello, err)
	}
	return hello, nil
}

// oneWay is a connection that has only something to read.
type oneWay struct{ io.Reader }

func (*oneWay) Write(b []byte) (int, error)      { return len(b), nil }
func (*oneWay) Close() error                     { return nil }
func (*oneWay) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*oneWay) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*oneWay) SetDeadline(time.Time) error      { return nil }
func (*oneWay) SetReadDeadline(time.Time) error  { return nil }
func (*oneWay) SetWriteDeadline(time.Time) error { return nil }
