package server

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/frames"
	"fuse/guest/internal/protocol"
)

func inTerminal(argv ...string) *protocol.ExecSpec {
	return &protocol.ExecSpec{Argv: argv, Cwd: "/", Stdin: true, TTY: &protocol.TerminalSize{Rows: 30, Cols: 100}}
}

// screen follows what a terminal shows.
type screen struct {
	*conversation
	seen string
}

func (g *guest) open(id string, spec *protocol.ExecSpec) *screen {
	g.Helper()
	c := g.talk(id, 0, spec)
	if c.response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(c.response.Body)
		g.Fatalf("%d %s", c.response.StatusCode, text)
	}
	return &screen{conversation: c}
}

func (s *screen) typed(text string) {
	s.g.Helper()
	if code, answer := s.g.do("POST", "/v1/execs/"+s.id+"/stdin", strings.NewReader(text)); code != http.StatusOK {
		s.g.Fatalf("%d %s", code, answer)
	}
}

// until reads on until the text is shown.
func (s *screen) until(text string) {
	s.g.Helper()
	for !strings.Contains(s.seen, text) {
		kind, _, err := s.frames.Next()
		if err != nil || kind == frames.Exit {
			s.g.Fatalf("ended (%v) before %q was shown: %q", err, text, s.seen)
		}
		payload, err := s.frames.Payload(frames.MaxPayloadBytes)
		if err != nil {
			s.g.Fatal(err)
		}
		s.seen += string(payload)
	}
	_, s.seen, _ = strings.Cut(s.seen, text)
}

func TestATerminalIsTheCommandsOwnWithItsSizeAndKind(t *testing.T) {
	g := newGuest(t)
	c := g.open("a", inTerminal("sh", "-c", "stty size; echo $TERM; tty; id -u; stat -c %u $(tty); ps -o tpgid= -p $$; echo $$ >/dev/tty; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo three; stty -a | grep -o ' iutf8'"))
	r, err := c.rest()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(r.stdout)), "\r\n")
	if len(lines) != 9 || lines[0] != "30 100" || lines[1] != "xterm-256color" || !strings.HasPrefix(lines[2], "/dev/pts/") || lines[7] != "three" || lines[8] != " iutf8" {
		t.Errorf("%q", lines)
	}
	if lines[3] != lines[4] || strings.TrimSpace(lines[5]) != lines[6] {
		t.Errorf("owner or foreground: %q", lines)
	}
	if r.stderr != nil || r.exit.StdoutBytes != int64(len(r.stdout)) || r.exit.StderrBytes != 0 || r.exit.ExitCode != 0 {
		t.Errorf("%+v", r)
	}
}

func TestTheTerminalBelongsToItsUser(t *testing.T) {
	spec := inTerminal("sh", "-c", "stat -c %u $(tty); echo hello >$(tty)")
	spec.User = "65534"
	r, err := newGuest(t).open("a", spec).rest()
	if err != nil || string(r.stdout) != "65534\r\nhello\r\n" {
		t.Errorf("%q, %v", r.stdout, err)
	}
}

func TestALoginShellIsTheAccountsAndKnowsThatItIsOne(t *testing.T) {
	spec := inTerminal("$SHELL", "-c", "echo $0 $SHELL $TERM")
	spec.Login, spec.Env = true, map[string]string{"TERM": "dumb"}
	r, err := newGuest(t).open("a", spec).rest()
	if err != nil || !strings.HasPrefix(string(r.stdout), "-") || !strings.HasSuffix(string(r.stdout), "sh /bin/bash dumb\r\n") {
		t.Errorf("%q, %v", r.stdout, err)
	}
}

func TestWhatIsTypedIsEchoedAndReadALineAtATime(t *testing.T) {
	g := newGuest(t)
	c := g.open("a", inTerminal("cat"))
	c.typed("grüße\x7f\x7f\n")
	c.until("grüße\b \b\b \b\r\n") // two whole characters are taken back
	c.until("grü\r\n")
	if code, _ := g.do("POST", "/v1/execs/a/stdin?end=1", nil); code != http.StatusOK {
		t.Errorf("%d", code)
	}
	if r, err := c.rest(); err != nil || r.exit.ExitCode != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestTheEndOfStdinOfATerminalEndsAnUnfinishedLineTooAndIsSentOnce(t *testing.T) {
	g := newGuest(t)
	c := g.open("a", inTerminal("sh", "-c", "cat >/dev/null; echo first; cat >/dev/null; echo second"))
	for range 3 { // repeated, as after a lost answer
		if code, text := g.do("POST", "/v1/execs/a/stdin?offset=0&end=1", strings.NewReader("abc")); code != http.StatusOK || string(text) != `{"stdin_bytes":3,"closed":false}` {
			t.Errorf("%d %s", code, text)
		}
	}
	c.until("first")
	if status := g.status("a"); !status.Running {
		t.Error("the end was sent more than once")
	}
	g.do("POST", "/v1/execs/a/stdin?end=1", nil)
	c.until("second")
}

func TestControlCharactersSignalWhatIsInTheForeground(t *testing.T) {
	g := newGuest(t)
	c := g.open("a", inTerminal("sh", "-c", "trap 'echo caught' INT; echo ready; cat; echo after; exec cat"))
	c.until("ready")
	c.typed("one\n")
	c.until("one\r\none\r\n") // its echo, and what cat made of it
	c.typed("\x03")
	c.until("after")
	c.typed("two\n")
	c.until("two\r\ntwo\r\n")
	c.typed("\x1c")
	r, err := c.rest()
	if err != nil || r.exit.Signal != "SIGQUIT" {
		t.Errorf("%+v, %v", r.exit, err)
	}
}

func TestANewSizeReachesTheCommand(t *testing.T) {
	g := newGuest(t)
	c := g.open("a", inTerminal("sh", "-c", "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"))
	c.until("ready")
	for _, size := range [][2]int{{50, 132}, {1, 1}, {65535, 65535}} {
		body := protocol.TerminalSize{Rows: size[0], Cols: size[1]}
		if code, text := g.do("POST", "/v1/execs/a/resize", body); code != http.StatusNoContent {
			t.Errorf("%d %s", code, text)
		}
		c.until(fmt.Sprintf("%d %d\r\n", size[0], size[1]))
	}
	for _, body := range []any{protocol.TerminalSize{Rows: 0, Cols: 1}, protocol.TerminalSize{Rows: 1, Cols: 65536}, map[string]string{"rows": "1"}, "x"} {
		g.refused(fault.InvalidArgument, "POST", "/v1/execs/a/resize", body)
	}
	g.do("POST", "/v1/execs/a/signal", protocol.Signal{Signal: "SIGKILL", Tree: true})
	if r, err := c.rest(); err != nil || r.exit.Signal != "SIGKILL" {
		t.Errorf("%+v, %v", r.exit, err)
	}
	if code, _ := g.do("POST", "/v1/execs/a/resize", protocol.TerminalSize{Rows: 1, Cols: 1}); code != http.StatusNoContent {
		t.Errorf("after the end: %d", code)
	}
	g.run("b", shell("true"))
	if details := g.refused(fault.Conflict, "POST", "/v1/execs/b/resize", protocol.TerminalSize{Rows: 1, Cols: 1}); details.Details["reason"] != "no_terminal" {
		t.Errorf("%+v", details)
	}
}

func TestSizesThatNoTerminalHasAreRefused(t *testing.T) {
	g := newGuest(t)
	for _, text := range []string{`{"rows":0,"cols":80}`, `{"rows":24,"cols":65536}`, `{"rows":-1,"cols":80}`, `{"rows":24}`, `{"rows":1.5,"cols":1}`} {
		spec := frames.Append(nil, frames.Spec, []byte(`{"argv":["true"],"cwd":"/","stdin":true,"tty":`+text+`}`))
		g.refused(fault.InvalidArgument, "POST", "/v1/execs/a", bytes.NewReader(spec))
	}
}

func TestAllOutputOfATerminalComesBeforeItsEnd(t *testing.T) {
	g := newGuest(t)
	for i := range 20 {
		r, err := g.open(fmt.Sprint("a", i), inTerminal("sh", "-c", "stty -opost; head -c 300000 /dev/zero | tr '\\0' x; echo end")).rest()
		if err != nil || len(r.stdout) != 300_004 || !strings.HasSuffix(string(r.stdout), "xend\n") {
			t.Errorf("%d bytes, %v", len(r.stdout), err)
		}
	}
}

func TestABackgroundChildHoldsUpNoTerminal(t *testing.T) {
	g := newGuest(t)
	for name, script := range map[string]string{
		"quiet":      "sleep 60 & echo done",
		"noisy":      "sh -c 'trap \"\" HUP; while echo noise; do :; done' & echo done",
		"setsid":     "setsid sh -c 'while echo noise; do :; done' & echo done",
		"foreground": "sh -c 'sleep 60' & echo done; exit 0",
	} {
		started := time.Now()
		r, err := g.open(name, inTerminal("bash", "-c", script)).rest()
		if err != nil || !strings.Contains(string(r.stdout), "done\r\n") || r.exit.ExitCode != 0 {
			t.Errorf("%s: %+v, %v", name, r.exit, err)
		}
		if took := time.Since(started); took > 3*time.Second {
			t.Errorf("%s: %s", name, took)
		}
	}
}

func TestACommandMayLetGoOfItsTerminalAndTakeItUpAgain(t *testing.T) {
	r, err := newGuest(t).open("a", inTerminal("sh", "-c", "echo one; exec </dev/null >/dev/null 2>&1; sleep 0.2; echo two >/dev/tty")).rest()
	if err != nil || string(r.stdout) != "one\r\ntwo\r\n" {
		t.Errorf("%q, %v", r.stdout, err)
	}
}

func TestATimeoutEndsTheWholeTreeOfATerminal(t *testing.T) {
	g := newGuest(t)
	spec := inTerminal("bash", "-c", "trap '' HUP; echo before; (setsid sh -c 'trap \"\" HUP; sleep 60' &); sleep 60")
	spec.TimeoutMs = 300
	r, err := g.open("a", spec).rest()
	if err != nil || string(r.stdout) != "before\r\n" || !r.exit.TimedOut || r.exit.Signal != "SIGKILL" {
		t.Errorf("%+v, %v", r, err)
	}
	if left := descendants(); left != nil {
		t.Errorf("left: %v", left)
	}
}

func TestALargePasteArrivesWholeThoughTheCommandReadsSlowly(t *testing.T) {
	g := newGuest(t)
	paste := make([]byte, 1<<20)
	rand.Read(paste)
	name := t.TempDir() + "/pasted"
	c := g.open("a", inTerminal("sh", "-c", "stty raw -echo; echo ready; sleep 0.3; dd of="+name+" bs=1000 iflag=fullblock count=1048576 iflag=count_bytes 2>/dev/null; echo done"))
	c.until("ready")
	if code, text := g.do("POST", "/v1/execs/a/stdin?offset=0", bytes.NewReader(paste)); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	c.until("done")
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, paste) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestManyTerminalsLeaveNothing(t *testing.T) {
	g := newGuest(t)
	g.open("first", inTerminal("true")).rest()
	before := descriptors(t)
	for i := range 40 {
		c := g.open(fmt.Sprint("a", i), inTerminal("sh", "-c", "sleep 60"))
		g.do("DELETE", "/v1/execs/"+c.id, nil)
		c.response.Body.Close()
		c.in.Close()
	}
	for deadline := time.Now().Add(15 * time.Second); descriptors(t) > before+3; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors became %d", before, descriptors(t))
		}
	}
}
