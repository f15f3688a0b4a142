package server

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/frames"
	"fuse/guest/internal/protocol"
)

func TestAnExecKeepsItsStreamsApartAndTellsItsEnd(t *testing.T) {
	g := newGuest(t)
	r := g.run("a", shell("echo out; echo err >&2; exit 7"))
	if string(r.stdout) != "out\n" || string(r.stderr) != "err\n" || r.exit.ExitCode != 7 || r.exit.Signal != "" {
		t.Errorf("%+v", r)
	}
	if r.exit.StdoutBytes != 4 || r.exit.StderrBytes != 4 || r.exit.TimedOut || r.exit.OOMKilled {
		t.Errorf("%+v", r.exit)
	}
	status := g.status("a")
	if status.Running || status.Exit == nil || *status.Exit != r.exit || status.OffsetEnd != r.bytes {
		t.Errorf("%+v", status)
	}
}

func TestASignalIs128AndItsNumber(t *testing.T) {
	r := newGuest(t).run("a", shell("kill -TERM $$"))
	if r.exit.ExitCode != 143 || r.exit.Signal != "SIGTERM" {
		t.Errorf("%+v", r.exit)
	}
}

func TestOutputIsByteIdentical(t *testing.T) {
	g := newGuest(t)
	random := make([]byte, 1<<20+77)
	rand.Read(random)
	name := t.TempDir() + "/random"
	if err := os.WriteFile(name, random, 0o644); err != nil {
		t.Fatal(err)
	}
	r := g.run("a", shell("cat "+name+" & cat "+name+" >&2; wait; printf '\\344\\275'; sleep 0.05; printf '\\240'"))
	if !bytes.Equal(r.stderr, random) || !bytes.Equal(r.stdout, append(random, "你"[0:3]...)) {
		t.Error("other bytes came out")
	}
}

func TestTheEnvironmentIsTheBaseWithTheGivenOverIt(t *testing.T) {
	spec := shell("env")
	spec.Env = map[string]string{"LANG": "C", "MINE": "a=b\nc", "EMPTY": ""}
	got := string(newGuest(t).run("a", spec).stdout)
	for _, line := range []string{"LANG=C\n", "MINE=a=b\nc\n", "EMPTY=\n", "HOME=/root\n", "USER=root\n", "PATH=/usr/local/sbin:"} {
		if !strings.Contains(got, line) {
			t.Errorf("no %q in %q", line, got)
		}
	}
	if strings.Contains(got, "TERM=") {
		t.Errorf("TERM in %q", got)
	}
}

func TestACommandRunsAsItsUserInItsDirectoryInASessionOfItsOwn(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	spec := shell("id -u; id -g; pwd; cut -d' ' -f6 /proc/self/stat; echo $$; ls /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status")
	spec.User, spec.Cwd = "65534", "/tmp"
	lines := strings.Fields(string(newGuest(t).run("a", spec).stdout))
	if lines[0] != "65534" || lines[2] != "/tmp" || lines[3] != lines[4] {
		t.Errorf("%q", lines)
	}
	if lines[5] != fmt.Sprint(4+inherited(t)) { // 0, 1, 2 and ls's own
		t.Errorf("descriptors are leaked: %q", lines)
	}
	for _, mask := range []string{lines[7], lines[9]} {
		if strings.Trim(mask, "0") != "" {
			t.Errorf("signals are blocked or ignored: %q", lines)
		}
	}
}

func TestWhatCannotBeStartedIsAnErrorAndLeavesNothing(t *testing.T) {
	g := newGuest(t)
	script := t.TempDir() + "/script"
	if err := os.WriteFile(script, []byte("no interpreter"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]protocol.ExecSpec{
		"not on PATH":     {Argv: []string{"surely-not-there"}, Cwd: "/"},
		"no such file":    {Argv: []string{"/nope/nothing"}, Cwd: "/"},
		"not executable":  {Argv: []string{"/etc/passwd"}, Cwd: "/"},
		"a directory":     {Argv: []string{"/tmp"}, Cwd: "/"},
		"no format":       {Argv: []string{script}, Cwd: "/"},
		"no directory":    {Argv: []string{"true"}, Cwd: "/nope"},
		"cwd is a file":   {Argv: []string{"true"}, Cwd: "/etc/passwd"},
		"no user":         {Argv: []string{"true"}, Cwd: "/", User: "surely-nobody"},
		"empty PATH":      {Argv: []string{"true"}, Cwd: "/proc", Env: map[string]string{"PATH": ""}},
		"too long an arg": {Argv: []string{"true", strings.Repeat("x", 200_000)}, Cwd: "/"},
	} {
		c := g.talk("fails", 0, &spec)
		text, _ := io.ReadAll(c.response.Body)
		if c.response.StatusCode != 400 || !strings.Contains(string(text), `"reason":"exec_failed"`) {
			t.Errorf("%s: %d %s", name, c.response.StatusCode, text)
		}
		c.in.Close()
	}
	g.refused(fault.NotFound, "GET", "/v1/execs/fails", nil)
	if _, list := g.do("GET", "/v1/execs", nil); string(list) != `{"execs":[]}` {
		t.Errorf("%s", list)
	}
}

func TestBadSpecsAndIdsAreRefused(t *testing.T) {
	g := newGuest(t)
	for _, text := range []string{"{", "[]", `{"argv":[]}`, `{"argv":[""]}`, `{"argv":["a\u0000b"]}`, `{"argv":["a"],"env":{"A=B":""}}`,
		`{"argv":["a"],"env":{"A":"\u0000"}}`, `{"argv":["a"],"cwd":"relative"}`, `{"argv":["a"],"timeout_ms":-1}`, `{"argv":"a"}`} {
		g.refused(fault.InvalidArgument, "POST", "/v1/execs/a", bytes.NewReader(frames.Append(nil, frames.Spec, []byte(text))))
	}
	good := frames.Append(nil, frames.Spec, []byte(`{"argv":["true"],"cwd":"/","stdin":false}`))
	g.refused(fault.InvalidArgument, "POST", "/v1/execs/a%20b", bytes.NewReader(good))
	g.refused(fault.InvalidArgument, "POST", "/v1/execs/"+strings.Repeat("a", 129), bytes.NewReader(good))
	g.refused(fault.InvalidArgument, "POST", "/v1/execs/a?offset=-1", bytes.NewReader(good))
	g.refused(fault.InvalidArgument, "POST", "/v1/execs/a", bytes.NewReader(good[:20]))
	g.refused(fault.PayloadTooLarge, "POST", "/v1/execs/a", bytes.NewReader([]byte{16, 0, 0, 0, 0x7f, 0, 0, 0}))
	g.refused(fault.NotFound, "POST", "/v1/execs/a", bytes.NewReader(frames.Append(nil, frames.StdinEnd, nil)))
	g.refused(fault.NotFound, "POST", "/v1/execs/a", nil)
}

func TestStdinArrivesWholeThroughACommandThatWritesAsMuch(t *testing.T) {
	g := newGuest(t)
	input := make([]byte, 10<<20)
	rand.Read(input)
	spec := protocol.ExecSpec{Argv: []string{"cat"}, Cwd: "/", Stdin: true}
	c := g.talk("a", 0, &spec)
	go func() {
		for at := 0; at < len(input); at += 50_000 {
			if c.send(frames.Stdin, input[at:min(at+50_000, len(input))]) != nil {
				return
			}
		}
		c.send(frames.StdinEnd, nil)
	}()
	if r, err := c.rest(); err != nil || !bytes.Equal(r.stdout, input) {
		t.Errorf("%d other bytes came out, %v", len(r.stdout), err)
	}
	if status := g.status("a"); status.StdinBytes != int64(len(input)) || !status.StdinClosed {
		t.Errorf("%+v", status)
	}
}

func TestWithoutStdinACommandReadsNothing(t *testing.T) {
	r := newGuest(t).run("a", protocol.ExecSpec{Argv: []string{"cat"}, Cwd: "/"})
	if r.exit.ExitCode != 0 || r.stdout != nil {
		t.Errorf("%+v", r)
	}
}

func TestInputThatACommandDoesNotWantIsThrownAway(t *testing.T) {
	g := newGuest(t)
	spec := protocol.ExecSpec{Argv: []string{"sh", "-c", "exec <&-; read -t 1 x 2>/dev/null; sleep 0.3; echo fine"}, Cwd: "/", Stdin: true}
	c := g.talk("a", 0, &spec)
	go func() {
		for range 40 {
			if c.send(frames.Stdin, make([]byte, 50_000)) != nil {
				return
			}
		}
	}()
	r, err := c.rest()
	if err != nil || string(r.stdout) != "fine\n" || r.exit.ExitCode != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestABackgroundChildHoldsUpNobodyAndLivesOn(t *testing.T) {
	g := newGuest(t)
	marker := t.TempDir() + "/marker"
	for name, script := range map[string]string{
		"quiet":  "sleep 5 & echo done",
		"noisy":  "sh -c 'while echo noise; do :; done' & echo done",
		"setsid": "setsid sh -c 'while echo noise; do :; done' & echo done",
		"nohup":  "nohup sleep 5 & echo done",
	} {
		started := time.Now()
		r := g.run(name, shell(script))
		if took := time.Since(started); took > time.Second {
			t.Errorf("%s: %s", name, took)
		}
		if !strings.Contains(string(r.stdout), "done\n") || r.exit.ExitCode != 0 {
			t.Errorf("%s: %+v", name, r.exit)
		}
	}
	g.run("later", shell("sh -c 'sleep 0.2; head -c 1000000 /dev/zero; echo x > "+marker+"' & echo done"))
	for deadline := time.Now().Add(5 * time.Second); ; {
		if _, err := os.Stat(marker); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the child was blocked or killed by its own output")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestKillOnExitTakesTheChildrenAlong(t *testing.T) {
	g := newGuest(t)
	spec := shell("(setsid sleep 60 &) ; sleep 60 & echo done")
	spec.KillOnExit = true
	r := g.run("a", spec)
	if string(r.stdout) != "done\n" || r.exit.ExitCode != 0 || (family{}).Populated() {
		t.Errorf("%+v, left: %v", r, descendants())
	}
}

func TestATimeoutEndsTheWholeTreeAndKeepsTheOutput(t *testing.T) {
	g := newGuest(t)
	spec := shell("echo before; (setsid sleep 60 &); sleep 60")
	spec.TimeoutMs = 200
	r := g.run("a", spec)
	if string(r.stdout) != "before\n" || r.exit.ExitCode != 137 || r.exit.Signal != "SIGKILL" || !r.exit.TimedOut {
		t.Errorf("%+v", r)
	}
	if left := descendants(); left != nil {
		t.Errorf("left: %v", left)
	}
}

func TestAHostThatReconnectsGoesOnWithoutGapOrRepeat(t *testing.T) {
	g := newGuest(t)
	c := g.talk("a", 0, ptr(shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done")))
	var stream []byte
	buffer := make([]byte, 3000)
	for round := 0; ; round++ {
		n, err := io.ReadAtLeast(c.response.Body, buffer, 100)
		stream = append(stream, buffer[:n]...)
		if err != nil {
			break
		}
		if round%7 == 0 {
			c.response.Body.Close() // the channel is lost
			if round%2 == 0 {
				offset := binary.BigEndian.AppendUint64(nil, uint64(len(stream)))
				g.do("POST", "/v1/execs/a?offset="+fmt.Sprint(len(stream)), bytes.NewReader(frames.Append(nil, frames.Ack, offset)))
			}
			c = g.talk("a", int64(len(stream)), nil)
		}
		if round > 5000 {
			t.Fatal("no end")
		}
	}
	r := frames.NewReader(bytes.NewReader(stream))
	var text []byte
	for {
		kind, _, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		payload, err := r.Payload(frames.MaxPayloadBytes)
		if err != nil {
			t.Fatal(err)
		}
		if kind == frames.Exit {
			break
		}
		text = append(text, payload...)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i, line := range lines {
		if line != fmt.Sprintf("line %d", i) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
	if len(lines) != 20_000 {
		t.Errorf("%d lines", len(lines))
	}
}

func TestNothingRunsTwice(t *testing.T) {
	g := newGuest(t)
	log := t.TempDir() + "/log"
	spec := shell("echo ran >> " + log + "; sleep 0.2; echo out")
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			if c, err := g.tryTalk("same", 0, &spec); err == nil {
				c.rest() // a later conversation takes over, which cuts this one
			}
		}()
	}
	all.Wait()
	r := g.run("same", spec)
	if text, _ := os.ReadFile(log); string(text) != "ran\n" || string(r.stdout) != "out\n" {
		t.Errorf("%q, %+v", text, r)
	}
}

func TestANewConversationTakesOverFromTheOldOne(t *testing.T) {
	g := newGuest(t)
	old := g.talk("a", 0, ptr(protocol.ExecSpec{Argv: []string{"cat"}, Cwd: "/", Stdin: true}))
	if err := old.send(frames.Stdin, []byte("one ")); err != nil {
		t.Fatal(err)
	}
	for g.status("a").StdinBytes < 4 {
		time.Sleep(time.Millisecond)
	}
	fresh := g.talk("a", 0, nil)
	if _, err := old.rest(); err == nil || strings.Contains(err.Error(), "EOF") && !strings.Contains(err.Error(), "unexpected") {
		t.Errorf("the old conversation ended like a whole one: %v", err)
	}
	fresh.send(frames.Stdin, []byte("two"))
	fresh.send(frames.StdinEnd, nil)
	r, err := fresh.rest()
	if err != nil || string(r.stdout) != "one two" {
		t.Errorf("%q, %v", r.stdout, err)
	}
}

func TestAConversationStalledByItsHostIsTakenOverToo(t *testing.T) {
	g := newGuest(t)
	g.talk("a", 0, ptr(shell("head -c 900000 /dev/zero; sleep 0.2"))) // nobody reads it
	for g.status("a").OffsetEnd < 900_000 {
		time.Sleep(time.Millisecond)
	}
	r, err := g.talk("a", 0, nil).rest()
	if err != nil || len(r.stdout) != 900_000 {
		t.Errorf("%d bytes, %v", len(r.stdout), err)
	}
}

func TestStdinOfALostConversationGoesOnInTheNext(t *testing.T) {
	g := newGuest(t)
	input := make([]byte, 1<<20)
	rand.Read(input)
	c := g.talk("a", 0, ptr(protocol.ExecSpec{Argv: []string{"sh", "-c", "sleep 0.3; sha256sum"}, Cwd: "/", Stdin: true}))
	go c.send(frames.Stdin, input)
	for g.status("a").StdinBytes == 0 {
		time.Sleep(time.Millisecond)
	}
	c.in.CloseWithError(io.ErrClosedPipe) // while the guest waits for a command that does not read yet
	c.response.Body.Close()
	next := g.talk("a", 0, nil)
	taken := g.status("a").StdinBytes
	if taken == 0 || taken == int64(len(input)) {
		t.Fatalf("took %d bytes", taken)
	}
	next.send(frames.Stdin, input[taken:])
	next.send(frames.StdinEnd, nil)
	r, err := next.rest()
	want := g.run("b", protocol.ExecSpec{Argv: []string{"sha256sum", write(t, input)}, Cwd: "/"})
	if err != nil || string(r.stdout[:64]) != string(want.stdout[:64]) {
		t.Errorf("%q, want %q, %v", r.stdout, want.stdout, err)
	}
}

func TestOutputThatNobodyReadsStopsTheCommandAndNotTheAgent(t *testing.T) {
	g := newGuest(t)
	c := g.talk("a", 0, ptr(shell("yes")))
	for g.status("a").OffsetEnd < 900_000 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	if end := g.status("a").OffsetEnd; end > protocol.ExecWindowBytes {
		t.Errorf("%d bytes are kept", end)
	}
	if r := g.run("b", shell("echo fine")); string(r.stdout) != "fine\n" {
		t.Errorf("%+v", r)
	}
	if code, _ := g.do("DELETE", "/v1/execs/a", nil); code != 204 {
		t.Errorf("delete: %d", code)
	}
	g.refused(fault.NotFound, "GET", "/v1/execs/a", nil)
	c.response.Body.Close()
}

func TestADeletedExecIsGoneWithItsTreeAndItsReaderSeesTheEnd(t *testing.T) {
	g := newGuest(t)
	c := g.talk("a", 0, ptr(shell("echo begun; (setsid sleep 60 &); sleep 60")))
	if _, _, err := c.frames.Next(); err != nil {
		t.Fatal(err)
	}
	if code, _ := g.do("DELETE", "/v1/execs/a", nil); code != 204 {
		t.Errorf("delete: %d", code)
	}
	if left := descendants(); left != nil {
		t.Errorf("left: %v", left)
	}
	r, err := c.rest()
	if err != nil || r.exit.Signal != "SIGKILL" || r.exit.TimedOut {
		t.Errorf("%+v, %v", r, err)
	}
	g.refused(fault.NotFound, "GET", "/v1/execs/a", nil)
	if code, _ := g.do("DELETE", "/v1/execs/a", nil); code != 204 {
		t.Errorf("second delete: %d", code)
	}
}

func TestAnExecThatIsDeletedBeforeItIsStartedNeverStarts(t *testing.T) {
	g := newGuest(t)
	g.do("DELETE", "/v1/execs/early", nil)
	spec := frames.Append(nil, frames.Spec, []byte(`{"argv":["sleep","60"],"cwd":"/","stdin":false}`))
	g.refused(fault.NotFound, "POST", "/v1/execs/early", bytes.NewReader(spec))
	g.run("late", shell("true"))
	g.do("DELETE", "/v1/execs/late", nil)
	if r := g.run("late", shell("echo again")); string(r.stdout) != "again\n" {
		t.Errorf("a forgotten id cannot be used again: %+v", r)
	}
}

func TestAckedBytesAreGoneAndTheRestIsThere(t *testing.T) {
	g := newGuest(t)
	r := g.run("a", shell("echo 0123456789"))
	if code, _ := g.do("POST", "/v1/execs/a/ack?offset=10", nil); code != 204 {
		t.Errorf("ack: %d", code)
	}
	g.refused(fault.Conflict, "POST", "/v1/execs/a?offset=9", nil)
	g.refused(fault.InvalidArgument, "POST", fmt.Sprintf("/v1/execs/a?offset=%d", r.bytes+1), nil)
	g.refused(fault.InvalidArgument, "POST", fmt.Sprintf("/v1/execs/a/ack?offset=%d", r.bytes+1), nil)
	code, tail := g.do("POST", "/v1/execs/a?offset=10", nil)
	if code != 200 || int64(len(tail)) != r.bytes-10 || !bytes.HasPrefix(tail, []byte("23456789\n")) {
		t.Errorf("%d %q", code, tail)
	}
}

func TestSignalsReachTheCommandsProcessGroup(t *testing.T) {
	g := newGuest(t)
	c := g.talk("a", 0, ptr(shell("trap 'echo caught; exit 3' INT; echo ready; while :; do sleep 0.05; done")))
	if _, _, err := c.frames.Next(); err != nil {
		t.Fatal(err)
	}
	c.send(frames.Signal, []byte(`{"signal":"SIGINT"}`))
	r, err := c.rest()
	if err != nil || r.exit.ExitCode != 3 || !strings.Contains(string(r.stdout), "caught") {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestABrokenFrameCutsTheConversationAndNotTheCommand(t *testing.T) {
	g := newGuest(t)
	for name, bad := range map[string][]byte{
		"too long": {0, 0, 0, 0, 0xff, 0, 0, 0},
		"bad ack":  frames.Append(nil, frames.Ack, []byte{1}),
		"far ack":  frames.Append(nil, frames.Ack, bytes.Repeat([]byte{0xff}, 8)),
		"signal":   frames.Append(nil, frames.Signal, []byte("{")),
	} {
		c := g.talk("a", 0, ptr(shell("sleep 1; echo fine")))
		c.in.Write(bad)
		if _, err := c.rest(); err == nil {
			t.Errorf("%s: no cut", name)
		}
	}
	if r := g.run("a", shell("")); string(r.stdout) != "fine\n" {
		t.Errorf("%+v", r)
	}
}

func TestUnknownFramesAreSkipped(t *testing.T) {
	g := newGuest(t)
	c := g.talk("a", 0, ptr(protocol.ExecSpec{Argv: []string{"cat"}, Cwd: "/", Stdin: true}))
	c.send(200, make([]byte, 100_000))
	c.send(frames.Resize, []byte("{}"))
	c.send(frames.Stdin, []byte("x"))
	c.send(frames.StdinEnd, nil)
	if r, err := c.rest(); err != nil || string(r.stdout) != "x" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestOnlyTheNewestEndedExecsAreRemembered(t *testing.T) {
	g := newGuest(t)
	var all sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range 1010 {
		all.Add(1)
		slots <- struct{}{}
		go func() {
			defer all.Done()
			g.run(fmt.Sprintf("x%d", i), protocol.ExecSpec{Argv: []string{"true"}, Cwd: "/"})
			<-slots
		}()
	}
	all.Wait()
	_, list := g.do("GET", "/v1/execs", nil)
	if n := strings.Count(string(list), `"id":`); n > 1000 || n < 990 {
		t.Errorf("%d are remembered", n)
	}
}

func TestCancelledExecsLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	g := newGuest(t)
	g.run("first", shell("true"))
	before := descriptors(t)
	for i := range 120 {
		id := fmt.Sprintf("c%d", i)
		c := g.talk(id, 0, ptr(shell("sleep 60")))
		switch i % 3 {
		case 0:
			c.response.Body.Close()
		case 1:
			c.in.Close()
		}
		g.do("DELETE", "/v1/execs/"+id, nil)
		c.in.Close()
		c.response.Body.Close()
	}
	if left := descendants(); left != nil {
		t.Errorf("left: %v", left)
	}
	for deadline := time.Now().Add(15 * time.Second); descriptors(t) > before+5; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors became %d", before, descriptors(t))
		}
	}
	if r := g.run("last", shell("echo fine")); string(r.stdout) != "fine\n" {
		t.Errorf("%+v", r)
	}
}

// inherited counts what the tests themselves were started with and pass on.
func inherited(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, entry := range entries {
		fd, _ := strconv.Atoi(entry.Name())
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if fd > 2 && err == nil && flags&unix.FD_CLOEXEC == 0 {
			n++
		}
	}
	return n
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func write(t *testing.T, content []byte) string {
	t.Helper()
	name := t.TempDir() + "/file"
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func ptr[T any](value T) *T { return &value }
