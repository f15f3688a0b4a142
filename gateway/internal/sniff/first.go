// Package sniff tells from a connection's first bytes what it speaks and which name it gives.
package sniff

import "bytes"

// MaxBytes is how much of a connection is looked at before it is decided.
const MaxBytes = 16 << 10

type Kind int

const (
	// NeedMore: what there is may become several things.
	NeedMore Kind = iota
	TLS
	HTTP
	// HTTP2 is HTTP/2 in clear.
	HTTP2
	// Other is none of these.
	Other
)

// First tells what begins like this. Whatever a server might take for a request with a host, or for the beginning of TLS, is called that: it is then parsed, and
// refused where that fails.
func First(b []byte) Kind {
	if len(b) == 0 {
		return NeedMore
	}
	// Records of TLS: change of cipher, alert, handshake, data, heartbeat; then the major version.
	if b[0] >= 0x14 && b[0] <= 0x18 {
		switch {
		case len(b) == 1:
			return NeedMore
		case b[1] == 3:
			return TLS
		}
	}
	// Servers pass over empty lines in front of a request.
	line := bytes.TrimLeft(b, "\r\n\t ")
	method := 0
	for method < len(line) && isToken(line[method]) {
		method++
	}
	if method == len(line) {
		return undecided(b)
	}
	if method == 0 || line[method] != ' ' && line[method] != '\t' {
		return Other
	}
	for i, c := range line {
		switch {
		case c == '\n':
			return request(line[:i])
		case c == 0: // no server takes it in a request; the protocol of git has it
			return Other
		}
	}
	return undecided(b)
}

// So long a beginning is left to the parser of requests, which is strict.
func undecided(b []byte) Kind {
	if len(b) >= MaxBytes {
		return HTTP
	}
	return NeedMore
}

func request(line []byte) Kind {
	upper := bytes.ToUpper(line)
	switch {
	case bytes.Contains(upper, []byte("HTTP/2")) && bytes.HasPrefix(upper, []byte("PRI ")):
		return HTTP2
	case bytes.Contains(upper, []byte("HTTP/")):
		return HTTP
	default:
		return Other
	}
}

func isToken(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), c) >= 0
}
