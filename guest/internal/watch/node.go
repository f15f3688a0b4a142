package watch

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/paths"
)

// maxNamesHeld: beyond it an entry may be told as created twice.
const maxNamesHeld = 200_000

// node is a watched directory, or the one watched file.
type node struct {
	number    int32
	parent    *node
	name      string
	directory bool
	children  map[string]*node
	// told are entries that reading the directory has told, and that the kernel may tell again.
	told map[string]bool
}

func (n *node) path() string {
	if n.parent == nil {
		return n.name
	}
	return n.parent.join(n.name)
}

func (n *node) join(name string) string {
	at := n.path()
	if at == "/" {
		return at + name
	}
	return at + "/" + name
}

func (w *Watch) add(name string, mask uint32) (number int32, err error) {
	raw, err := w.events.SyscallConn()
	if err != nil {
		return 0, err
	}
	var added int
	control := raw.Control(func(fd uintptr) { added, err = unix.InotifyAddWatch(int(fd), name, mask) })
	if control != nil {
		return 0, control
	}
	return int32(added), err
}

func (w *Watch) drop(n *node) {
	if raw, err := w.events.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(n.number)) })
	}
	w.forget(n)
}

// forget takes a node and all below it out of the tree; the watches of those below are dropped.
func (w *Watch) forget(n *node) {
	if n.parent != nil && n.parent.children[n.name] == n {
		delete(n.parent.children, n.name)
	}
	if w.nodes[n.number] == n {
		delete(w.nodes, n.number)
	}
	w.names -= len(n.told)
	n.told = nil
	for _, child := range n.children {
		w.drop(child)
	}
}

// enter watches a directory below another, and what is in it. With tell, what is found in it is told as created.
func (w *Watch) enter(ctx context.Context, parent *node, name string, tell bool) error {
	if len(w.nodes) >= maxDirectories {
		return unix.ENOSPC
	}
	full := parent.join(name)
	number, err := w.add(full, directoryMask)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EACCES):
		return nil // gone, or another thing already
	case errors.Is(err, unix.ENAMETOOLONG):
		return nil // nothing can be said of paths that cannot be used
	case err != nil:
		return err
	}
	if known := w.nodes[number]; known != nil {
		// Watched already: it was moved here, and the event that says so is still to come.
		if known == w.top || isBelow(parent, known) {
			return nil
		}
		w.attach(known, parent, name)
		return nil
	}
	n := &node{number: number, parent: parent, name: name, directory: true, children: map[string]*node{}}
	if before := parent.children[name]; before != nil {
		w.drop(before) // another directory had this name
	}
	parent.children[name] = n
	w.nodes[number] = n
	return w.scan(ctx, n, tell)
}

func isBelow(n, above *node) bool {
	for ; n != nil; n = n.parent {
		if n == above {
			return true
		}
	}
	return false
}

// attach gives a node another place in the tree.
func (w *Watch) attach(n, parent *node, name string) {
	if before := parent.children[name]; before != nil && before != n {
		w.drop(before)
	}
	if n.parent != nil && n.parent.children[n.name] == n {
		delete(n.parent.children, n.name)
	}
	n.parent, n.name = parent, name
	parent.children[name] = n
}

// scan reads a directory that is watched already and enters the directories in it.
func (w *Watch) scan(ctx context.Context, n *node, tell bool) error {
	dir, err := unix.Open(n.path(), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // gone: the kernel tells
	}
	defer unix.Close(dir)
	if n.parent != nil && paths.Pseudo(dir) && !w.inPseudo() {
		return nil
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := w.reader.Next(dir)
		if err != nil || len(entries) == 0 {
			return nil
		}
		for _, entry := range entries {
			isDirectory := entry.Kind == unix.S_IFDIR
			if entry.Kind == 0 {
				var info unix.Stat_t
				isDirectory = unix.Fstatat(dir, entry.Name, &info, unix.AT_SYMLINK_NOFOLLOW) == nil && info.Mode&unix.S_IFMT == unix.S_IFDIR
			}
			if tell {
				w.tell("created", n.join(entry.Name), isDirectory)
				w.hold(n, entry.Name)
			}
			if isDirectory && (w.refreshing || n.children[entry.Name] == nil) {
				if err := w.enter(ctx, n, entry.Name, tell); err != nil {
					return err
				}
			}
		}
	}
}

func (w *Watch) hold(n *node, name string) {
	if w.names >= maxNamesHeld || n.told[name] {
		return
	}
	if n.told == nil {
		n.told = map[string]bool{}
	}
	n.told[name] = true
	w.names++
}

// release tells whether an entry was told by reading, and forgets that.
func (w *Watch) release(n *node, name string) bool {
	if !n.told[name] {
		return false
	}
	delete(n.told, name)
	w.names--
	return true
}

// inPseudo: the watched path itself lies in /proc, /sys or the like.
func (w *Watch) inPseudo() bool {
	dir, err := unix.Open(w.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	return paths.Pseudo(dir)
}
