package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

func (g *guest) processes() map[int]protocol.Process {
	g.Helper()
	code, text := g.do("GET", "/v1/processes", nil)
	var list protocol.ProcessList
	if err := json.Unmarshal(text, &list); err != nil || code != http.StatusOK || list.Truncated {
		g.Fatalf("%d %s", code, text)
	}
	byPid := map[int]protocol.Process{}
	for _, each := range list.Processes {
		byPid[each.Pid] = each
	}
	return byPid
}

func TestProcessesAreListedAsTheyAre(t *testing.T) {
	g := newGuest(t)
	spec := protocol.ExecSpec{Argv: []string{"python3", "-c", "import time\nb=bytearray(50<<20)\nfor i in range(0,len(b),4096): b[i]=1\nprint('ready',flush=True)\nend=time.process_time()+0.3\nwhile time.process_time()<end: pass\nprint('spent',flush=True)\ntime.sleep(60)"}, Cwd: "/", User: "65534"}
	started := time.Now()
	c := g.open("a", &spec)
	c.until("spent")
	found, listed := g.processes()[g.status("a").Pid]
	if !listed || found.Ppid != os.Getpid() || found.User != "nobody" || !strings.Contains("RS", found.State) || strings.Join(found.Command, "|") != strings.Join(spec.Argv, "|") {
		t.Errorf("%+v", found)
	}
	if found.CPUSeconds < 0.3 || found.CPUSeconds > 30 || found.MemoryBytes < 50<<20 || found.MemoryBytes > 200<<20 {
		t.Errorf("%+v", found)
	}
	at, err := time.Parse(time.RFC3339Nano, found.StartedAt)
	if err != nil || at.Sub(started).Abs() > 5*time.Second {
		t.Errorf("%s, started %s, %v", found.StartedAt, started, err)
	}
	g.do("DELETE", "/v1/execs/a", nil)
	if _, listed := g.processes()[found.Pid]; listed {
		t.Error("a killed process is listed")
	}
}

func TestACommandLineIsCut(t *testing.T) {
	g := newGuest(t)
	g.open("a", &protocol.ExecSpec{Argv: []string{"sh", "-c", "echo ready; sleep 60; :", strings.Repeat("x", 100_000)}, Cwd: "/"}).until("ready")
	found := g.processes()[g.status("a").Pid]
	if joined := strings.Join(found.Command, " "); len(joined) > 4<<10 || !strings.HasPrefix(joined, "sh -c echo ready; sleep 60; : xxx") {
		t.Errorf("%d bytes: %q", len(joined), joined)
	}
}

func TestASignalGoesToOneProcessOrToItsWholeTree(t *testing.T) {
	g := newGuest(t)
	script := "trap 'echo parent' TERM; sh -c 'trap \"echo child\" TERM; sh -c \"trap \\\"echo grandchild\\\" TERM; echo ready; while :; do sleep 0.02; done\" & while :; do wait; done' & while :; do wait; done"
	c := g.open("a", ptr(shell(script)))
	c.until("ready")
	pid := g.status("a").Pid
	path := fmt.Sprintf("/v1/processes/%d/signal", pid)
	if code, text := g.do("POST", path, protocol.Signal{Signal: "TERM"}); code != http.StatusNoContent {
		t.Errorf("%d %s", code, text)
	}
	c.until("parent\n")
	if strings.Contains(c.seen, "child") {
		t.Errorf("%q", c.seen)
	}
	if code, text := g.do("POST", path, protocol.Signal{Signal: "SIGTERM", Tree: true}); code != http.StatusNoContent {
		t.Errorf("%d %s", code, text)
	}
	all := c.seen
	for !strings.Contains(all, "parent") || !strings.Contains(all, "child\n") || !strings.Contains(all, "grandchild") {
		if _, _, err := c.frames.Next(); err != nil {
			t.Fatalf("%q: %v", all, err)
		}
		text, _ := c.frames.Payload(10_000)
		all += string(text)
	}
	if code, text := g.do("POST", path, protocol.Signal{Signal: "SIGKILL", Tree: true}); code != http.StatusNoContent {
		t.Errorf("%d %s", code, text)
	}
	if r, err := c.rest(); err != nil || r.exit.Signal != "SIGKILL" {
		t.Errorf("%+v, %v", r, err)
	}
	for deadline := time.Now().Add(10 * time.Second); len(descendants()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left: %v", descendants())
		}
	}
	g.refused(fault.NotFound, "POST", path, protocol.Signal{Signal: "SIGTERM"})
}

func TestATreeThatForksAllTheTimeIsKilledWhole(t *testing.T) {
	g := newGuest(t)
	for i := range 5 {
		id := fmt.Sprint("a", i)
		c := g.open(id, ptr(shell("f() { sh -c 'while :; do /bin/true & sleep 0.01; done' & }; f; f; f; echo ready; while :; do (sleep 0.01 &); done")))
		c.until("ready")
		g.do("POST", fmt.Sprintf("/v1/processes/%d/signal", g.status(id).Pid), protocol.Signal{Signal: "SIGKILL", Tree: true})
		if r, err := c.rest(); err != nil || r.exit.Signal != "SIGKILL" {
			t.Errorf("%+v, %v", r.exit, err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); len(descendants()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left: %v", descendants())
		}
	}
}

func TestSignalsThatNobodyMayGetAreRefused(t *testing.T) {
	g := newGuest(t)
	ended := g.run("a", shell("echo $$"))
	term := protocol.Signal{Signal: "SIGTERM"}
	g.refused(fault.NotFound, "POST", "/v1/processes/"+strings.TrimSpace(string(ended.stdout))+"/signal", term)
	for _, pid := range []string{"0", "-1", "999999999"} {
		g.refused(fault.NotFound, "POST", "/v1/processes/"+pid+"/signal", term)
	}
	for _, pid := range []string{"x", "99999999999", "1.5", "%2e%2e"} {
		g.refused(fault.InvalidArgument, "POST", "/v1/processes/"+pid+"/signal", term)
	}
	for _, pid := range []string{"1", fmt.Sprint(os.Getpid())} {
		g.refused(fault.Conflict, "POST", "/v1/processes/"+pid+"/signal", protocol.Signal{Signal: "SIGCONT", Tree: true})
	}
	for _, body := range []any{protocol.Signal{}, protocol.Signal{Signal: "SIGNOTHING"}, map[string]int{"signal": 9}, "x"} {
		g.refused(fault.InvalidArgument, "POST", "/v1/processes/1/signal", body)
		g.refused(fault.InvalidArgument, "POST", "/v1/execs/a/signal", body)
	}
	g.refused(fault.NotFound, "POST", "/v1/execs/none/signal", term)
	if code, _ := g.do("POST", "/v1/execs/a/signal", term); code != http.StatusNoContent {
		t.Errorf("after the end: %d", code)
	}
}

func TestASignalToAnExecReachesWhatHid(t *testing.T) {
	g := newGuest(t)
	c := g.open("a", ptr(shell("setsid sh -c 'trap \"echo hidden; exit\" TERM; echo ready; while :; do sleep 0.02; done' & trap '' TERM; wait; wait; echo over")))
	c.until("ready")
	c.send(7, []byte(`{"signal":"SIGTERM"}`))
	time.Sleep(100 * time.Millisecond)
	c.send(7, []byte(`{"signal":"SIGTERM","tree":true}`))
	if r, err := c.rest(); err != nil || !strings.HasSuffix(string(r.stdout), "hidden\nover\n") {
		t.Errorf("%q, %v", r.stdout, err)
	}
}
