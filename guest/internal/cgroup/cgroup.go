// Package cgroup keeps everything that the host started apart from the agent. The tree, under the cgroup v2 root:
//
//	fuse-agent   the agent, with the larger share of the CPU
//	fuse         memory.max and pids.max leave the kernel and the agent their reserve
//	fuse/<n>     one exec each, from its first instruction, with an equal share of the CPU: one that forks without end does not
//	             keep the next from starting
//
// All paths are opened from descriptors taken at boot, so nothing that the guest does to its mounts matters.
package cgroup

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/processes"
)

const (
	sweepInterval = 500 * time.Millisecond
	maxDepth      = 16 // of cgroups that the guest made below an exec's
	maxListBytes  = 1 << 20
)

type Tree struct {
	execs    int // descriptor of fuse/
	sequence atomic.Int64
	spare    chan *Group

	mu        sync.Mutex
	lingering map[*Group]struct{}
}

// Limits of everything but the agent and the kernel.
type Limits struct {
	MemoryMaxBytes int64
	PidsMax        int64
}

// NewTree makes the tree below root, a descriptor of a cgroup2 mount, and moves the calling process into its own cgroup.
func NewTree(root int, limits Limits) (*Tree, error) {
	if err := write(root, "cgroup.subtree_control", "+cpu +memory +pids"); err != nil {
		return nil, err
	}
	agent, err := makeDir(root, "fuse-agent")
	if err != nil {
		return nil, err
	}
	defer unix.Close(agent)
	execs, err := makeDir(root, "fuse")
	if err != nil {
		return nil, err
	}
	for _, setting := range []struct {
		dir         int
		file, value string
	}{
		{agent, "cgroup.procs", strconv.Itoa(os.Getpid())},
		{agent, "cpu.weight", "10000"},
		{execs, "cpu.weight", "100"},
		{execs, "memory.max", strconv.FormatInt(limits.MemoryMaxBytes, 10)},
		{execs, "pids.max", strconv.FormatInt(limits.PidsMax, 10)},
		{execs, "cgroup.subtree_control", "+cpu +memory"},
	} {
		if err := write(setting.dir, setting.file, setting.value); err != nil {
			return nil, err
		}
	}
	t := &Tree{execs: execs, spare: make(chan *Group, 1), lingering: map[*Group]struct{}{}}
	t.prepare()
	go t.endThrashing(limits.MemoryMaxBytes)
	return t, nil
}

// Group is the cgroup of one exec.
type Group struct {
	tree *Tree
	name string
	dir  int

	mu     sync.Mutex
	closed bool
}

// New returns an empty group: one that was made ahead, when there is one.
func (t *Tree) New() (*Group, error) {
	select {
	case spare := <-t.spare:
		return spare, nil
	default:
		return t.make()
	}
}

// prepare makes a group ahead. Under emulation that takes a good part of a short command's time.
func (t *Tree) prepare() {
	if len(t.spare) > 0 {
		return
	}
	group, err := t.make()
	if err != nil {
		return // the next New says why
	}
	select {
	case t.spare <- group:
	default:
		group.remove()
	}
}

func (t *Tree) make() (*Group, error) {
	name := strconv.FormatInt(t.sequence.Add(1), 10)
	dir, err := makeDir(t.execs, name)
	if err != nil {
		return nil, err
	}
	return &Group{tree: t, name: name, dir: dir}, nil
}

// FD is the directory's descriptor, to clone a child into the cgroup.
func (g *Group) FD() int { return g.dir }

// Name is the directory's name.
func (g *Group) Name() string { return g.name }

// Kill sends SIGKILL to every process of the group, forks in flight included.
func (g *Group) Kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	return write(g.dir, "cgroup.kill", "1")
}

// Signal sends a signal to every process of the group, those in groups that the guest made below it included.
func (g *Group) Signal(signal unix.Signal) {
	if signal == unix.SIGKILL && g.Kill() == nil {
		return
	}
	processes.SignalAll(g.pids, signal)
}

func (g *Group) pids() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	return pidsBelow(g.dir, maxDepth)
}

func pidsBelow(dir, depth int) []int {
	var pids []int
	for _, line := range strings.Fields(string(readFile(dir, "cgroup.procs"))) {
		if pid, err := strconv.Atoi(line); err == nil {
			pids = append(pids, pid)
		}
	}
	if depth == 0 {
		return pids
	}
	for _, name := range directories(dir) {
		below, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			continue
		}
		pids = append(pids, pidsBelow(below, depth-1)...)
		unix.Close(below)
	}
	return pids
}

func directories(dir int) []string {
	fd, err := openAt(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(fd), "cgroup")
	defer file.Close()
	entries, _ := file.ReadDir(-1)
	var names []string
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names
}

func readFile(dir int, name string) []byte {
	fd, err := openAt(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	text, _ := io.ReadAll(io.LimitReader(file, maxListBytes))
	return text
}

// Populated tells whether a live process is left in the group.
func (g *Group) Populated() bool {
	value, err := g.event("cgroup.events", "populated")
	return err == nil && value > 0
}

// OOMKills counts the group's processes that the out-of-memory killer took.
func (g *Group) OOMKills() int64 {
	value, err := g.event("memory.events", "oom_kill")
	if err != nil {
		return 0
	}
	return value
}

// Release removes the group as soon as it is empty.
func (g *Group) Release() {
	t := g.tree
	defer t.prepare()
	if g.remove() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lingering) == 0 {
		go t.sweep()
	}
	t.lingering[g] = struct{}{}
}

func (t *Tree) sweep() {
	for {
		time.Sleep(sweepInterval)
		t.mu.Lock()
		for group := range t.lingering {
			if group.remove() {
				delete(t.lingering, group)
			}
		}
		left := len(t.lingering)
		t.mu.Unlock()
		if left == 0 {
			return
		}
	}
}

func (g *Group) remove() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return true
	}
	if err := unix.Unlinkat(g.tree.execs, g.name, unix.AT_REMOVEDIR); err != nil && err != unix.ENOENT {
		return false
	}
	unix.Close(g.dir)
	g.closed = true
	return true
}

func (g *Group) event(file, key string) (int64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return 0, os.ErrClosed
	}
	fd, err := openAt(g.dir, file, unix.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	var text [512]byte
	n, err := unix.Read(fd, text[:])
	if err != nil {
		return 0, err
	}
	return eventValue(text[:n], key)
}

// eventValue finds "key value" among the lines of a flat keyed file.
func eventValue(text []byte, key string) (int64, error) {
	for line := range bytes.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(string(line)), " ")
		if found && name == key {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("no %s", key)
}

func makeDir(parent int, name string) (int, error) {
	if err := unix.Mkdirat(parent, name, 0o755); err != nil && err != unix.EEXIST {
		return -1, fmt.Errorf("make cgroup %s: %w", name, err)
	}
	dir, err := openAt(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return -1, fmt.Errorf("open cgroup %s: %w", name, err)
	}
	return dir, nil
}

func write(dir int, file, value string) error {
	fd, err := openAt(dir, file, unix.O_WRONLY)
	if err != nil {
		return fmt.Errorf("open %s: %w", file, err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return fmt.Errorf("write %q to %s: %w", value, file, err)
	}
	return nil
}

func openAt(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}
