package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

func TestHealthSaysWhoAnswers(t *testing.T) {
	code, text := newGuest(t).do("GET", "/v1/health", nil)
	var health protocol.Health
	if err := json.Unmarshal(text, &health); err != nil || code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	if health.Protocol != 1 || health.AgentVersion != "test" || health.Kernel == "" || health.BootID == "" || health.UptimeMs <= 0 {
		t.Errorf("%+v", health)
	}
}

func TestUnknownRoutesAndMethodsAreToldAsSuch(t *testing.T) {
	g := newGuest(t)
	g.refused(fault.RouteNotFound, "GET", "/", nil)
	g.refused(fault.RouteNotFound, "GET", "/v1/nope", nil)
	g.refused(fault.RouteNotFound, "POST", "/v1/health", nil)
	g.refused(fault.RouteNotFound, "PATCH", "/v1/execs/a", nil)
}

func TestMalformedBodiesAreTheHostsMistake(t *testing.T) {
	g := newGuest(t)
	for _, path := range []string{"/v1/identity", "/v1/glob"} {
		for _, text := range []string{"", "{", "[]", `"x"`, "null1", "\xff"} {
			g.refused(fault.InvalidArgument, "POST", path, strings.NewReader(text))
		}
		g.refused(fault.PayloadTooLarge, "POST", path, strings.NewReader(`{"cwd":"`+strings.Repeat("x", maxJSONBytes)))
	}
}

func TestAnIdentityIsCheckedWhole(t *testing.T) {
	g := newGuest(t)
	good := map[string]any{
		"time_unix_ns": "1795977835251523843", "entropy_base64": strings.Repeat("AAAA", 21) + "AA==", "hostname": "env-1",
		"machine_id": strings.Repeat("0", 32), "generation": 1, "reason": "fork", "hooks_deadline_ms": 100,
	}
	for field, bad := range map[string][]any{
		"time_unix_ns":   {"", "x", "-1", "99999999999999999999"},
		"entropy_base64": {"", "AAAA", "?"},
		"hostname":       {"", "-a", "a-", "A", "a.b", "a\nb", strings.Repeat("a", 64)},
		"machine_id":     {"", strings.Repeat("0", 31), strings.Repeat("G", 32)},
		"generation":     {0, -1},
		"reason":         {"a b", "x\n", strings.Repeat("a", 33)},

		"hooks_deadline_ms": {-1, 60_001},
	} {
		for _, value := range bad {
			body := map[string]any{field: value}
			for name, right := range good {
				if name != field {
					body[name] = right
				}
			}
			if got := g.refused(fault.InvalidArgument, "POST", "/v1/identity", body); got.Details["field"] != field {
				t.Errorf("%s %q: %+v", field, value, got)
			}
		}
	}
}

func TestFilesGoInAndOut(t *testing.T) {
	g := newGuest(t)
	content := bytes.Repeat([]byte("data\x00"), 500_000)
	path := "?path=" + t.TempDir() + "/a%20b/%E4%BD%A0"
	code, text := g.do("PUT", "/v1/files"+path+"&mode=0600", bytes.NewReader(content))
	var written protocol.FileWritten
	if err := json.Unmarshal(text, &written); err != nil || code != 201 || written.SizeBytes != int64(len(content)) {
		t.Fatalf("%d %s", code, text)
	}
	response, err := g.client.Get("http://guest/v1/files" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	back, err := io.ReadAll(response.Body)
	if err != nil || response.ContentLength != int64(len(content)) || !bytes.Equal(back, content) {
		t.Errorf("%d bytes announced, %d came, %v", response.ContentLength, len(back), err)
	}
}

func TestBadFileRequestsAreRefused(t *testing.T) {
	g := newGuest(t)
	path := "?path=" + t.TempDir() + "/x"
	for _, query := range []string{"", "?path=relative", path + "&mode=999", path + "&mode=10000", path + "&mode=rw", path + "&uid=-1", path + "&uid=root",
		path + "&gid=4294967295", path + "&sha256=abc", "?path=%zz", path + "&sha256=" + strings.Repeat("0", 64)} {
		g.refused(fault.InvalidArgument, "PUT", "/v1/files"+query, strings.NewReader("x"))
	}
	g.refused(fault.NotFound, "GET", "/v1/files"+path, nil)
	g.refused(fault.Conflict, "GET", "/v1/files?path=/dev/zero", nil)
	g.refused(fault.InvalidArgument, "GET", "/v1/files", nil)
}

func TestAFileThatShrinksWhileItIsReadIsACutStream(t *testing.T) {
	g := newGuest(t)
	name := write(t, make([]byte, 32<<20))
	response, err := g.client.Get("http://guest/v1/files?path=" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := os.Truncate(name, 1000); err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, response.Body); err == nil {
		t.Errorf("%d bytes came as a whole file", n)
	}
}

func TestAGlobIsAnswered(t *testing.T) {
	g := newGuest(t)
	name := write(t, []byte("abc"))
	cwd := name[:strings.LastIndexByte(name, '/')]
	code, text := g.do("POST", "/v1/glob", protocol.GlobRequest{Cwd: cwd, Patterns: []string{"*"}, MaxFiles: 10})
	want := `{"files":[{"path":"file","absolute_path":"` + name + `","size_bytes":3,"mode":420}],"skipped":[]}`
	if code != 200 || string(text) != want {
		t.Errorf("%d %s", code, text)
	}
}

func TestSyncFlushes(t *testing.T) {
	if code, text := newGuest(t).do("POST", "/v1/sync", nil); code != 204 {
		t.Errorf("%d %s", code, text)
	}
}

func TestAFreezeIsThawedByAsking(t *testing.T) {
	g := newGuest(t)
	for range 2 {
		for _, frozen := range []bool{true, false} {
			path := map[bool]string{true: "/v1/freeze", false: "/v1/thaw"}[frozen]
			for range 2 {
				if code, text := g.do("POST", path, map[string]int{"deadline_ms": 60_000}); code != 204 || g.disk.frozen.Load() != frozen {
					t.Errorf("%s: %d %s, frozen: %v", path, code, text, g.disk.frozen.Load())
				}
			}
		}
	}
	for _, deadline := range []any{0, -1, 60_001} {
		if got := g.refused(fault.InvalidArgument, "POST", "/v1/freeze", map[string]any{"deadline_ms": deadline}); got.Details["field"] != "deadline_ms" {
			t.Errorf("%+v", got)
		}
	}
	g.refused(fault.InvalidArgument, "POST", "/v1/freeze", nil)
}

func TestAnIdentityEndsAFreeze(t *testing.T) {
	g := newGuest(t)
	if code, text := g.do("POST", "/v1/freeze", map[string]int{"deadline_ms": 60_000}); code != 204 {
		t.Fatalf("%d %s", code, text)
	}
	g.refused(fault.InvalidArgument, "POST", "/v1/identity", map[string]any{})
	if g.disk.frozen.Load() {
		t.Error("frozen")
	}
}

func TestWhatIsNotHTTP2IsHungUpOn(t *testing.T) {
	g := newGuest(t)
	for _, garbage := range []string{"GET /v1/health HTTP/1.1\r\nHost: guest\r\n\r\n", strings.Repeat("\x00\xff", 100), "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"} {
		conn, err := net.Dial("unix", g.socket)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.WriteString(conn, garbage); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%.20q keeps the connection", garbage)
		}
		conn.Close()
	}
}

func TestRequestsWithoutAReaderDoNotStopTheOthers(t *testing.T) {
	g := newGuest(t)
	spec := protocol.ExecSpec{Argv: []string{"sleep", "60"}, Cwd: "/", Stdin: true}
	for i := range 20 {
		c := g.talk("s"+string(rune('a'+i)), 0, &spec)
		go c.send(0, make([]byte, 1<<20)) // more than pipe and window take
	}
	time.Sleep(100 * time.Millisecond)
	code, _ := g.do("PUT", "/v1/files?path="+t.TempDir()+"/x", bytes.NewReader(make([]byte, 3<<20)))
	if code != http.StatusCreated {
		t.Errorf("%d", code)
	}
}
