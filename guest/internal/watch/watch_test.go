package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

const patience = 20 * time.Second

// watched is a watch that runs, with what it tells.
type watched struct {
	t      *testing.T
	root   string
	events chan protocol.WatchEvent
	done   chan error
	stop   context.CancelFunc
	hold   chan struct{} // closed: events are taken
}

func begin(t *testing.T, name string, recursive bool) *watched {
	t.Helper()
	return beginHeld(t, name, recursive, closed())
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func beginHeld(t *testing.T, name string, recursive bool, hold chan struct{}) *watched {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w, err := Start(ctx, name, recursive)
	if err != nil {
		t.Fatal(err)
	}
	g := &watched{t: t, root: name, events: make(chan protocol.WatchEvent, 1_000_000), done: make(chan error, 1), stop: stop, hold: hold}
	go func() {
		err := w.Run(ctx, func(events []protocol.WatchEvent) error {
			<-hold
			for _, e := range events {
				g.events <- e
			}
			return nil
		})
		w.Close()
		g.done <- err
	}()
	t.Cleanup(g.end)
	if hold != nil {
		select {
		case <-hold:
			if e := g.next(); e.Type != "ready" {
				t.Fatalf("%+v", e)
			}
		default:
		}
	}
	return g
}

func (g *watched) end() {
	g.stop()
	select {
	case err := <-g.done:
		g.done <- err
	case <-time.After(patience):
		g.t.Error("the watch does not end with its request")
	}
}

func (g *watched) next() protocol.WatchEvent {
	g.t.Helper()
	select {
	case e := <-g.events:
		return e
	case <-time.After(patience):
		g.t.Fatal("no event")
		return protocol.WatchEvent{}
	}
}

// until collects events up to the one that is told for a path, heartbeats left out.
func (g *watched) until(kind, name string) []string {
	g.t.Helper()
	var told []string
	for {
		e := g.next()
		if e.Type == "heartbeat" {
			continue
		}
		text := e.Type + " " + strings.TrimPrefix(strings.TrimPrefix(e.Path, g.root), "/")
		told = append(told, text)
		if text == kind+" "+name {
			return told
		}
	}
}

func (g *watched) expect(want ...string) {
	g.t.Helper()
	last := strings.SplitN(want[len(want)-1], " ", 2)
	if got := g.until(last[0], last[1]); !slices.Equal(got, want) {
		g.t.Errorf("%q, want %q", got, want)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestADirectoryTellsWhatHappensInIt(t *testing.T) {
	root := t.TempDir()
	check(t, os.MkdirAll(root+"/sub", 0o755))
	g := begin(t, root, false)
	check(t, os.WriteFile(root+"/a", []byte("1"), 0o600))
	check(t, os.Chmod(root+"/a", 0o640))
	check(t, os.Rename(root+"/a", root+"/b c\n"))
	check(t, os.WriteFile(root+"/sub/deep", nil, 0o600))
	check(t, os.Remove(root+"/b c\n"))
	check(t, os.Mkdir(root+"/d", 0o755))
	g.expect("created a", "modified a", "attributes a", "moved_from a", "moved_to b c\n", "removed b c\n", "created d")
	check(t, os.Rename(root+"/d", filepath.Dir(root)+"/elsewhere"))
	check(t, os.WriteFile(root+"/bad\xff", nil, 0o600))
	g.expect("moved_from d", "created bad\uFFFD")
}

func TestARecursiveWatchSeesNewDirectoriesWithWhatTheyHold(t *testing.T) {
	root := t.TempDir()
	check(t, os.MkdirAll(root+"/there/before", 0o755))
	g := begin(t, root, true)
	check(t, os.WriteFile(root+"/there/before/x", nil, 0o600))
	g.expect("created there/before/x")
	for round := range 20 {
		at := fmt.Sprintf("%s/r%d/a/b/c", root, round)
		check(t, os.MkdirAll(at, 0o755))
		check(t, os.WriteFile(at+"/f", nil, 0o600))
	}
	seen := map[string]int{}
	for len(seen) < 20*5 {
		e := g.next()
		if e.Type == "created" {
			seen[e.Path]++
		}
	}
	for name, times := range seen {
		if times != 1 {
			t.Errorf("%s was told %d times", name, times)
		}
	}
	check(t, os.Truncate(root+"/r7/a/b/c/f", 4))
	g.expect("modified r7/a/b/c/f")
	check(t, os.RemoveAll(root+"/r7"))
	g.expect("removed r7/a/b/c/f", "removed r7/a/b/c", "removed r7/a/b", "removed r7/a", "removed r7")
	check(t, os.MkdirAll(root+"/r7", 0o755))
	g.expect("created r7")
	check(t, os.WriteFile(root+"/r7/again", nil, 0o600))
	g.expect("created r7/again")
}

func TestARenamedDirectoryIsWatchedUnderItsNewName(t *testing.T) {
	outside := t.TempDir()
	root := t.TempDir()
	check(t, os.MkdirAll(root+"/a/deep", 0o755))
	check(t, os.MkdirAll(root+"/b", 0o755))
	check(t, os.MkdirAll(outside+"/new/deep", 0o755))
	g := begin(t, root, true)
	check(t, os.Rename(root+"/a", root+"/b/c"))
	check(t, os.WriteFile(root+"/b/c/deep/x", nil, 0o600))
	g.expect("moved_from a", "moved_to b/c", "created b/c/deep/x")
	check(t, os.Rename(root+"/b/c", outside+"/gone"))
	g.expect("moved_from b/c")
	check(t, os.WriteFile(outside+"/gone/deep/y", nil, 0o600))
	check(t, os.Rename(outside+"/new", root+"/new"))
	g.expect("moved_to new", "created new/deep")
	check(t, os.WriteFile(root+"/new/deep/z", nil, 0o600))
	g.expect("created new/deep/z")
}

func TestSymlinksAreNotEntered(t *testing.T) {
	outside, root := t.TempDir(), t.TempDir()
	check(t, os.Symlink(outside, root+"/link"))
	check(t, os.Symlink(".", root+"/loop"))
	g := begin(t, root, true)
	check(t, os.WriteFile(outside+"/x", nil, 0o600))
	check(t, os.Symlink(outside, root+"/later"))
	check(t, os.WriteFile(root+"/y", nil, 0o600))
	g.expect("created later", "created y")
}

func TestAWatchEndsWhenItsPathGoes(t *testing.T) {
	for name, remove := range map[string]func(string) error{
		"removed": os.RemoveAll, "renamed": func(at string) error { return os.Rename(at, at+"2") },
	} {
		for _, kind := range []string{"directory", "file"} {
			at := t.TempDir() + "/at"
			if kind == "file" {
				check(t, os.WriteFile(at, nil, 0o600))
			} else {
				check(t, os.MkdirAll(at+"/in", 0o755))
			}
			g := begin(t, at, true)
			check(t, remove(at))
			g.until("removed", "")
			select {
			case err := <-g.done:
				if err != nil {
					t.Errorf("%s %s: %v", kind, name, err)
				}
				g.done <- err
			case <-time.After(patience):
				t.Errorf("%s %s: goes on", kind, name)
			}
		}
	}
}

func TestAFileTellsOfItself(t *testing.T) {
	at := t.TempDir() + "/f"
	check(t, os.WriteFile(at, nil, 0o600))
	g := begin(t, at, false)
	check(t, os.Truncate(at, 10))
	check(t, os.Chmod(at, 0o640))
	g.expect("modified ", "attributes ")
	check(t, os.WriteFile(at+"2", nil, 0o600))
	check(t, os.Rename(at+"2", at))
	g.until("removed", "")
}

func TestLostEventsAreToldAndTheTreeIsWatchedOn(t *testing.T) {
	root := t.TempDir()
	hold := make(chan struct{})
	g := beginHeld(t, root, true, hold)
	queue := 16_384
	if text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events"); err == nil {
		fmt.Sscan(string(text), &queue)
	}
	for i := range queue/2 + 2000 {
		name := fmt.Sprintf("%s/%d", root, i)
		check(t, os.WriteFile(name, nil, 0o600))
		check(t, os.Remove(name))
	}
	check(t, os.MkdirAll(root+"/late/dir", 0o755))
	close(hold)
	for g.next().Type != "overflow" {
	}
	deadline := time.Now().Add(patience)
	for i := 0; ; i++ { // it may be entering the new directories at this moment
		name := fmt.Sprintf("late/dir/%d", i)
		check(t, os.WriteFile(root+"/"+name, nil, 0o600))
		select {
		case e := <-g.events:
			if strings.HasPrefix(e.Path, root+"/late/dir/") {
				return
			}
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("a directory made while events were lost is not watched")
		}
	}
}

func TestWhatCannotBeWatchedIsRefused(t *testing.T) {
	root := t.TempDir()
	for name, code := range map[string]fault.Code{root + "/nope": fault.NotFound, "relative": fault.InvalidArgument} {
		_, err := Start(context.Background(), name, true)
		var known *fault.Error
		if !errors.As(err, &known) || known.Code != code {
			t.Errorf("%s: %v", name, err)
		}
	}
	var open []*Watch
	for range maxWatchers {
		w, err := Start(context.Background(), root, false)
		check(t, err)
		open = append(open, w)
	}
	_, err := Start(context.Background(), root, false)
	var known *fault.Error
	if !errors.As(err, &known) || known.Code != fault.Conflict {
		t.Error(err)
	}
	for _, w := range open {
		w.Close()
	}
}

func TestNothingIsLeftOpen(t *testing.T) {
	root := t.TempDir()
	check(t, os.MkdirAll(root+"/a/b/c", 0o755))
	count := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		check(t, err)
		return len(list)
	}
	begin(t, root, true).end()
	before := count()
	for range 50 {
		begin(t, root, true).end()
	}
	if after := count(); after != before || watchers.Load() != 0 {
		t.Errorf("%d open files became %d, %d watchers", before, after, watchers.Load())
	}
}

func TestWatchesAreGivenUpWithTheirDirectories(t *testing.T) {
	root := t.TempDir()
	w, err := Start(context.Background(), root, true)
	check(t, err)
	defer w.Close()
	w.give = func([]protocol.WatchEvent) error { return nil }
	buffer := make([]byte, readBytes)
	drain := func() {
		for {
			w.events.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			n, err := w.events.Read(buffer)
			if err != nil {
				return
			}
			w.batch(context.Background(), buffer[:n])
			w.flush()
		}
	}
	for range 30 {
		check(t, os.MkdirAll(root+"/x/y/z", 0o755))
		check(t, os.WriteFile(root+"/x/y/z/f", nil, 0o600))
		drain()
		check(t, os.RemoveAll(root+"/x"))
		drain()
	}
	if len(w.nodes) != 1 || w.names != 0 || len(w.top.children) != 0 {
		t.Errorf("%d nodes, %d names", len(w.nodes), w.names)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add(make([]byte, unix.SizeofInotifyEvent))
	f.Add([]byte("\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00abc\x00"))
	f.Add([]byte("\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\xff\xff\xff\xffabc\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, e := range parseEvents(text) {
			if len(e.name) > len(text) {
				t.Error(e)
			}
		}
	})
}
