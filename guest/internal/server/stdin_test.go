package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

func reading(argv ...string) *protocol.ExecSpec {
	return &protocol.ExecSpec{Argv: argv, Cwd: "/", Stdin: true}
}

// put is a request to a command's stdin that may be cut by its context.
func (g *guest) put(ctx context.Context, path string, body io.Reader) (protocol.ExecStdin, error) {
	request, err := http.NewRequestWithContext(ctx, "POST", "http://guest"+path, body)
	if err != nil {
		return protocol.ExecStdin{}, err
	}
	response, err := g.client.Do(request)
	if err != nil {
		return protocol.ExecStdin{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return protocol.ExecStdin{}, err
	}
	if response.StatusCode != http.StatusOK {
		return protocol.ExecStdin{}, fmt.Errorf("%d %s", response.StatusCode, text)
	}
	var taken protocol.ExecStdin
	return taken, json.Unmarshal(text, &taken)
}

func TestStdinByRequestsIsTakenOnceWhateverIsRepeated(t *testing.T) {
	g := newGuest(t)
	c := g.talk("a", 0, reading("cat"))
	for _, step := range []struct {
		query, body string
		want        protocol.ExecStdin
	}{
		{"?offset=0", "hello", protocol.ExecStdin{StdinBytes: 5}},
		{"?offset=0", "hello", protocol.ExecStdin{StdinBytes: 5}},
		{"?offset=3", "lo, you", protocol.ExecStdin{StdinBytes: 10}},
		{"", "!", protocol.ExecStdin{StdinBytes: 11}},
		{"?offset=11", "", protocol.ExecStdin{StdinBytes: 11}},
		{"?offset=11&end=1", "?", protocol.ExecStdin{StdinBytes: 12, Closed: true}},
		{"?offset=11&end=1", "?", protocol.ExecStdin{StdinBytes: 12, Closed: true}},
		{"?end=1", "", protocol.ExecStdin{StdinBytes: 12, Closed: true}},
	} {
		got, err := g.put(context.Background(), "/v1/execs/a/stdin"+step.query, strings.NewReader(step.body))
		if err != nil || got != step.want {
			t.Errorf("%s %q: %+v, %v", step.query, step.body, got, err)
		}
	}
	if r, err := c.rest(); err != nil || string(r.stdout) != "hello, you!?" {
		t.Errorf("%q, %v", r.stdout, err)
	}
}

func TestStdinThatCannotBeTakenIsRefused(t *testing.T) {
	g := newGuest(t)
	c := g.talk("a", 0, reading("cat"))
	g.put(context.Background(), "/v1/execs/a/stdin", strings.NewReader("abc"))
	if e := g.refused(fault.Conflict, "POST", "/v1/execs/a/stdin?offset=4", strings.NewReader("x")); e.Details["stdin_bytes"] != "3" {
		t.Errorf("%+v", e)
	}
	for _, query := range []string{"?offset=-1", "?offset=x", "?offset=9223372036854775808", "?offset=1&%zz"} {
		g.refused(fault.InvalidArgument, "POST", "/v1/execs/a/stdin"+query, strings.NewReader("x"))
	}
	g.refused(fault.NotFound, "POST", "/v1/execs/none/stdin", strings.NewReader("x"))
	g.put(context.Background(), "/v1/execs/a/stdin?end=1", nil)
	for _, query := range []string{"", "?offset=3"} {
		if e := g.refused(fault.Conflict, "POST", "/v1/execs/a/stdin"+query, strings.NewReader("x")); e.Details["reason"] != "stdin_closed" || e.Details["stdin_bytes"] != "3" {
			t.Errorf("%s: %+v", query, e)
		}
	}
	c.rest()
	g.run("none", shell("true"))
	if e := g.refused(fault.Conflict, "POST", "/v1/execs/none/stdin", strings.NewReader("x")); e.Details["reason"] != "stdin_closed" {
		t.Errorf("%+v", e)
	}
	g.talk("head", 0, reading("sh", "-c", "exec <&-; sleep 60"))
	time.Sleep(100 * time.Millisecond)
	if e := g.refused(fault.Conflict, "POST", "/v1/execs/head/stdin", strings.NewReader("x")); e.Details["reason"] != "stdin_closed" {
		t.Errorf("%+v", e)
	}
}

func TestEachPieceOfALiveRequestReachesTheCommandAsItComes(t *testing.T) {
	g := newGuest(t)
	c := g.talk("a", 0, reading("cat"))
	body, typing := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := g.put(context.Background(), "/v1/execs/a/stdin?end=1", body)
		done <- err
	}()
	for i := range 50 {
		fmt.Fprintf(typing, "line %d\n", i)
		if _, _, err := c.frames.Next(); err != nil {
			t.Fatal(err)
		}
		if line, err := c.frames.Payload(1000); err != nil || string(line) != fmt.Sprintf("line %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	typing.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if r, err := c.rest(); err != nil || r.exit.ExitCode != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestManyWhoAppendAtOnceLoseNothingAndCutNoPiece(t *testing.T) {
	g := newGuest(t)
	c := g.talk("a", 0, reading("cat"))
	var all sync.WaitGroup
	const writers, lines = 16, 200
	for i := range writers {
		all.Add(1)
		go func() {
			defer all.Done()
			for j := range lines {
				if _, err := g.put(context.Background(), "/v1/execs/a/stdin", strings.NewReader(fmt.Sprintf("%d-%d\n", i, j))); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	go func() {
		all.Wait()
		g.put(context.Background(), "/v1/execs/a/stdin?end=1", nil)
	}()
	r, err := c.rest()
	if err != nil {
		t.Fatal(err)
	}
	next := [writers]int{}
	for _, line := range strings.Fields(string(r.stdout)) {
		var i, j int
		if _, err := fmt.Sscanf(line, "%d-%d", &i, &j); err != nil || next[i] != j {
			t.Fatalf("%q, want %d-%d, %v", line, i, next[i], err)
		}
		next[i]++
	}
	for i, got := range next {
		if got != lines {
			t.Errorf("writer %d: %d lines", i, got)
		}
	}
}

// Random pieces, random cuts, several at a time: a host that always goes on where the guest says it is.
func TestStdinIsByteIdenticalThroughRandomCuts(t *testing.T) {
	g := newGuest(t)
	input := make([]byte, 3<<20)
	rand.Read(input)
	c := g.talk("a", 0, reading("sha256sum"))
	random := mathrand.New(mathrand.NewPCG(1, 2))
	at := int64(0)
	for cuts := 0; at < int64(len(input)); cuts++ {
		back := min(at, random.Int64N(100_000))
		ctx, cancel := context.WithCancel(context.Background())
		body := &cutting{Reader: bytes.NewReader(input[at-back:]), left: random.IntN(400_000), piece: 1 + random.IntN(40_000), cut: cancel}
		_, err := g.put(ctx, fmt.Sprintf("/v1/execs/a/stdin?offset=%d", at-back), body)
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		at = g.status("a").StdinBytes
	}
	if _, err := g.put(context.Background(), fmt.Sprintf("/v1/execs/a/stdin?offset=%d&end=1", at), nil); err != nil {
		t.Fatal(err)
	}
	want := sha256.Sum256(input)
	if r, err := c.rest(); err != nil || !strings.HasPrefix(string(r.stdout), hex.EncodeToString(want[:])) {
		t.Errorf("%s, %v", r.stdout, err)
	}
}

// cutting is a body that gives pieces and cuts its request after so many bytes.
type cutting struct {
	io.Reader
	left, piece int
	cut         func()
}

func (c *cutting) Read(p []byte) (int, error) {
	if c.left <= 0 {
		c.cut()
	}
	n, err := c.Reader.Read(p[:min(len(p), c.piece)])
	c.left -= n
	return n, err
}

func TestAWriterThatWaitsIsFreedByItsResetAndByTheCommandsEnd(t *testing.T) {
	g := newGuest(t)
	for _, spec := range []*protocol.ExecSpec{reading("sleep", "60"), inTerminal("sh", "-c", "stty raw -echo; sleep 60")} {
		c := g.talk("a", 0, spec)
		ctx, cancel := context.WithCancel(context.Background())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := g.put(ctx, "/v1/execs/a/stdin", bytes.NewReader(make([]byte, 1<<20)))
			first <- err
		}()
		settle(t, g)
		go func() {
			_, err := g.put(context.Background(), "/v1/execs/a/stdin", bytes.NewReader(make([]byte, 1<<20)))
			second <- err
		}()
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if code, _ := g.do("POST", "/v1/execs/a/signal", protocol.Signal{Signal: "SIGKILL"}); code != http.StatusNoContent {
			t.Errorf("%d", code)
		}
		if err := <-second; err == nil || !strings.Contains(err.Error(), "stdin_closed") {
			t.Error(err)
		}
		if r, err := c.rest(); err != nil || r.exit.Signal != "SIGKILL" {
			t.Errorf("%+v, %v", r, err)
		}
		g.do("DELETE", "/v1/execs/a", nil)
	}
}

func TestALiveRequestWithNothingToSayEndsWithTheCommand(t *testing.T) {
	g := newGuest(t)
	for _, query := range []string{"", "?offset=0"} {
		c := g.talk("a", 0, reading("sleep", "60"))
		body, _ := io.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := g.put(context.Background(), "/v1/execs/a/stdin"+query, body)
			done <- err
		}()
		g.do("POST", "/v1/execs/a/signal", protocol.Signal{Signal: "SIGTERM"})
		if r, err := c.rest(); err != nil || r.exit.ExitCode != 143 {
			t.Errorf("%+v, %v", r, err)
		}
		if err := <-done; err == nil || !strings.Contains(err.Error(), "stdin_closed") {
			t.Error(err)
		}
		g.do("DELETE", "/v1/execs/a", nil)
	}
}

// settle waits until the command takes no more.
func settle(t *testing.T, g *guest) {
	t.Helper()
	last := int64(-1)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		taken := g.status("a").StdinBytes
		if taken > 0 && taken == last {
			return
		}
		last = taken
		if time.Now().After(deadline) {
			t.Fatal("it takes on and on")
		}
	}
}

func FuzzStdinQuery(f *testing.F) {
	for _, seed := range []string{"", "offset=0", "offset=12&end=1", "end=0", "offset=-1", "offset=%31", "%zz", "offset=1;end=1", "offset=99999999999999999999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, _, err := stdinQuery(text)
		if err == nil && at < -1 {
			t.Errorf("%q: %d", text, at)
		}
	})
}
