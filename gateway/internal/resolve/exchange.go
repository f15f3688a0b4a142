package resolve

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	attemptTimeout = 2 * time.Second
	udpPayload     = 1232
)

var errTruncated = errors.New("answer is truncated")

// answer is what one resolver said of one type.
type answer struct {
	records   []dnsmessage.Resource
	nxdomain  bool
	temporary bool // SERVFAIL, REFUSED and the like: another resolver may know
}

// exchange asks one resolver, by UDP and, where the answer does not fit, by TCP.
func exchange(ctx context.Context, resolver string, name dnsmessage.Name, kind dnsmessage.Type) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	id := uint16(rand.Uint32()) // ChaCha8, seeded by the kernel
	question := dnsmessage.Question{Name: name, Type: kind, Class: dnsmessage.ClassINET}
	query, err := buildQuery(id, question)
	if err != nil {
		return answer{}, err
	}
	found, err := over(ctx, "udp", resolver, query, id, question)
	if errors.Is(err, errTruncated) {
		found, err = over(ctx, "tcp", resolver, query, id, question)
	}
	return found, err
}

func over(ctx context.Context, network, resolver string, query []byte, id uint16, question dnsmessage.Question) (answer, error) {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, network, resolver)
	if err != nil {
		return answer{}, err
	}
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if network == "udp" {
		return overUDP(connection, query, id, question)
	}
	return overTCP(connection, query, id, question)
}

func overUDP(connection net.Conn, query []byte, id uint16, question dnsmessage.Question) (answer, error) {
	if _, err := connection.Write(query); err != nil {
		return answer{}, err
	}
	buffer := make([]byte, 4096)
	for {
		n, err := connection.Read(buffer)
		if err != nil {
			return answer{}, err
		}
		found, ours, err := parseAnswer(buffer[:n], id, question)
		if ours {
			return found, err
		}
	}
}

func overTCP(connection net.Conn, query []byte, id uint16, question dnsmessage.Question) (answer, error) {
	framed := binary.BigEndian.AppendUint16(nil, uint16(len(query)))
	if _, err := connection.Write(append(framed, query...)); err != nil {
		return answer{}, err
	}
	var length [2]byte
	if _, err := io.ReadFull(connection, length[:]); err != nil {
		return answer{}, err
	}
	message := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(connection, message); err != nil {
		return answer{}, err
	}
	found, ours, err := parseAnswer(message, id, question)
	if !ours {
		return answer{}, errors.New("answer to another question")
	}
	return found, err
}

func buildQuery(id uint16, question dnsmessage.Question) ([]byte, error) {
	builder := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: id, RecursionDesired: true})
	builder.EnableCompression()
	var options dnsmessage.ResourceHeader
	for _, err := range []error{
		builder.StartQuestions(), builder.Question(question), builder.StartAdditionals(),
		options.SetEDNS0(udpPayload, dnsmessage.RCodeSuccess, false), builder.OPTResource(options, dnsmessage.OPTResource{}),
	} {
		if err != nil {
			return nil, err
		}
	}
	return builder.Finish()
}

// parseAnswer takes a message for ours when id and question are those that were asked.
func parseAnswer(message []byte, id uint16, question dnsmessage.Question) (found answer, ours bool, err error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	if err != nil || !header.Response || header.ID != id {
		return answer{}, false, nil
	}
	echoed, err := parser.Question()
	if err != nil || echoed.Type != question.Type || echoed.Class != question.Class ||
		!strings.EqualFold(echoed.Name.String(), question.Name.String()) {
		return answer{}, false, nil
	}
	if header.Truncated {
		return answer{}, true, errTruncated
	}
	switch header.RCode {
	case dnsmessage.RCodeSuccess:
	case dnsmessage.RCodeNameError:
		return answer{nxdomain: true}, true, nil
	default:
		return answer{temporary: true}, true, nil
	}
	if err := parser.SkipAllQuestions(); err != nil {
		return answer{}, true, err
	}
	records, err := parser.AllAnswers()
	return answer{records: records}, true, err
}
