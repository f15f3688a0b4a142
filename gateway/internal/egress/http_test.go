package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"fuse/gateway/internal/policy"
)

// pair is two ends of a connection over the loopback.
func pair(t testing.TB) (*net.TCPConn, *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	here, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return here.(*net.TCPConn), there.(*net.TCPConn)
}

// opened is a connection to a name that has been looked up, whose way to the server is there already.
func opened(name string, guest *net.TCPConn) *connection {
	set := policy.Set{{Egress: policy.Allowlist, Allow: []policy.Rule{{Host: name, Ports: []policy.PortRange{{From: 80, To: 80}}}}}}
	gateway := &Gateway{logger: slog.New(slog.DiscardHandler), pools: newPools(64<<20, 10)}
	vm := newVM("vm", "slot", set, gateway.pools)
	c := &connection{gateway: gateway, vm: vm, guest: guest, began: time.Now(), target: target{name: name, port: 80}}
	c.ctx, c.cancel = context.WithCancel(vm.ctx)
	vm.add(c)
	return c
}

// proxied gives what a server gets of what a guest sends, and what the guest gets.
func proxied(t testing.TB, sent []byte) (received, answered []byte) {
	guest, outside := pair(t)
	upstream, server := pair(t)
	defer guest.Close()
	defer server.Close()
	c := opened("good.test", outside)
	served, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(served)
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			received = append(received, buffer[:n]...)
			if err != nil {
				return
			}
			if n > 0 && requests(received) == nil {
				_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		}
	}()
	go func() {
		_, _ = guest.Write(sent)
		_ = guest.CloseWrite()
	}()
	go func() {
		defer close(done)
		_ = guest.SetReadDeadline(time.Now().Add(20 * time.Second))
		answered, _ = io.ReadAll(guest)
	}()
	c.own(upstream)
	c.passes(look{taken: true, conforms: true})
	if r := c.carryHTTP(upstream); r != nil {
		c.refuse(r)
	}
	c.close()
	c.cancel()
	<-done
	<-served
	return received, answered
}

// requests reads what a server was sent, as a reader of its own who takes nothing but the plain form, and says what is wrong with it.
func requests(sent []byte) error {
	reader := bufio.NewReader(bytes.NewReader(sent))
	for {
		if _, err := reader.Peek(1); err != nil {
			return nil
		}
		if err := request(reader); err != nil {
			return err
		}
	}
}

var errCut = errors.New("cut")

func request(reader *bufio.Reader) error {
	line := func() (string, error) {
		text, err := reader.ReadString('\n')
		if err != nil {
			return "", errCut
		}
		plain, ok := strings.CutSuffix(text, "\r\n")
		if !ok || strings.ContainsAny(plain, "\r\x00") {
			return "", fmt.Errorf("line %q", text)
		}
		return plain, nil
	}
	first, err := line()
	if err != nil {
		return err
	}
	if parts := strings.Split(first, " "); len(parts) != 3 || parts[2] != "HTTP/1.1" {
		return fmt.Errorf("request line %q", first)
	}
	hosts, length, chunked := []string{}, 0, false
	for {
		header, err := line()
		if err != nil {
			return err
		}
		if header == "" {
			break
		}
		name, value, ok := strings.Cut(header, ":")
		if !ok || name != strings.TrimSpace(name) {
			return fmt.Errorf("header %q", header)
		}
		switch value = strings.TrimSpace(value); strings.ToLower(name) {
		case "host":
			hosts = append(hosts, value)
		case "content-length":
			if length, err = strconv.Atoi(value); err != nil {
				return err
			}
		case "transfer-encoding":
			if value != "chunked" {
				return fmt.Errorf("encoding %q", value)
			}
			chunked = true
		}
	}
	if len(hosts) != 1 || strings.ContainsAny(hosts[0], ",;%@/") || strings.ToLower(strings.TrimSuffix(hostOf(hosts[0]), ".")) != "good.test" {
		return fmt.Errorf("hosts %q", hosts)
	}
	if !chunked {
		if _, err := io.CopyN(io.Discard, reader, int64(length)); err != nil {
			return errCut
		}
		return nil
	}
	for {
		size, err := line()
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(size, 16, 32)
		if err != nil {
			return err
		}
		if n == 0 {
			for {
				if trailer, err := line(); err != nil || trailer == "" {
					return err
				}
			}
		}
		if _, err := io.CopyN(io.Discard, reader, n); err != nil {
			return errCut
		}
		if end, err := line(); err != nil || end != "" {
			return errors.Join(err, errCut)
		}
	}
}

// Whatever a guest sends: what a server gets are requests that name the host that was looked up, and nothing else.
func FuzzHTTP(f *testing.F) {
	for _, seed := range []string{
		"GET / HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: good.test\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"GET http://good.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n5;x=\"\n\"\r\nhello\r\n0\r\nHost: evil.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: good.test\r\n X: folded\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: good.test\r\nX: a\rHost: evil.test\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: good.test\nHost: evil.test\n\n",
		"GET /\r\nHost: evil.test HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"GET /%0d%0aHost:%20evil.test HTTP/1.1\r\nHost: good.test\r\nConnection: Host\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: good.test\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"CONNECT evil.test:443 HTTP/1.1\r\nHost: good.test\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: good.test:80\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
		"GET / HTTP/1.0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: good.test:80,evil.test\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		received, _ := proxied(t, sent)
		if err := requests(received); err != nil && !errors.Is(err, errCut) {
			t.Fatalf("%v: the server got %q", err, received)
		}
	})
}

func TestAnswersComeBack(t *testing.T) {
	received, answered := proxied(t, []byte("GET /a//b?c=%zz HTTP/1.1\r\nHost: good.test\r\nX-Forwarded-For: 1.2.3.4\r\nAccept-Encoding: br\r\n\r\n"))
	if string(answered) != "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" {
		t.Fatalf("%q", answered)
	}
	want := "GET /a//b?c=%zz HTTP/1.1\r\nHost: good.test\r\nAccept-Encoding: br\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n"
	if string(received) != want {
		t.Fatalf("%q", received)
	}
}

func TestInterleave(t *testing.T) {
	var addresses []netip.Addr
	for _, text := range []string{"1.0.0.1", "1.0.0.2", "1.0.0.3", "2600::1", "2600::2"} {
		addresses = append(addresses, netip.MustParseAddr(text))
	}
	if got := fmt.Sprint(interleave(addresses)); got != "[2600::1 1.0.0.1 2600::2 1.0.0.2 1.0.0.3]" {
		t.Fatal(got)
	}
}

// BenchmarkRelay is bytes through the gateway, from one loopback connection to another.
func BenchmarkRelay(b *testing.B) {
	guest, outside := pair(b)
	upstream, server := pair(b)
	c := opened("good.test", outside)
	c.own(upstream)
	c.passes(look{taken: true, conforms: true})
	done := make(chan struct{})
	go func() { defer close(done); _ = c.relay(upstream); c.close() }()
	const size = 1 << 20
	chunk := make([]byte, size)
	b.SetBytes(size)
	b.ResetTimer()
	go func() {
		for range b.N {
			_, _ = guest.Write(chunk)
		}
		_ = guest.CloseWrite()
	}()
	if n, err := io.Copy(io.Discard, server); err != nil || n != int64(b.N)*size {
		b.Fatalf("%d %v", n, err)
	}
	b.StopTimer()
	_ = server.Close()
	<-done
	_ = guest.Close()
}
