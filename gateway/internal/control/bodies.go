package control

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"

	"fuse/gateway/internal/egress"
	"fuse/gateway/internal/policy"
)

const (
	maxResolvers      = 16
	maxRanges         = 4_096
	maxConnectionsTop = 65_536
	maxPolicies       = 4
)

// read takes a body of exactly one JSON value, without a field that is not known.
func read(body io.Reader, into any) error {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return err
		}
		return invalid("body: %.200s", err.Error())
	}
	if _, err := decoder.Token(); err != io.EOF {
		return invalid("body: more than one value")
	}
	return nil
}

func (s *Server) health(*http.Request) (any, error) {
	return map[string]any{"protocol": protocol, "version": s.version, "pid": os.Getpid()}, nil
}

func (s *Server) configure(r *http.Request) (any, error) {
	config, err := readConfig(r.Body)
	if err != nil {
		return nil, err
	}
	s.gateway.Configure(config)
	s.logger.Info("configured", "resolvers", len(config.Resolvers), "private", len(config.PrivateAllow))
	return nil, nil
}

func readConfig(body io.Reader) (egress.Config, error) {
	var wire struct {
		Resolvers     []string `json:"resolvers"`
		PrivateAllow  []string `json:"private_allow"`
		HostAddresses []string `json:"host_addresses"`
		Connections   int      `json:"max_connections_per_vm"`
	}
	if err := read(body, &wire); err != nil {
		return egress.Config{}, err
	}
	if len(wire.Resolvers) == 0 || len(wire.Resolvers) > maxResolvers {
		return egress.Config{}, invalid("resolvers: must be 1 to %d", maxResolvers)
	}
	for _, resolver := range wire.Resolvers {
		if parsed, err := netip.ParseAddrPort(resolver); err != nil || parsed.Port() == 0 {
			return egress.Config{}, invalid("resolvers: %.100q is not address:port", resolver)
		}
	}
	if wire.Connections < 1 || wire.Connections > maxConnectionsTop {
		return egress.Config{}, invalid("max_connections_per_vm: must be 1 to %d", maxConnectionsTop)
	}
	privateAllow, err := ranges("private_allow", wire.PrivateAllow)
	if err != nil {
		return egress.Config{}, err
	}
	hostAddresses, err := ranges("host_addresses", wire.HostAddresses)
	if err != nil {
		return egress.Config{}, err
	}
	return egress.Config{
		Resolvers: wire.Resolvers, PrivateAllow: privateAllow, HostAddresses: hostAddresses, MaxConnectionsPerVM: wire.Connections,
	}, nil
}

func ranges(field string, texts []string) ([]netip.Prefix, error) {
	if len(texts) > maxRanges {
		return nil, invalid("%s: more than %d", field, maxRanges)
	}
	parsed := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		prefix, err := policy.ParsePrefix(text)
		if err != nil {
			return nil, invalid("%s: %.100q is no address or range", field, text)
		}
		parsed = append(parsed, prefix)
	}
	return parsed, nil
}

type attachment struct {
	slot           string
	policies       policy.Set
	bytesPerSecond int
}

func readAttachment(body io.Reader) (attachment, error) {
	var wire struct {
		Slot     string          `json:"slot"`
		Policies []policy.Policy `json:"policies"`
		Rate     *int            `json:"rate_bytes_per_second"`
	}
	if err := read(body, &wire); err != nil {
		return attachment{}, err
	}
	if !validName.MatchString(wire.Slot) {
		return attachment{}, invalid("slot: not a slot's name")
	}
	if len(wire.Policies) == 0 || len(wire.Policies) > maxPolicies {
		return attachment{}, invalid("policies: must be 1 to %d", maxPolicies)
	}
	for i := range wire.Policies {
		if err := wire.Policies[i].Validate(); err != nil {
			return attachment{}, invalid("policies: %s", err)
		}
		// Shown as lists, never as null.
		wire.Policies[i].Allow = append([]policy.Rule{}, wire.Policies[i].Allow...)
		wire.Policies[i].Deny = append([]policy.Rule{}, wire.Policies[i].Deny...)
	}
	a := attachment{slot: wire.Slot, policies: wire.Policies}
	if wire.Rate != nil {
		if *wire.Rate < 1 {
			return attachment{}, invalid("rate_bytes_per_second: must be positive")
		}
		a.bytesPerSecond = *wire.Rate
	}
	return a, nil
}

func (s *Server) attach(r *http.Request) (any, error) {
	id, err := idOf(r)
	if err != nil {
		return nil, err
	}
	a, err := readAttachment(r.Body)
	if err != nil {
		return nil, err
	}
	return nil, s.gateway.Attach(id, a.slot, a.policies, a.bytesPerSecond)
}

func (s *Server) detach(r *http.Request) (any, error) {
	return s.gateway.Detach(r.PathValue("id"))
}

func (s *Server) show(r *http.Request) (any, error) {
	return s.gateway.Details(r.PathValue("id"))
}

func (s *Server) list(*http.Request) (any, error) {
	return map[string]any{"vms": s.gateway.Reports()}, nil
}

func (s *Server) removeSlot(r *http.Request) (any, error) {
	s.gateway.RemoveSlot(r.PathValue("slot"))
	return nil, nil
}

func idOf(r *http.Request) (string, error) {
	id := r.PathValue("id")
	if !validName.MatchString(id) {
		return "", invalid("id: must be 1 to 128 letters, digits, \".\", \"_\" or \"-\"")
	}
	return id, nil
}
