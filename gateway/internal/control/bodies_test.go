package control

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"fuse/gateway/internal/policy"
)

const goodVM = `{"slot":"fuse-1","policies":[{"egress":"allowlist","allow":[{"host":"*.a.example","ports":[{"from":1,"to":65535}]},
	{"cidr":"::ffff:10.0.0.0/104","ports":[{"from":22,"to":22}]}],"deny":[]}],"rate_bytes_per_second":1000}`

func TestAttachment(t *testing.T) {
	a, err := readAttachment(strings.NewReader(goodVM))
	if err != nil || a.slot != "fuse-1" || a.bytesPerSecond != 1000 {
		t.Fatalf("%+v %v", a, err)
	}
	shown, err := json.Marshal(a.policies)
	const want = `[{"egress":"allowlist","allow":[{"host":"*.a.example","ports":[{"from":1,"to":65535}]},{"cidr":"10.0.0.0/8","ports":[{"from":22,"to":22}]}],"deny":[]}]`
	if err != nil || string(shown) != want {
		t.Fatalf("%s %v", shown, err)
	}
	for what, body := range map[string]string{
		"a field that is not known": strings.Replace(goodVM, `"slot"`, `"more":1,"slot"`, 1),
		"such a field of a rule":    strings.Replace(goodVM, `"host"`, `"more":1,"host"`, 1),
		"two values":                goodVM + "{}",
		"no JSON":                   "{",
		"both":                      strings.Replace(goodVM, `"host":`, `"cidr":"10.0.0.0/8","host":`, 1),
		"no ports":                  strings.Replace(goodVM, `{"from":22,"to":22}`, ``, 1),
		"port 0":                    strings.Replace(goodVM, `"from":22`, `"from":0`, 1),
		"ports in reverse":          strings.Replace(goodVM, `"from":22`, `"from":23`, 1),
		"port 65536":                strings.Replace(goodVM, `65535`, `65536`, 1),
		"no name":                   strings.Replace(goodVM, `*.a.example`, `*.*.example`, 1),
		"an address as name":        strings.Replace(goodVM, `*.a.example`, `10.0.0.1`, 1),
		"no range":                  strings.Replace(goodVM, `/104`, `/130`, 1),
		"too wide a mapped range":   strings.Replace(goodVM, `/104`, `/90`, 1),
		"a level":                   strings.Replace(goodVM, `"allowlist"`, `"some"`, 1),
		"no slot":                   strings.Replace(goodVM, `fuse-1`, ``, 1),
		"a path":                    strings.Replace(goodVM, `fuse-1`, `../x`, 1),
		"no rate":                   strings.Replace(goodVM, `1000`, `0`, 1),
		"too many rules": strings.Replace(goodVM, `"deny":[]`,
			`"deny":[`+strings.TrimSuffix(strings.Repeat(`{"host":"a","ports":[{"from":1,"to":1}]},`, policy.MaxRules+1), ",")+`]`, 1),
	} {
		var f *fault
		if _, err := readAttachment(strings.NewReader(body)); !errors.As(err, &f) || f.status != http.StatusBadRequest {
			t.Errorf("%s: %v", what, err)
		}
	}
}

const goodConfig = `{"resolvers":["1.1.1.1:53","[2606:4700::1111]:53"],"private_allow":["10.0.0.0/8"],"host_addresses":["8.8.8.8","fe80::1"],"max_connections_per_vm":100}`

func TestConfig(t *testing.T) {
	if c, err := readConfig(strings.NewReader(goodConfig)); err != nil || len(c.Resolvers) != 2 || c.MaxConnectionsPerVM != 100 || c.HostAddresses[0].Bits() != 32 {
		t.Fatalf("%+v %v", c, err)
	}
	for what, body := range map[string]string{
		"no resolver":   strings.Replace(goodConfig, `"1.1.1.1:53","[2606:4700::1111]:53"`, "", 1),
		"a name":        strings.Replace(goodConfig, "1.1.1.1:53", "dns.example:53", 1),
		"no port":       strings.Replace(goodConfig, "1.1.1.1:53", "1.1.1.1", 1),
		"no range":      strings.Replace(goodConfig, "10.0.0.0/8", "10.0.0.0/80", 1),
		"no connection": strings.Replace(goodConfig, "100", "0", 1),
		"more":          strings.Replace(goodConfig, "{", `{"x":1,`, 1),
	} {
		if c, err := readConfig(strings.NewReader(body)); err == nil {
			t.Errorf("%s: %+v", what, c)
		}
	}
}

func FuzzBodies(f *testing.F) {
	f.Add(goodVM)
	f.Add(goodConfig)
	f.Add(`{"slot":"a","policies":[{"egress":"none","allow":null,"deny":null}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		_, _ = readConfig(strings.NewReader(body))
		a, err := readAttachment(strings.NewReader(body))
		if err != nil {
			return
		}
		// What is taken is shown as it is taken.
		shown, err := json.Marshal(a.policies)
		if err != nil {
			t.Fatal(err)
		}
		var again policy.Set
		if err := json.Unmarshal(shown, &again); err != nil {
			t.Fatalf("%v: %s", err, shown)
		}
		if reshown, err := json.Marshal(again); err != nil || string(reshown) != string(shown) {
			t.Fatalf("%s, then %s", shown, reshown)
		}
	})
}
