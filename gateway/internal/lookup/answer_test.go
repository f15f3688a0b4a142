package lookup

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"fuse/gateway/internal/policy"
)

type fixed map[string]policy.Reason

var address = netip.MustParseAddr("198.18.1.2")

func (f fixed) Lookup(name string) (netip.Addr, policy.Reason) {
	if reason, ok := f[name]; ok {
		return address, reason
	}
	return netip.Addr{}, policy.NotAllowed
}

var names = fixed{"good.example": policy.Allowed, "bad.example": policy.Denied, "full.example": policy.TooMany}

func query(t testing.TB, change func(*dnsmessage.Message)) []byte {
	t.Helper()
	message := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("GOOD.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	change(&message)
	packed, err := message.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func ask(name string, kind dnsmessage.Type) func(*dnsmessage.Message) {
	return func(m *dnsmessage.Message) {
		m.Questions[0].Name, m.Questions[0].Type = dnsmessage.MustNewName(name), kind
	}
}

func TestAnswers(t *testing.T) {
	for what, c := range map[string]struct {
		change  func(*dnsmessage.Message)
		code    dnsmessage.RCode
		answers int
	}{
		"allowed":        {ask("Good.Example.", dnsmessage.TypeA), dnsmessage.RCodeSuccess, 1},
		"AAAA":           {ask("good.example.", dnsmessage.TypeAAAA), dnsmessage.RCodeSuccess, 0},
		"HTTPS":          {ask("good.example.", 65), dnsmessage.RCodeSuccess, 0},
		"ANY":            {ask("good.example.", dnsmessage.TypeALL), dnsmessage.RCodeSuccess, 0},
		"not allowed":    {ask("data.evil.example.", dnsmessage.TypeTXT), dnsmessage.RCodeNameError, 0},
		"denied":         {ask("bad.example.", dnsmessage.TypeA), dnsmessage.RCodeNameError, 0},
		"too many":       {ask("full.example.", dnsmessage.TypeA), dnsmessage.RCodeRefused, 0},
		"the root":       {ask(".", dnsmessage.TypeNS), dnsmessage.RCodeNameError, 0},
		"odd bytes":      {ask("a b\x00.example.", dnsmessage.TypeA), dnsmessage.RCodeNameError, 0},
		"another class":  {func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS }, dnsmessage.RCodeRefused, 0},
		"another opcode": {func(m *dnsmessage.Message) { m.OpCode = 5 }, dnsmessage.RCodeNotImplemented, 0},
		"no question":    {func(m *dnsmessage.Message) { m.Questions = nil }, dnsmessage.RCodeFormatError, 0},
		"two questions":  {func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }, dnsmessage.RCodeFormatError, 0},
		"two EDNS":       {func(m *dnsmessage.Message) { m.Additionals = []dnsmessage.Resource{edns(0), edns(0)} }, dnsmessage.RCodeFormatError, 0},
		"EDNS version 1": {func(m *dnsmessage.Message) { m.Additionals = []dnsmessage.Resource{edns(1)} }, dnsmessage.RCodeSuccess, 0},
		"EDNS, as it is": {func(m *dnsmessage.Message) { m.Additionals = []dnsmessage.Resource{edns(0)} }, dnsmessage.RCodeSuccess, 1},
	} {
		var reply dnsmessage.Message
		if err := reply.Unpack(Answer(names, query(t, c.change))); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if reply.ID != 7 || !reply.Response || reply.RCode != c.code || len(reply.Answers) != c.answers {
			t.Errorf("%s: %s", what, reply.GoString())
		}
		if what == "EDNS version 1" && reply.Additionals[0].Header.ExtendedRCode(reply.RCode) != 16 {
			t.Errorf("%s: %s", what, reply.GoString())
		}
	}
}

func edns(version uint32) dnsmessage.Resource {
	return dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Class: 1232, TTL: version << 16}, Body: &dnsmessage.OPTResource{},
	}
}

func TestResponsesAreNotAnswered(t *testing.T) {
	if reply := Answer(names, query(t, func(m *dnsmessage.Message) { m.Response = true })); reply != nil {
		t.Fatal("answered: two such servers would never stop")
	}
}

// A pointer to itself, and counts that promise more than there is.
func malformed() [][]byte {
	loop := []byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xC0, 12, 0, 1, 0, 1}
	counts := []byte{0, 7, 1, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 'a', 0, 0, 1, 0, 1}
	return [][]byte{loop, counts, loop[:12], loop[:5], {}, append([]byte{0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 64}, make([]byte, 64)...)}
}

func FuzzAnswer(f *testing.F) {
	for _, message := range malformed() {
		f.Add(message)
	}
	f.Add(query(f, ask("good.example.", dnsmessage.TypeA)))
	f.Add(query(f, func(m *dnsmessage.Message) { m.Additionals = []dnsmessage.Resource{edns(0)} }))
	f.Fuzz(func(t *testing.T, message []byte) {
		reply := Answer(names, message)
		if reply == nil {
			return
		}
		var parsed dnsmessage.Message
		if err := parsed.Unpack(reply); err != nil {
			t.Fatalf("an answer that cannot be read: %v", err)
		}
		if len(reply) > 512 {
			t.Fatalf("%d bytes: more than a datagram without EDNS has", len(reply))
		}
		if parsed.ID != binary.BigEndian.Uint16(message) || !parsed.Response {
			t.Fatal("not an answer to this")
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	message := query(b, func(*dnsmessage.Message) {})
	for range b.N {
		if Answer(names, message) == nil {
			b.Fatal(errors.New("no answer"))
		}
	}
}
