package resolve

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// server answers on the loopback by UDP and TCP, and counts.
func server(t *testing.T, answer func(query dnsmessage.Message, network string) [][]byte) (address string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	socket, listener := samePort(t)
	t.Cleanup(func() { _, _ = socket.Close(), listener.Close() })
	parse := func(b []byte) (query dnsmessage.Message) {
		if err := query.Unpack(b); err != nil {
			t.Errorf("query: %v", err)
		}
		asked.Add(1)
		return query
	}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, from, err := socket.ReadFrom(buffer)
			if err != nil {
				return
			}
			for _, reply := range answer(parse(buffer[:n]), "udp") {
				_, _ = socket.WriteTo(reply, from)
			}
		}
	}()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 4096)
			n, _ := connection.Read(buffer)
			for _, reply := range answer(parse(buffer[2:n]), "tcp") {
				_, _ = connection.Write(append([]byte{byte(len(reply) >> 8), byte(len(reply))}, reply...))
			}
			_ = connection.Close()
		}
	}()
	return socket.LocalAddr().String(), asked
}

func samePort(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 50 {
		socket, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if listener, err := net.Listen("tcp", socket.LocalAddr().String()); err == nil {
			return socket, listener
		}
		_ = socket.Close() // somebody else has the port
	}
	t.Fatal("no port is free for both")
	return nil, nil
}

type zone map[string][]dnsmessage.ResourceBody

func (z zone) answer(query dnsmessage.Message, ttl uint32) dnsmessage.Message {
	question := query.Questions[0]
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: query.ID, Response: true}, Questions: query.Questions}
	bodies, ok := z[question.Name.String()]
	if !ok {
		reply.RCode = dnsmessage.RCodeNameError
	}
	for _, body := range bodies {
		kind := dnsmessage.TypeCNAME
		switch body.(type) {
		case *dnsmessage.AResource:
			kind = dnsmessage.TypeA
		case *dnsmessage.AAAAResource:
			kind = dnsmessage.TypeAAAA
		}
		if kind == question.Type || kind == dnsmessage.TypeCNAME {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: ttl}, Body: body,
			})
		}
	}
	return reply
}

func pack(t *testing.T, message dnsmessage.Message) []byte {
	packed, err := message.Pack()
	if err != nil {
		t.Errorf("pack: %v", err)
	}
	return packed
}

var (
	records = zone{
		"a.example.":     {&dnsmessage.AResource{A: [4]byte{45, 33, 1, 1}}, &dnsmessage.AAAAResource{AAAA: [16]byte{0x26, 15: 1}}},
		"alias.example.": {&dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("A.example.")}},
		"loop.example.":  {&dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("loop2.example.")}},
		"loop2.example.": {&dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName("loop.example.")}},
		"empty.example.": {},
		"A.example.":     {&dnsmessage.AResource{A: [4]byte{45, 33, 1, 1}}},
	}
	v4 = netip.MustParseAddr("45.33.1.1")
	v6 = netip.MustParseAddr("2600::1")
)

func resolver(addresses ...string) *Resolver {
	r := New()
	r.Configure(addresses)
	return r
}

func TestAddresses(t *testing.T) {
	address, asked := server(t, func(q dnsmessage.Message, _ string) [][]byte { return [][]byte{pack(t, records.answer(q, 60))} })
	r := resolver(address)
	for range 3 {
		got, err := r.Addresses(t.Context(), "a.example")
		if err != nil || len(got) != 2 || !slices.Contains(got, v4) || !slices.Contains(got, v6) {
			t.Fatalf("%v %v", got, err)
		}
	}
	if asked.Load() != 2 {
		t.Fatalf("%d queries: not cached", asked.Load())
	}
	if got, err := r.Addresses(t.Context(), "alias.example"); err != nil || !slices.Equal(got, []netip.Addr{v4}) {
		t.Fatalf("alias: %v %v", got, err)
	}
	for _, name := range []string{"gone.example", "empty.example", "loop.example"} {
		if got, err := r.Addresses(t.Context(), name); !errors.Is(err, ErrNoAddress) {
			t.Fatalf("%s: %v %v", name, got, err)
		}
	}
}

func TestAnswersThatDoNotFitComeByTCP(t *testing.T) {
	address, _ := server(t, func(q dnsmessage.Message, network string) [][]byte {
		reply := records.answer(q, 60)
		if network == "udp" {
			reply.Truncated, reply.Answers = true, nil
		}
		return [][]byte{pack(t, reply)}
	})
	if got, err := resolver(address).Addresses(t.Context(), "a.example"); err != nil || len(got) != 2 {
		t.Fatalf("%v %v", got, err)
	}
}

func TestForgedAnswersAreNotTaken(t *testing.T) {
	address, _ := server(t, func(q dnsmessage.Message, _ string) [][]byte {
		forged := zone{q.Questions[0].Name.String(): {&dnsmessage.AResource{A: [4]byte{6, 6, 6, 6}}}}.answer(q, 60)
		forged.ID++
		other := forged
		other.ID--
		other.Questions = []dnsmessage.Question{{Name: dnsmessage.MustNewName("b.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}
		// Records of other names in the right answer do not count either.
		right := records.answer(q, 60)
		right.Answers = append(right.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("b.example."), Class: dnsmessage.ClassINET}, Body: &dnsmessage.AResource{A: [4]byte{6, 6, 6, 6}},
		})
		return [][]byte{pack(t, forged), pack(t, other), {1, 2, 3}, pack(t, right)}
	})
	got, err := resolver(address).Addresses(t.Context(), "a.example")
	if err != nil || slices.Contains(got, netip.MustParseAddr("6.6.6.6")) {
		t.Fatalf("%v %v", got, err)
	}
}

func TestTheNextResolverIsAsked(t *testing.T) {
	failing, asked := server(t, func(q dnsmessage.Message, _ string) [][]byte {
		reply := records.answer(q, 60)
		reply.RCode, reply.Answers = dnsmessage.RCodeServerFailure, nil
		return [][]byte{pack(t, reply)}
	})
	working, _ := server(t, func(q dnsmessage.Message, _ string) [][]byte { return [][]byte{pack(t, records.answer(q, 60))} })
	if got, err := resolver(failing, working).Addresses(t.Context(), "a.example"); err != nil || len(got) == 0 {
		t.Fatalf("%v %v", got, err)
	}
	if asked.Load() == 0 {
		t.Fatal("not in order")
	}
	if got, err := resolver(failing).Addresses(t.Context(), "a.example"); !errors.Is(err, ErrNoAnswer) {
		t.Fatalf("%v %v", got, err)
	}
}

func TestTimesToLive(t *testing.T) {
	address, asked := server(t, func(q dnsmessage.Message, _ string) [][]byte { return [][]byte{pack(t, records.answer(q, 0))} })
	r := resolver(address)
	look := func() {
		if _, err := r.Addresses(t.Context(), "a.example"); err != nil {
			t.Fatal(err)
		}
	}
	look()
	r.mutex.Lock()
	cached := r.cached["a.example"]
	if left := time.Until(cached.expires); left > minTTL {
		t.Errorf("kept for %s", left)
	}
	cached.expires = time.Now().Add(-time.Second)
	r.mutex.Unlock()
	look()
	if asked.Load() != 4 {
		t.Fatalf("%d queries", asked.Load())
	}
}

func TestWhoeverWaitsCanLeave(t *testing.T) {
	address, _ := server(t, func(dnsmessage.Message, string) [][]byte { return nil })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := resolver(address).Addresses(ctx, "a.example"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	r := resolver("127.0.0.1:1")
	done := make(chan struct{})
	close(done)
	for i := range 2 * maxCached {
		r.makeRoom()
		r.cached[string(rune(i))] = &lookup{done: done}
	}
	if len(r.cached) > maxCached {
		t.Fatal(len(r.cached))
	}
}

func FuzzParseAnswer(f *testing.F) {
	question := dnsmessage.Question{Name: dnsmessage.MustNewName("a.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	query := dnsmessage.Message{Header: dnsmessage.Header{ID: 1}, Questions: []dnsmessage.Question{question}}
	for name := range records {
		query.Questions[0].Name = dnsmessage.MustNewName(name)
		reply := records.answer(query, 1)
		packed, err := reply.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		found, ours, err := parseAnswer(message, 1, question)
		if !ours && (err != nil || len(found.records) > 0) {
			t.Fatal("took from what is not ours")
		}
		if addresses, _, _ := follow(found.records, "a.example"); len(addresses) > maxAddresses {
			t.Fatal(len(addresses))
		}
	})
}
