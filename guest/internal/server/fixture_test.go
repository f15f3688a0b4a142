package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/accounts"
	"fuse/guest/internal/disk"
	"fuse/guest/internal/exec"
	"fuse/guest/internal/fault"
	"fuse/guest/internal/frames"
	"fuse/guest/internal/health"
	"fuse/guest/internal/hooks"
	"fuse/guest/internal/identity"
	"fuse/guest/internal/processes"
	"fuse/guest/internal/protocol"
	"fuse/guest/internal/pty"
	"fuse/guest/internal/reaper"
	"fuse/guest/internal/tree"
	"fuse/guest/internal/tunnel"
)

// The reaper takes every child of a process, so all tests share one, and orphans come to it as they come to PID 1.
var children = sync.OnceValue(func() *reaper.Reaper {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	return reaper.Start()
})

// family stands in for a cgroup where there is none: it is every process that descends from the tests.
type family struct{ released *sync.WaitGroup }

func (family) Name() string    { return "" }
func (family) FD() int         { return -1 }
func (family) OOMKills() int64 { return 0 }
func (f family) Release()      { f.released.Done() }

func (family) Kill() error {
	for range 100 { // what forked meanwhile is found in the next round
		found := descendants()
		if found == nil {
			break
		}
		for _, pid := range found {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	return nil
}

func (family) Signal(signal unix.Signal) { processes.SignalAll(descendants, signal) }

func (family) Populated() bool { return len(descendants()) > 0 }

func descendants() []int {
	parents := map[int]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
		parent, _ := strconv.Atoi(fields[1])
		if fields[0] != "Z" {
			parents[pid] = parent
		}
	}
	var found []int // parents first: one that outlives its child would tell about it
	for _, pid := range slices.Sorted(maps.Keys(parents)) {
		for up := parents[pid]; up != 0; up = parents[up] {
			if up == os.Getpid() {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

// guest is an agent that serves HTTP/2 on a Unix socket, with a client.
type guest struct {
	*testing.T
	socket string
	client *http.Client
	execs  *exec.Registry
	disk   *frozenDisk
}

// frozenDisk is what the kernel was asked to do to the file system: tests freeze none of the machine that they run on.
type frozenDisk struct{ frozen atomic.Bool }

func (d *frozenDisk) control(request disk.Request) error {
	d.frozen.Store(request == disk.FreezeRequest)
	return nil
}

func newGuest(t *testing.T) *guest {
	t.Helper()
	var groups sync.WaitGroup
	devpts, err := pty.OpenDirectory("/dev/pts")
	if err != nil {
		t.Fatal(err)
	}
	proc, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	users := accounts.NewDirectory(accounts.System)
	registry := exec.NewRegistry(exec.Options{
		Forker:            &exec.Forker{Reaper: children(), Terminals: devpts},
		NewGroup:          func() (exec.Group, error) { groups.Add(1); return family{&groups}, nil },
		Users:             users,
		OutputBudgetBytes: 64 << 20,
	})
	socket := filepath.Join(t.TempDir(), "guest.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	frozen := &frozenDisk{}
	checker := health.New(registry)
	server := New(&Agent{
		Execs:       registry,
		Machine:     identity.New(nil),
		Hooks:       hooks.New(filepath.Join(t.TempDir(), "none"), registry),
		Disk:        disk.Controlled(frozen.control),
		Processes:   processes.NewTable(proc, users, registry.Groups),
		Tunnels:     &tunnel.Tunnels{},
		Healthcheck: checker,
		Files:       &tree.Tree{Users: users},
		Version:     "test",
	}, log.New(io.Discard, "", 0))
	go server.Serve(listener)
	g := &guest{T: t, socket: socket, client: newClient(socket), execs: registry, disk: frozen}
	t.Cleanup(func() {
		checker.Delete()
		_ = family{}.Kill()
		server.Close()
		groups.Wait() // every exec came to its end
		unix.Close(devpts)
		unix.Close(proc)
	})
	return g
}

func newClient(socket string) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			Protocols: protocols,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			},
		},
	}
}

func (g *guest) do(method, path string, body any) (int, []byte) {
	g.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case io.Reader:
		reader = b
	default:
		text, err := json.Marshal(body)
		if err != nil {
			g.Fatal(err)
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, "http://guest"+path, reader)
	if err != nil {
		g.Fatal(err)
	}
	response, err := g.client.Do(request)
	if err != nil {
		g.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		g.Fatal(err)
	}
	return response.StatusCode, text
}

// refused checks that a request is answered with this code and its status, and returns the rest of the error.
func (g *guest) refused(want fault.Code, method, path string, body any) protocol.ErrorFields {
	g.Helper()
	status, text := g.do(method, path, body)
	var answer protocol.ErrorBody
	if err := json.Unmarshal(text, &answer); err != nil || status != want.Status() || answer.Error.Code != string(want) {
		g.Errorf("%s %s: %d %s, want %s", method, path, status, text, want)
	}
	return answer.Error
}

func (g *guest) status(id string) protocol.ExecStatus {
	g.Helper()
	code, text := g.do("GET", "/v1/execs/"+id, nil)
	var status protocol.ExecStatus
	if err := json.Unmarshal(text, &status); err != nil || code != http.StatusOK {
		g.Fatalf("%d %s", code, text)
	}
	return status
}

// conversation is the host's end of a POST to an exec.
type conversation struct {
	g        *guest
	id       string
	in       *io.PipeWriter
	response *http.Response
	frames   *frames.Reader
}

// talk opens a conversation that must be answered.
func (g *guest) talk(id string, offset int64, spec *protocol.ExecSpec) *conversation {
	g.Helper()
	c, err := g.tryTalk(id, offset, spec)
	if err != nil {
		g.Fatal(err)
	}
	return c
}

// tryTalk opens a conversation; an error means that it was cut before the guest's answer came.
func (g *guest) tryTalk(id string, offset int64, spec *protocol.ExecSpec) (*conversation, error) {
	g.Helper()
	reader, writer := io.Pipe()
	request, err := http.NewRequest("POST", fmt.Sprintf("http://guest/v1/execs/%s?offset=%d", id, offset), reader)
	if err != nil {
		g.Fatal(err)
	}
	if spec != nil {
		payload, err := json.Marshal(spec)
		if err != nil {
			g.Fatal(err)
		}
		go writer.Write(frames.Append(nil, frames.Spec, payload))
	}
	response, err := g.client.Do(request)
	if err != nil {
		return nil, err
	}
	g.Cleanup(func() { response.Body.Close() })
	return &conversation{g: g, id: id, in: writer, response: response, frames: frames.NewReader(response.Body)}, nil
}

func (c *conversation) send(kind frames.Type, payload []byte) error {
	_, err := c.in.Write(frames.Append(nil, kind, payload))
	return err
}

// result is everything that an exec's frame stream said.
type result struct {
	stdout, stderr []byte
	exit           protocol.ExecExit
	bytes          int64 // of the stream
}

// rest reads the stream to its exit frame, acknowledging as a host does.
func (c *conversation) rest() (result, error) {
	var r result
	acked := int64(0)
	for {
		if r.bytes-acked > 128<<10 {
			acked = r.bytes
			c.g.do("POST", fmt.Sprintf("/v1/execs/%s/ack?offset=%d", c.id, acked), nil)
		}
		kind, size, err := c.frames.Next()
		if err != nil {
			return r, fmt.Errorf("after %d bytes: %w", r.bytes, err)
		}
		payload, err := c.frames.Payload(frames.MaxPayloadBytes)
		if err != nil {
			return r, err
		}
		r.bytes += int64(size) + frames.HeaderBytes
		switch kind {
		case frames.Stdout:
			r.stdout = append(r.stdout, payload...)
		case frames.Stderr:
			r.stderr = append(r.stderr, payload...)
		case frames.Exit:
			return r, json.Unmarshal(payload, &r.exit)
		}
	}
}

// run runs a command to its end.
func (g *guest) run(id string, spec protocol.ExecSpec) result {
	g.Helper()
	c := g.talk(id, 0, &spec)
	defer c.in.Close()
	if c.response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(c.response.Body)
		g.Fatalf("%d %s", c.response.StatusCode, text)
	}
	r, err := c.rest()
	if err != nil {
		g.Fatal(err)
	}
	return r
}

func shell(script string) protocol.ExecSpec {
	return protocol.ExecSpec{Argv: []string{"sh", "-c", script}, Cwd: "/"}
}
