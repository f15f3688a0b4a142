// Package watch tells what happens to a path, by inotify.
//
// Each watched directory is a node that knows its parent and name, so that a directory which is renamed within the tree keeps its watch and everything below
// it has its new path at once. A directory that comes into the tree is watched first and read then: what was put into it before the watch began is told as
// created, and what the kernel tells again is passed over.
package watch

import (
	"context"
	"errors"
	"os"
	"path"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
	"fuse/guest/internal/tree"
)

const (
	maxWatchers    = 32
	maxDirectories = 65_536
	maxBatch       = 1_000
	heartbeat      = 10 * time.Second
	// Enough for many events; the kernel's own queue is what is bounded.
	readBytes = 64 << 10

	directoryMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW
	fileMask = unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
)

var watchers atomic.Int64

// Watch is one stream of events.
type Watch struct {
	events    *os.File
	top       *node
	path      string
	identity  inode
	recursive bool
	nodes     map[int32]*node
	names     int // held by all nodes against being told twice
	reader    tree.Reader
	give      func([]protocol.WatchEvent) error
	failed    error // of give
	pending   []protocol.WatchEvent
	last      map[string]string // the last type that was told of a path, in this batch
	moved     *departure
	// refreshing: events were lost, so what is known of directories is looked at again.
	refreshing bool
	ended      bool
}

type inode struct{ device, number uint64 }

// Start watches a path; when it returns, everything that is there is watched. A symlink at the path is followed.
func Start(ctx context.Context, text string, recursive bool) (*Watch, error) {
	name, err := paths.Clean("path", text)
	if err != nil {
		return nil, err
	}
	if watchers.Add(1) > maxWatchers {
		watchers.Add(-1)
		return nil, fault.New(fault.Conflict, "%d watches are open, which is the most at a time", maxWatchers).With("reason", paths.TooLarge)
	}
	w, err := start(ctx, name, recursive)
	if err != nil {
		watchers.Add(-1)
		return nil, paths.Fault(name, err)
	}
	return w, nil
}

func start(ctx context.Context, name string, recursive bool) (*Watch, error) {
	var info unix.Stat_t
	if err := unix.Stat(name, &info); err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err == unix.EMFILE {
		return nil, fault.New(fault.Conflict, "the machine has no inotify instance left (fs.inotify.max_user_instances)").With("reason", paths.TooLarge)
	}
	if err != nil {
		return nil, err
	}
	w := &Watch{
		events: os.NewFile(uintptr(fd), "inotify"), path: name, identity: inode{uint64(info.Dev), info.Ino}, recursive: recursive,
		nodes: map[int32]*node{}, last: map[string]string{},
	}
	if err := w.first(ctx, info.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		w.events.Close()
		return nil, err
	}
	return w, nil
}

func (w *Watch) first(ctx context.Context, isDirectory bool) error {
	mask := uint32(fileMask)
	if isDirectory {
		mask = directoryMask &^ unix.IN_DONT_FOLLOW
	}
	number, err := w.add(w.path, mask)
	if err != nil {
		return limit(err)
	}
	w.top = &node{number: number, name: w.path, children: map[string]*node{}, directory: isDirectory}
	w.nodes[number] = w.top
	if !isDirectory || !w.recursive {
		return nil
	}
	return limit(w.scan(ctx, w.top, false))
}

func limit(err error) error {
	if errors.Is(err, unix.ENOSPC) {
		return fault.New(fault.Conflict, "there are more directories than can be watched: at most %d, and fs.inotify.max_user_watches of the machine", maxDirectories).
			With("reason", paths.TooLarge)
	}
	return err
}

// Close ends the watch. Run must have returned, or not been called.
func (w *Watch) Close() {
	w.events.Close()
	watchers.Add(-1)
}

// Run gives events, in batches, until the path is gone, the request ends, or they cannot be given.
func (w *Watch) Run(ctx context.Context, give func([]protocol.WatchEvent) error) error {
	stop := context.AfterFunc(ctx, func() { _ = w.events.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	w.give = give
	w.pending = append(w.pending, protocol.WatchEvent{Type: "ready"})
	w.flush()
	buffer := make([]byte, readBytes)
	for !w.ended && w.failed == nil {
		if err := w.events.SetReadDeadline(time.Now().Add(heartbeat)); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil { // after the deadline was set: the one that ends the request comes after it, or is seen here
			return err
		}
		n, err := w.events.Read(buffer)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := ctx.Err(); err != nil {
				return err
			}
			if w.check(); !w.ended {
				w.pending = append(w.pending, protocol.WatchEvent{Type: "heartbeat"})
			}
		case err != nil:
			return err
		default:
			w.batch(ctx, buffer[:n])
		}
		w.flush()
	}
	return w.failed
}

func (w *Watch) flush() {
	if len(w.pending) > 0 && w.failed == nil {
		w.failed = w.give(w.pending)
	}
	w.pending = w.pending[:0]
	clear(w.last)
}

// check looks whether the path still leads to what is watched: a directory that a process is in tells nothing of its own removal.
func (w *Watch) check() {
	var info unix.Stat_t
	if unix.Stat(w.path, &info) != nil || (inode{uint64(info.Dev), info.Ino}) != w.identity {
		w.end()
	}
}

func (w *Watch) end() {
	if !w.ended {
		w.ended = true
		w.tell("removed", w.path, w.top.directory)
	}
}

func (w *Watch) tell(kind, name string, isDirectory bool) {
	if kind == "modified" && w.last[name] == kind {
		return
	}
	w.last[name] = kind
	shown, _ := paths.Shown(path.Clean(name))
	w.pending = append(w.pending, protocol.WatchEvent{Type: kind, Path: shown, IsDirectory: &isDirectory})
	if len(w.pending) >= maxBatch { // of a large directory that came as a whole
		w.flush()
	}
}

func (w *Watch) overflow() {
	w.pending = append(w.pending, protocol.WatchEvent{Type: "overflow"})
}
