package sniff

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

func TestFirst(t *testing.T) {
	for text, want := range map[string]Kind{
		"": NeedMore, "G": NeedMore, "GET /": NeedMore, "GET / HTTP/1.1\r\n": HTTP, "get / http/1.0\n": HTTP, "\r\n\r\n": NeedMore, "\r\n GET / HTTP/1.1\n": HTTP,
		"ANY-TOKEN\tx HTTP/9\n": HTTP, "GET /\x01 HTTP/1.1\n": HTTP, "GET / HTTP/1.1\r": NeedMore, "PRI * HTTP/2.0\r\n": HTTP2, "PRI": NeedMore,
		"\x16": NeedMore, "\x16\x03": TLS, "\x15\x03\x01": TLS, "\x17\x03": TLS, "\x16\x02": Other,
		"SSH-2.0-OpenSSH_9.2\r\n": Other, "SSH-2.0-OpenSSH_9.2p1 Debian\r\n": Other, "EHLO me\r\n": Other, "*1\r\n$4\r\nPING\r\n": Other, "PING\r\n": Other,
		"\x00\x00\x00\x08\x04\xd2\x16\x2f": Other, "0033git-upload-pack /p\x00host=h\x00": Other, "{\"json\": 1}": Other, "\x80\x2e\x01": Other,
		strings.Repeat("A", MaxBytes): HTTP, "GET /" + strings.Repeat("a", MaxBytes): HTTP,
	} {
		if got := First([]byte(text)); got != want {
			t.Errorf("%.40q is %d, not %d", text, got, want)
		}
	}
}

// What is called a thing from its beginning is called that however much is there.
func TestFirstDecidesOnce(t *testing.T) {
	for _, text := range []string{"GET /x HTTP/1.1\r\nHost: a\r\n\r\n", "\x16\x03\x01\x00\x05hello", "EHLO me\r\nDATA\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		decided := NeedMore
		for i := range len(text) + 1 {
			got := First([]byte(text[:i]))
			if decided != NeedMore && got != decided {
				t.Fatalf("%q: %d, then %d", text[:i], decided, got)
			}
			decided = got
		}
	}
}

// clientHello is what crypto/tls sends first.
func clientHello(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		_ = tls.Client(there, config).Handshake()
		_ = there.Close()
	}()
	buffer := make([]byte, 32<<10)
	n, err := here.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return buffer[:n]
}

// fragment cuts the message of one record into records of so many bytes.
func fragment(record []byte, size int) []byte {
	var cut []byte
	for rest := record[recordHeader:]; len(rest) > 0; {
		n := min(size, len(rest))
		cut = append(append(cut, 22, 3, 1, byte(n>>8), byte(n)), rest[:n]...)
		rest = rest[n:]
	}
	return cut
}

func TestReadHello(t *testing.T) {
	hello := clientHello(t, &tls.Config{ServerName: "good.example"})
	for _, size := range []int{1, 2, 3, 4, 5, 100, 16 << 10} {
		sent := append(fragment(hello, size), "what follows"...)
		reader := bytes.NewReader(sent)
		got, raw, err := ReadHello(reader)
		if err != nil || got.ServerName != "good.example" || got.Encrypted {
			t.Fatalf("%d: %+v %v", size, got, err)
		}
		rest, _ := io.ReadAll(reader)
		if !bytes.Equal(raw, sent[:len(raw)]) || string(rest) != "what follows" {
			t.Fatalf("%d: read %d, left %q", size, len(raw), rest)
		}
	}
	if got, _, err := ReadHello(bytes.NewReader(clientHello(t, &tls.Config{InsecureSkipVerify: true}))); err != nil || got.ServerName != "" {
		t.Fatalf("%+v %v", got, err)
	}
}

func TestHellosThatAreNone(t *testing.T) {
	hello := clientHello(t, &tls.Config{ServerName: "good.example"})
	more := append(bytes.Clone(hello), 1)
	more[3], more[4] = byte((len(more)-5)>>8), byte(len(more)-5)
	long := fragment(append([]byte{22, 3, 1, 0, 0, 1, 0, 0xff, 0xff}, make([]byte, 0xffff)...), 1024)
	for what, c := range map[string]struct {
		bytes []byte
		want  error
	}{
		"an alert":            {[]byte{21, 3, 3, 0, 2, 1, 0}, errNotHello},
		"an alert in front":   {append([]byte{21, 3, 3, 0, 2, 1, 0}, hello...), errNotHello},
		"an empty record":     {append([]byte{22, 3, 1, 0, 0}, hello...), errNotHello},
		"more in the record":  {more, errNotHello},
		"another message":     {[]byte{22, 3, 1, 0, 4, 2, 0, 0, 0}, errNotHello},
		"too long":            {long, errLongHello},
		"a record too long":   {[]byte{22, 3, 1, 0xff, 0xff}, errNotHello},
		"cut":                 {hello[:len(hello)-1], io.ErrUnexpectedEOF},
		"between two records": {fragment(hello, 100)[:105], io.EOF},
	} {
		if _, raw, err := ReadHello(bytes.NewReader(c.bytes)); !errors.Is(err, c.want) || !bytes.HasPrefix(c.bytes, raw) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestServerHello(t *testing.T) {
	hello := append(append([]byte{2, 0, 0, 60, 3, 3}, retryRandom...), make([]byte, 26)...)
	record := append([]byte{22, 3, 3, 0, byte(len(hello))}, hello...)
	for what, c := range map[string]struct {
		bytes []byte
		retry bool
	}{
		"retry": {record, true}, "retry in pieces": {fragment(record, 7), true}, "alert": {[]byte{21, 3, 3, 0, 2, 2, 40}, false},
		"another": {append(bytes.Replace(record, retryRandom[:4], []byte{0, 0, 0, 0}, 1), 9), false}, "another message": {[]byte{22, 3, 3, 0, 1, 11}, false},
	} {
		retry, raw, err := ReadServerHello(bytes.NewReader(c.bytes))
		if err != nil || retry != c.retry || !bytes.HasPrefix(c.bytes, raw) {
			t.Errorf("%s: %t %v", what, retry, err)
		}
	}
}

func FuzzFirst(f *testing.F) {
	for _, seed := range []string{"GET / HTTP/1.1\r\n", "\x16\x03\x01", "EHLO x\r\n", "\r\n\r\n "} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		decided := First(b)
		if again := First(append(bytes.Clone(b), b...)); decided != NeedMore && again != decided {
			t.Fatalf("%d, then %d", decided, again)
		}
	})
}

func FuzzReadHello(f *testing.F) {
	hello := clientHello(f, &tls.Config{ServerName: "good.example"})
	for _, seed := range [][]byte{hello, fragment(hello, 9), clientHello(f, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}), {22, 3, 1, 0, 0}} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		hello, raw, err := ReadHello(bytes.NewReader(b))
		if !bytes.HasPrefix(b, raw) || len(raw) > MaxBytes+maxRecord+recordHeader {
			t.Fatalf("read %d", len(raw))
		}
		// Whatever crypto/tls as a server would take for the name is the name.
		if err == nil {
			if other := serverName(raw); other != hello.ServerName {
				t.Fatalf("%q, and a server sees %q", hello.ServerName, other)
			}
		}
		_, _, _ = ReadServerHello(bytes.NewReader(b))
		_, _, _ = ReadSecondHello(bytes.NewReader(b))
	})
}

func serverName(raw []byte) (name string) {
	_ = tls.Server(&oneWay{bytes.NewReader(raw)}, &tls.Config{GetCertificate: func(info *tls.ClientHelloInfo) (*tls.Certificate, error) {
		name = info.ServerName
		return nil, errSeen
	}, GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		name = info.ServerName
		return nil, nil
	}}).Handshake()
	return name
}

func BenchmarkHello(b *testing.B) {
	hello := clientHello(b, &tls.Config{ServerName: "good.example"})
	for range b.N {
		if _, _, err := ReadHello(bytes.NewReader(hello)); err != nil {
			b.Fatal(err)
		}
	}
}
