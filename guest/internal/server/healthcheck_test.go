package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

// verdict waits until the check is in this state.
func (g *guest) verdict(state string) protocol.HealthcheckState {
	g.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		code, text := g.do("GET", "/v1/healthcheck", nil)
		var got protocol.HealthcheckState
		if err := json.Unmarshal(text, &got); err != nil || code != http.StatusOK {
			g.Fatalf("%d %s", code, text)
		}
		if got.State == state {
			return got
		}
		if time.Now().After(deadline) {
			g.Fatalf("%+v, want %s", got, state)
		}
	}
}

func (g *guest) check(check protocol.Healthcheck) {
	g.Helper()
	if code, text := g.do("PUT", "/v1/healthcheck", check); code != http.StatusNoContent {
		g.Fatalf("%d %s", code, text)
	}
}

func TestACheckStartsPassesAndFails(t *testing.T) {
	g := newGuest(t)
	g.refused(fault.NotFound, "GET", "/v1/healthcheck", nil)
	name := t.TempDir() + "/well"
	g.check(protocol.Healthcheck{Exec: []string{"sh", "-c", "[ -e " + name + " ] || { echo ill; exit 4; }"}, IntervalSeconds: 1, Retries: 2})
	if got := g.verdict("failing"); got.Failures != 2 || got.Message != "exit code 4\nill" {
		t.Errorf("%+v", got)
	}
	os.WriteFile(name, nil, 0o644)
	if got := g.verdict("passing"); got.Failures != 0 || got.Message != "" || got.SinceMsAgo > 10_000 {
		t.Errorf("%+v", got)
	}
	os.Remove(name)
	for got := g.verdict("passing"); got.Failures == 0; got = g.verdict("passing") { // one failure is none yet
		time.Sleep(10 * time.Millisecond)
	}
	g.verdict("failing")
	if execs := g.execs.List(); len(execs) != 0 {
		t.Errorf("the host sees %+v", execs)
	}
	g.do("DELETE", "/v1/healthcheck", nil)
	g.refused(fault.NotFound, "GET", "/v1/healthcheck", nil)
}

func TestAnHTTPCheckPassesOn2xxAnd3xxAndFollowsNothing(t *testing.T) {
	g := newGuest(t)
	var status, followed atomic.Int64
	var path atomic.Value
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/followed" {
			followed.Add(1)
		}
		path.Store(r.Method + " " + r.URL.String())
		w.Header().Set("location", "/followed")
		w.WriteHeader(int(status.Load()))
		fmt.Fprint(w, "why \xff not ", strings.Repeat("x", 100_000))
	})}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
	port := listener.Addr().(*net.TCPAddr).Port
	for code, want := range map[int64]string{200: "passing", 204: "passing", 302: "passing", 399: "passing", 400: "failing", 404: "failing", 503: "failing"} {
		status.Store(code)
		g.check(protocol.Healthcheck{HTTP: &protocol.HealthcheckHTTP{Port: port, Path: "/up?a=b"}, IntervalSeconds: 60, Retries: 1})
		got := g.verdict(want)
		if want == "failing" && (!strings.Contains(got.Message, fmt.Sprint(code)) || !strings.Contains(got.Message, "why ? not xxx") || len(got.Message) > 2048) {
			t.Errorf("%d: %q", code, got.Message)
		}
	}
	if path.Load() != "GET /up?a=b" || followed.Load() != 0 {
		t.Errorf("%v, %d followed", path.Load(), followed.Load())
	}
}

func TestAServerThatDoesNotAnswerInTimeFails(t *testing.T) {
	g := newGuest(t)
	port := serve(t, "127.0.0.1", func(conn *net.TCPConn) { io.Copy(io.Discard, conn) })
	g.check(protocol.Healthcheck{HTTP: &protocol.HealthcheckHTTP{Port: port}, TimeoutSeconds: 1, Retries: 1})
	if got := g.verdict("failing"); !strings.Contains(got.Message, "no answer within 1s") {
		t.Errorf("%+v", got)
	}
}

func TestACheckThatHangsIsKilledWithItsTree(t *testing.T) {
	g := newGuest(t)
	g.check(protocol.Healthcheck{Exec: []string{"sh", "-c", "echo begun; (setsid sleep 61 &); sleep 61"}, IntervalSeconds: 60, TimeoutSeconds: 1, Retries: 1})
	if got := g.verdict("failing"); got.Message != "no end within 1s\nbegun" {
		t.Errorf("%+v", got)
	}
	if left := descendants(); left != nil {
		t.Errorf("left: %v", left)
	}
}

func TestFailuresInTheStartPeriodDoNotCountAndAPassEndsIt(t *testing.T) {
	g := newGuest(t)
	name := t.TempDir() + "/calls"
	script := "echo x >> " + name + "; n=$(wc -l < " + name + "); echo call $n; [ $n = 3 ]"
	g.check(protocol.Healthcheck{Exec: []string{"sh", "-c", script}, IntervalSeconds: 1, Retries: 1, StartPeriodSeconds: 600})
	if got := g.verdict("passing"); got.Failures != 0 {
		t.Errorf("%+v", got)
	}
	if got := g.verdict("failing"); got.Message != "exit code 1\ncall 4" {
		t.Errorf("%+v", got)
	}
}

func TestANewCheckReplacesTheOldOneAtOnce(t *testing.T) {
	g := newGuest(t)
	name := t.TempDir() + "/begun"
	g.check(protocol.Healthcheck{Exec: []string{"sh", "-c", "echo > " + name + "; sleep 60"}, TimeoutSeconds: 60})
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(name); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it was not begun")
		}
	}
	g.check(protocol.Healthcheck{Exec: []string{"true"}})
	g.verdict("passing")
	for deadline := time.Now().Add(10 * time.Second); len(descendants()) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left: %v", descendants())
		}
	}
}

func TestAProgramThatIsNotThereFails(t *testing.T) {
	g := newGuest(t)
	g.check(protocol.Healthcheck{Exec: []string{"surely-not-there"}, Retries: 1})
	if got := g.verdict("failing"); !strings.Contains(got.Message, "surely-not-there") {
		t.Errorf("%+v", got)
	}
}

func TestChecksThatCannotBeAreRefused(t *testing.T) {
	g := newGuest(t)
	for _, text := range []string{`{`, `[]`, `{}`, `{"exec":[]}`, `{"exec":[""]}`, `{"exec":["a\u0000"]}`, `{"exec":["a"],"http":{"port":1}}`, `{"http":{"port":0}}`,
		`{"http":{"port":65536}}`, `{"http":{"port":1,"path":"x"}}`, `{"http":{"port":1,"path":"@evil/"}}`, `{"http":{"port":1,"path":"/%zz"}}`,
		`{"exec":["a"],"retries":-1}`, `{"exec":["a"],"interval_seconds":-1}`, `{"exec":["a"],"timeout_seconds":86401}`, `{"exec":"a"}`} {
		g.refused(fault.InvalidArgument, "PUT", "/v1/healthcheck", strings.NewReader(text))
	}
	g.refused(fault.NotFound, "GET", "/v1/healthcheck", nil)
}
