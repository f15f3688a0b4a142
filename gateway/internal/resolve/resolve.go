// Package resolve finds the real addresses of a name, at the moment of a connection, from the resolvers that the host names. Nothing of what a guest
// asks reaches it: only names that its policy allows, and that it connects to.
package resolve

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	maxAliases   = 8
	maxAddresses = 32
	maxCached    = 10_000
	minTTL       = time.Second
	maxTTL       = 5 * time.Minute
	negativeTTL  = 5 * time.Second
	lookupLimit  = 10 * time.Second
	maxRounds    = 3
	// RFC 8305 has 50 ms, between hosts that are not emulated.
	secondFamilyWait = 300 * time.Millisecond
)

var (
	// ErrNoAddress: the name does not exist, or has no address.
	ErrNoAddress = errors.New("the name has no address")
	// ErrNoAnswer: no resolver could say.
	ErrNoAnswer = errors.New("no resolver answered")
)

type Resolver struct {
	mutex     sync.Mutex
	resolvers []string
	cached    map[string]*lookup
}

// lookup is under way until done is closed.
type lookup struct {
	done      chan struct{}
	addresses []netip.Addr
	err       error
	expires   time.Time
}

func New() *Resolver { return &Resolver{cached: map[string]*lookup{}} }

// Configure names the resolvers, asked in this order.
func (r *Resolver) Configure(resolvers []string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.resolvers = resolvers
	r.cached = map[string]*lookup{}
}

// Addresses gives the IPv6 and IPv4 addresses of a name, as its resolver ordered them. Look-ups of one name at a time share one.
func (r *Resolver) Addresses(ctx context.Context, name string) ([]netip.Addr, error) {
	r.mutex.Lock()
	found := r.cached[name]
	if found == nil || found.over() {
		found = &lookup{done: make(chan struct{})}
		r.makeRoom()
		r.cached[name] = found
		go found.run(name, r.resolvers)
	}
	r.mutex.Unlock()
	select {
	case <-found.done:
		return found.addresses, found.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *Resolver) makeRoom() {
	for name, old := range r.cached {
		if len(r.cached) < maxCached {
			return
		}
		// Go's order is random enough: whoever fills the cache costs others a look-up.
		if old.ended() {
			delete(r.cached, name)
		}
	}
}

func (l *lookup) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

func (l *lookup) over() bool { return l.ended() && time.Now().After(l.expires) }

func (l *lookup) run(name string, resolvers []string) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupLimit)
	defer cancel()
	defer close(l.done)
	type half struct {
		addresses []netip.Addr
		ttl       time.Duration
		err       error
	}
	both := make(chan half, 2)
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeAAAA, dnsmessage.TypeA} {
		go func() {
			addresses, ttl, err := ask(ctx, resolvers, name, kind)
			both <- half{addresses, ttl, err}
		}()
	}
	ttl, failed := maxTTL, false
	for remaining, late := 2, (<-chan time.Time)(nil); remaining > 0; remaining-- {
		var h half
		select {
		case h = <-both:
		case <-late:
			remaining = 0 // one family is enough where the other keeps us waiting
			continue
		}
		failed = failed || h.err != nil
		if len(h.addresses) > 0 {
			l.addresses = append(l.addresses, h.addresses...)
			ttl = min(ttl, h.ttl)
			late = time.After(secondFamilyWait)
		}
	}
	switch {
	case len(l.addresses) > 0:
		l.expires = time.Now().Add(max(ttl, minTTL))
	case failed:
		l.err = ErrNoAnswer // asked again at the next connection
	default:
		l.err = ErrNoAddress
		l.expires = time.Now().Add(negativeTTL)
	}
}

// ask follows aliases until there are addresses or there is nothing more.
func ask(ctx context.Context, resolvers []string, name string, kind dnsmessage.Type) ([]netip.Addr, time.Duration, error) {
	ttl := maxTTL
	for range maxAliases {
		found, err := askAny(ctx, resolvers, name, kind)
		if err != nil || found.nxdomain {
			return nil, 0, err
		}
		addresses, target, chainTTL := follow(found.records, name)
		ttl = min(ttl, chainTTL)
		if len(addresses) > 0 || target == name {
			return addresses, ttl, nil
		}
		name = target
	}
	return nil, 0, nil
}

func askAny(ctx context.Context, resolvers []string, name string, kind dnsmessage.Type) (answer, error) {
	question, err := dnsmessage.NewName(name + ".")
	if err != nil {
		return answer{nxdomain: true}, nil
	}
	for range maxRounds {
		heard := true
		for _, resolver := range resolvers {
			found, err := exchange(ctx, resolver, question, kind)
			if err == nil && !found.temporary {
				return found, nil
			}
			heard = heard && err == nil
		}
		if heard || ctx.Err() != nil {
			break // all of them have said that they cannot tell
		}
	}
	return answer{}, ErrNoAnswer
}

// follow gives the addresses at the end of the chain of aliases that begins with name, and that end.
func follow(records []dnsmessage.Resource, name string) (addresses []netip.Addr, end string, ttl time.Duration) {
	ttl = maxTTL
	for range maxAliases {
		alias := ""
		for _, record := range records {
			if !strings.EqualFold(strings.TrimSuffix(record.Header.Name.String(), "."), name) {
				continue
			}
			recordTTL := time.Duration(record.Header.TTL) * time.Second
			switch body := record.Body.(type) {
			case *dnsmessage.AResource:
				addresses = append(addresses, netip.AddrFrom4(body.A))
			case *dnsmessage.AAAAResource:
				addresses = append(addresses, netip.AddrFrom16(body.AAAA))
			case *dnsmessage.CNAMEResource:
				alias = strings.TrimSuffix(body.CNAME.String(), ".")
			default:
				continue
			}
			ttl = min(ttl, recordTTL)
		}
		if len(addresses) > maxAddresses {
			addresses = addresses[:maxAddresses]
		}
		if len(addresses) > 0 || alias == "" {
			return addresses, name, ttl
		}
		name = alias
	}
	return nil, name, ttl
}
