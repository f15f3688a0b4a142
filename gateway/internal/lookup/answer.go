// Package lookup answers a guest's DNS from its policy. No query goes anywhere: an allowed name gets an address of the VM's own, any other does not
// exist.
package lookup

import (
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"

	"fuse/gateway/internal/policy"
)

const (
	ttlSeconds = 30
	// What we say we take; no query is that long.
	udpPayload = 1232
	// RFC 8914.
	optionExtendedError = 15
	blocked             = 15
	prohibited          = 18
	otherError          = 0
)

// Names decides on names and gives them addresses.
type Names interface {
	// Lookup is for a name as rules have it.
	Lookup(name string) (netip.Addr, policy.Reason)
}

// Answer gives the response to a message, or nil where there is to be none. Whatever the message is, it takes no more than reading it once.
func Answer(names Names, message []byte) []byte {
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	if err != nil || header.Response {
		return nil
	}
	reply := dnsmessage.Header{ID: header.ID, Response: true, OpCode: header.OpCode, RecursionDesired: header.RecursionDesired, RecursionAvailable: true}
	if header.OpCode != 0 {
		reply.RCode = dnsmessage.RCodeNotImplemented
		return finish(reply, nil, nil, nil)
	}
	question, edns, ok := parse(&parser)
	if !ok {
		reply.RCode = dnsmessage.RCodeFormatError
		return finish(reply, nil, nil, nil)
	}
	if edns != nil && edns.version != 0 {
		// BADVERS is 16: one in the upper bits, which the option has.
		edns.extendedRCode = 1
		return finish(reply, question, edns, nil)
	}
	if question.Class != dnsmessage.ClassINET {
		reply.RCode = dnsmessage.RCodeRefused
		return finish(reply, question, edns, nil)
	}
	address, reason := lookUp(names, question.Name.String())
	switch reason {
	case policy.Allowed:
		if question.Type != dnsmessage.TypeA {
			return finish(reply, question, edns, nil)
		}
		return finish(reply, question, edns, &address)
	case policy.TooMany:
		reply.RCode = dnsmessage.RCodeRefused
		edns.explain(otherError, "this VM has looked up too many names")
	case policy.Denied:
		reply.RCode = dnsmessage.RCodeNameError
		edns.explain(blocked, "denied by the network policy")
	default:
		reply.RCode = dnsmessage.RCodeNameError
		edns.explain(prohibited, "not allowed by the network policy")
	}
	return finish(reply, question, edns, nil)
}

func lookUp(names Names, asked string) (netip.Addr, policy.Reason) {
	name, ok := policy.Name(asked)
	if !ok {
		return netip.Addr{}, policy.NotAllowed
	}
	return names.Lookup(name)
}

// options are those of EDNS, in query or response.
type options struct {
	version       uint8
	extendedRCode uint8
	errorCode     uint16
	errorText     string
	hasError      bool
}

func (o *options) explain(code uint16, text string) {
	if o != nil {
		o.errorCode, o.errorText, o.hasError = code, text, true
	}
}

// parse takes a query of exactly one question. Records of other sections are skipped, at most one of them is EDNS's.
func parse(parser *dnsmessage.Parser) (*dnsmessage.Question, *options, bool) {
	question, err := parser.Question()
	if err != nil {
		return nil, nil, false
	}
	if _, err := parser.Question(); err != dnsmessage.ErrSectionDone {
		return nil, nil, false
	}
	if parser.SkipAllAnswers() != nil || parser.SkipAllAuthorities() != nil {
		return nil, nil, false
	}
	var edns *options
	for {
		header, err := parser.AdditionalHeader()
		if err == dnsmessage.ErrSectionDone {
			return &question, edns, true
		}
		if err != nil {
			return nil, nil, false
		}
		if header.Type == dnsmessage.TypeOPT {
			if edns != nil {
				return nil, nil, false
			}
			edns = &options{version: uint8(header.TTL >> 16)}
		}
		if parser.SkipAdditional() != nil {
			return nil, nil, false
		}
	}
}

func finish(header dnsmessage.Header, question *dnsmessage.Question, edns *options, address *netip.Addr) []byte {
	message := dnsmessage.Message{Header: header}
	if question != nil {
		message.Questions = []dnsmessage.Question{*question}
	}
	if address != nil {
		message.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: ttlSeconds},
			Body:   &dnsmessage.AResource{A: address.As4()},
		}}
	}
	if edns != nil {
		resource := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{
			Name: dnsmessage.MustNewName("."), Class: udpPayload, TTL: uint32(edns.extendedRCode) << 24,
		}}
		body := &dnsmessage.OPTResource{}
		if edns.hasError {
			data := append([]byte{byte(edns.errorCode >> 8), byte(edns.errorCode)}, edns.errorText...)
			body.Options = []dnsmessage.Option{{Code: optionExtendedError, Data: data}}
		}
		resource.Body = body
		message.Additionals = []dnsmessage.Resource{resource}
	}
	packed, err := message.Pack()
	if err != nil {
		return nil // a name that cannot be packed was not unpacked either
	}
	return packed
}
