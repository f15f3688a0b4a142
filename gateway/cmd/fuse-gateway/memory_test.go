package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const (
	attacking = 1_000
	// One guest can have the gateway take so much more than it takes without it, whatever it sends.
	maxGrownMiB = 96
)

// manyLines is nearly as long as a request's head may be, and takes the most once it is parsed. The end of it never comes.
func manyLines() string {
	head := bytes.NewBufferString("GET / HTTP/1.1\r\nHost: good.test\r\n")
	for i := 0; head.Len() < 16<<10-16; i++ {
		fmt.Fprintf(head, "%s:\r\n", strconv.FormatInt(int64(i), 36))
	}
	return head.String()
}

// crowd holds that many connections, all of which have sent this. Those that are reset are counted.
func (r *rig) crowd(t *testing.T, port int, sent string) {
	t.Helper()
	address := net.JoinHostPort(r.lookUp(t, "good.test"), strconv.Itoa(port))
	for range attacking {
		connection, err := r.Dial(t, address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(connection, sent) // it may be reset already
	}
}

func (r *rig) rssMiB(t *testing.T) float64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.pid(t)))
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	kib, err := strconv.Atoi(string(match[1]))
	if err != nil {
		t.Fatal(err)
	}
	return float64(kib) / 1024
}

// TestOneGuestCannotFillTheMemory has one guest take as much as it can, while another one is served.
func TestOneGuestCannotFillTheMemory(t *testing.T) {
	for name, attack := range map[string]struct {
		port    int
		sent    string
		refused bool
	}{
		"heads that never end":        {80, manyLines(), true},
		"first bytes that never end":  {80, "GET /" + strings.Repeat("a", 16<<10-16), true},
		"requests nobody answers":     {80, strings.Replace(manyLines(), "GET /", "GET /never", 1) + "\r\n", true},
		"ClientHellos that never end": {443, "\x16\x03\x01\x3f\xf0\x01\x00\x3f\xec" + strings.Repeat("\n", 16<<10-64), true},
		"look-ups that never end":     {53, "\x03\xff" + strings.Repeat("a", 1_022), false},
		"answers that nobody reads":   {80, "GET /endless HTTP/1.1\r\nHost: good.test\r\n\r\n", false},
		"bytes that nobody reads":     {9001, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			raiseOpenFiles(t)
			r := start(t)
			r.dns.Set("good.test", shared)
			r.configure(t, nil, attacking+24)
			r.attach(t, allowing("good.test", "good.test@9001"))
			neighbour := &rig{Net: r.Net.Neighbour(t), api: r.api, socket: r.socket}
			neighbour.HandOver(t, r.socket, "slot-2")
			r.call(t, "PUT", "/vms/vm-2", object{"slot": "slot-2", "policies": allowing("good.test")}, http.StatusNoContent)
			served := func() {
				_, body, err := ask(t, neighbour.reach(t, "good.test", 80), "GET /mine HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n")
				if err != nil || !strings.Contains(body, "GET /mine host=good.test") {
					t.Fatalf("%q %v", body, err)
				}
			}
			served()
			before := r.rssMiB(t)
			r.crowd(t, attack.port, attack.sent)
			for range 20 {
				served()
			}
			grown := r.rssMiB(t) - before
			t.Logf("%.0f MiB, and %.0f MiB more", before, grown)
			if grown > maxGrownMiB {
				t.Errorf("it takes %.0f MiB more", grown)
			}
			var seen report
			if err := json.Unmarshal(r.call(t, "GET", "/vms/"+vmID, nil, http.StatusOK), &seen); err != nil {
				t.Fatal(err)
			}
			if latest := seen.LatestRefused; attack.refused != (len(latest) > 0) || attack.refused && latest[len(latest)-1].Reason != "too_many" {
				t.Errorf("%+v", latest)
			}
		})
	}
}

func raiseOpenFiles(t *testing.T) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	before := limit
	limit.Cur, limit.Max = 8_192, max(limit.Max, 8_192)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) })
}
