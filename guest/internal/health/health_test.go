package health

import (
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"fuse/guest/internal/protocol"
)

func TestDefaultsStandForWhatIsNotSaid(t *testing.T) {
	p, err := parse(protocol.Healthcheck{HTTP: &protocol.HealthcheckHTTP{Port: 80}})
	if err != nil || p.url != "http://127.0.0.1:80/" || p.interval != 10*time.Second || p.timeout != 2*time.Second || p.retries != 3 || p.startPeriod != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestAVerdictNeedsAllItsFailuresInARow(t *testing.T) {
	w := &watch{plan: plan{retries: 3}, state: starting, since: time.Now()}
	for i, step := range []struct {
		problem       string
		inStartPeriod bool
		want          string
		failures      int
	}{
		{"x", true, starting, 0}, {"x", true, starting, 0}, {"x", false, starting, 1}, {"x", false, starting, 2}, {"", false, passing, 0},
		{"x", true, passing, 1}, {"x", false, passing, 2}, {"", false, passing, 0}, {"x", false, passing, 1}, {"x", false, passing, 2},
		{"x", false, failing, 3}, {"x", false, failing, 4}, {"", false, passing, 0},
	} {
		w.judge(step.problem, step.inStartPeriod)
		if got := w.report(); got.State != step.want || got.Failures != step.failures || got.Message != step.problem {
			t.Errorf("step %d: %+v, want %+v", i, got, step)
		}
	}
}

func TestTheFirstPassIsNotWaitedForAWholeInterval(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	hour := int64(3600)
	var answers atomic.Int64
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if answers.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	c := New(nil)
	port := listener.Addr().(*net.TCPAddr).Port
	if err := c.Put(protocol.Healthcheck{HTTP: &protocol.HealthcheckHTTP{Port: port}, IntervalSeconds: hour}); err != nil {
		t.Fatal(err)
	}
	defer c.Delete()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		state, err := c.Get()
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", state, err)
		}
		if state.State == passing {
			break
		}
		if state.Failures > 1 {
			t.Fatalf("looks between count as failures: %+v", state)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"http":{"port":80}}`, `{"http":{"port":80,"path":"/a?b#c"}}`, `{"exec":["true"],"retries":1}`, `{"http":{"port":1,"path":"@h/"}}`,
		`{"http":{"port":1,"path":"//h/"}}`, `{"http":{"port":1,"path":"/\r\nx: y"}}`, `{"exec":["a"],"interval_seconds":9223372036854775807}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var check protocol.Healthcheck
		if json.Unmarshal(text, &check) != nil {
			return
		}
		p, err := parse(check)
		if err != nil {
			return
		}
		if (p.url == "") == (p.argv == nil) || p.retries < 1 || p.interval <= 0 || p.timeout <= 0 || p.startPeriod < 0 || p.interval > 86_400*time.Second {
			t.Errorf("%s: %+v", text, p)
		}
		if p.url != "" && (!strings.HasPrefix(p.url, "http://127.0.0.1:") || strings.ContainsAny(p.url, "\r\n ")) {
			t.Errorf("%q", p.url)
		}
	})
}

func FuzzBound(f *testing.F) {
	f.Add("x")
	f.Add(strings.Repeat("ö", 2000))
	f.Add(strings.Repeat("\xff", 3000))
	f.Fuzz(func(t *testing.T, text string) {
		if got := bound(text); len(got) > maxMessageBytes || !utf8.ValidString(got) {
			t.Errorf("%q", got)
		}
	})
}
