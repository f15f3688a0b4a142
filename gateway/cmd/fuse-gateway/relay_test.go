package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fuse/gateway/internal/smallnet"
)

func opaque(t *testing.T, r *rig) {
	r.attach(t, allowing("good.test@22", "good.test@9000"))
	ssh := r.reach(t, "good.test", 22)
	reader := bufio.NewReader(ssh)
	if line, err := reader.ReadString('\n'); line != "SSH-2.0-first\r\n" {
		t.Fatalf("%q %v", line, err)
	}
	_, _ = io.WriteString(ssh, "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	if line, err := reader.ReadString('\n'); line != "GET / HTTP/1.1\r\n" {
		t.Fatalf("what follows passes as it is: %q %v", line, err)
	}
	until(t, "it is noted as open", func() bool {
		list := r.report(t).Connections
		return len(list) > 0 && list[0].Verdict == "allowed" && list[0].Protocol == "tcp" && list[0].Duration == nil && list[0].Received > 0
	})

	// The half that the client ends is ended for the server, and its answer still comes.
	const size = 5_000_000
	half := r.reach(t, "good.test", 9000)
	if _, err := half.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	_ = half.CloseWrite()
	if answer, err := io.ReadAll(half); string(answer) != fmt.Sprintf("%d bytes", size) {
		t.Fatalf("%q %v", answer, err)
	}
	until(t, "its bytes are counted", func() bool {
		list := r.report(t).Connections
		return list[0].Sent == size && list[0].Received == len("5000000 bytes") && list[0].Duration != nil && list[0].Address == shared
	})
}

// rates: more than may go through at once takes at least as long as the rest needs.
func rates(t *testing.T, r *rig) {
	const rate, size = 400_000, 500_000
	r.call(t, "PUT", "/vms/"+vmID, object{"slot": slotName, "policies": allowing("good.test@9000"), "rate_bytes_per_second": rate}, http.StatusNoContent)
	connection := r.reach(t, "good.test", 9000)
	began := time.Now()
	if _, err := connection.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	_ = connection.CloseWrite()
	if answer, err := io.ReadAll(connection); string(answer) != fmt.Sprintf("%d bytes", size) {
		t.Fatalf("%q %v", answer, err)
	}
	const atOnce = rate / 2 // twice what is, for what had been saved
	if took, least := time.Since(began), time.Second*(size-atOnce)/rate; took < least {
		t.Fatalf("%s, in less than %s", took, least)
	}
	r.attach(t, allowing())
}

func limits(t *testing.T, r *rig) {
	r.configure(t, nil, 3)
	r.attach(t, allowing("good.test@22"))
	var held []net.Conn
	for range 3 {
		connection := r.reach(t, "good.test", 22)
		if _, err := connection.Read(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		held = append(held, connection)
	}
	r.refuses(t, "good.test", 22)
	r.refuses(t, "good.test", 22)
	if e := r.refusedFor(t, "good.test", "too_many"); e.Count != 2 {
		t.Fatalf("equal refusals are one entry: %+v", e)
	}
	_ = held[0].Close()
	until(t, "there is room again", func() bool {
		connection, err := r.try(t, "good.test", 22)
		if err == nil {
			_, err = connection.Read(make([]byte, 64))
		}
		return err == nil
	})
	r.configure(t, nil, 40)
}

func changes(t *testing.T, r *rig) {
	r.attach(t, allowing("good.test@22", "one.wild.test@22", shared+"/32@22"))
	greeted := func(name string) *net.TCPConn {
		connection := r.reach(t, name, 22)
		if _, err := io.ReadFull(connection, make([]byte, len("SSH-2.0-first\r\n"))); err != nil {
			t.Fatal(err)
		}
		return connection
	}
	good, wild, direct := greeted("good.test"), greeted("one.wild.test"), greeted(shared)
	r.attach(t, allowing("good.test@22"))
	mustReset(t, wild)
	mustReset(t, direct)
	_, _ = io.WriteString(good, "on")
	if _, err := io.ReadFull(good, make([]byte, 2)); err != nil {
		t.Fatalf("what stays allowed was cut: %v", err)
	}
	denying := allowing("good.test@22")
	denying[0]["deny"] = canonical([]string{shared + "/32@22"})
	r.attach(t, denying)
	mustReset(t, good)

	r.attach(t, []object{{"egress": "none", "allow": []object{}, "deny": []object{}}})
	r.refuses(t, shared, 22)
	r.refusedFor(t, shared, "not_allowed")

	// With the VM everything goes, and its slot answers nobody.
	r.attach(t, allowing("good.test@22"))
	last := greeted("good.test")
	var totals report
	if err := json.Unmarshal(r.call(t, "DELETE", "/vms/"+vmID, nil, http.StatusOK), &totals); err != nil || totals.Allowed == 0 || totals.Refused == 0 || totals.Received == 0 {
		t.Fatalf("%+v %v", totals, err)
	}
	mustReset(t, last)
	r.refuses(t, shared, 22)
	r.call(t, "GET", "/vms/"+vmID, nil, http.StatusNotFound)
	r.call(t, "DELETE", "/vms/"+vmID, nil, http.StatusNotFound)
}

func slots(t *testing.T, r *rig) {
	r.attach(t, allowing("good.test@22"))
	r.call(t, "PUT", "/vms/other", object{"slot": slotName, "policies": allowing()}, http.StatusConflict)
	r.call(t, "PUT", "/vms/other", object{"slot": "unknown", "policies": allowing()}, http.StatusNotFound)
	old := r.reach(t, "good.test", 22)
	if _, err := old.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	r.call(t, "DELETE", "/slots/"+slotName, nil, http.StatusNoContent)
	mustReset(t, old)
	r.call(t, "DELETE", "/slots/"+slotName, nil, http.StatusNoContent)
	r.HandOver(t, r.socket, slotName)
	if _, err := r.reach(t, "good.test", 22).Read(make([]byte, 64)); err != nil {
		t.Fatalf("a slot that came back: %v", err)
	}

	listener := r.Slot.Listen(t, "0.0.0.0:7")
	for what, line := range map[string]string{"kind": `{"slot":"x"}` + "\n", "name": `{"slot":"../x"}` + "\n", "line": "x\n"} {
		if answer := smallnet.SendDescriptors(t, r.socket, line, listener, listener, listener); !strings.HasPrefix(answer, "error: ") {
			t.Fatalf("%s: %q", what, answer)
		}
	}
	if answer := smallnet.SendDescriptors(t, r.socket, `{"slot":"x"}`+"\n", listener); !strings.Contains(answer, "1 descriptors") {
		t.Fatalf("%q", answer)
	}
	for body, want := range map[string]int{
		`{"slot":"slot-1","policies":[]}`:                                                                  400,
		`{"slot":"slot-1","policies":[{"egress":"all","allow":[],"deny":[]}]}`:                             400,
		`{"slot":"slot-1","policies":[{"egress":"none","allow":[],"deny":[],"more":1}]}`:                   400,
		`{"slot":"slot-1","policies":[{"egress":"allowlist","allow":[{"host":"a.b"}],"deny":[]}]}`:         400,
		`{"slot":"slot-1","policies":[{"egress":"none","allow":[],"deny":[]}],"rate_bytes_per_second":-1}`: 400,
	} {
		r.call(t, "PUT", "/vms/"+vmID, json.RawMessage(body), want)
	}
}

func (r *rig) pid(t *testing.T) int {
	t.Helper()
	var health struct{ Protocol, Pid int }
	if err := json.Unmarshal(r.call(t, "GET", "/health", nil, http.StatusOK), &health); err != nil || health.Protocol != 1 {
		t.Fatalf("%+v %v", health, err)
	}
	return health.Pid
}

func (r *rig) descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.pid(t)))
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// unprivileged looks at every thread.
func unprivileged(t *testing.T, r *rig) {
	if output, err := r.Gateway.Command(r.binary, "--directory", filepath.Dir(r.socket)).CombinedOutput(); err == nil || !strings.Contains(string(output), "another gateway") {
		t.Fatalf("a second one: %s %v", output, err)
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", r.pid(t)))
	if err != nil || len(threads) == 0 {
		t.Fatal(err)
	}
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		for _, line := range []string{
			"Uid:\t64999\t64999\t64999\t64999", "Gid:\t64999\t64999\t64999\t64999", "Groups:\t \n", "NoNewPrivs:\t1", "Seccomp:\t2",
			"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000",
		} {
			if !strings.Contains(string(status), line) {
				t.Fatalf("no %q in\n%s", line, status)
			}
		}
	}
}
