package sniff

import (
	"bytes"
	"io"
)

const (
	serverHelloMessage = 2
	maxRecordsAside    = 64
)

// RFC 8446 section 4.1.3: a ServerHello with this random is a HelloRetryRequest.
var retryRandom = []byte{
	0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11, 0xBE, 0x1D, 0x8C, 0x02, 0x1E, 0x65, 0xB8, 0x91,
	0xC2, 0xA2, 0x11, 0x16, 0x7A, 0xBB, 0x8C, 0x5E, 0x07, 0x9E, 0x09, 0xE2, 0xC8, 0xA8, 0x33, 0x9C,
}

// ReadServerHello reads a server's records until they say whether it wants a second ClientHello, which may name another server.
func ReadServerHello(r io.Reader) (retry bool, raw []byte, err error) {
	var message []byte
	for len(message) < 6+len(retryRandom) {
		start := len(raw)
		if raw, err = readRecord(r, raw); err != nil || raw[start] != typeHandshake {
			return false, raw, err // an alert
		}
		message = append(message, raw[start+recordHeader:]...)
		if len(raw)-start == recordHeader || len(message) > 0 && message[0] != serverHelloMessage {
			return false, raw, nil
		}
	}
	return bytes.Equal(message[6:6+len(retryRandom)], retryRandom), raw, nil
}

// ReadSecondHello reads a client's records up to its second ClientHello, and that. In front of it there may be a change of cipher and early data, which raw has too.
func ReadSecondHello(r io.Reader) (hello Hello, raw []byte, err error) {
	for range maxRecordsAside {
		start := len(raw)
		if raw, err = readRecord(r, raw); err != nil {
			return Hello{}, raw, err
		}
		if raw[start] == typeHandshake {
			hello, second, err := ReadHello(io.MultiReader(bytes.NewReader(raw[start:]), r))
			return hello, append(raw[:start:start], second...), err
		}
	}
	return Hello{}, raw, errNotHello
}
