package watch

import (
	"context"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// event is struct inotify_event: watch, mask, cookie, length of the name, name.
type event struct {
	number int32
	mask   uint32
	cookie uint32
	name   string
}

func parseEvents(text []byte) []event {
	var events []event
	for len(text) >= unix.SizeofInotifyEvent {
		length := int(binary.NativeEndian.Uint32(text[12:]))
		if length < 0 || length > len(text)-unix.SizeofInotifyEvent {
			break
		}
		events = append(events, event{
			number: int32(binary.NativeEndian.Uint32(text[0:])), mask: binary.NativeEndian.Uint32(text[4:]), cookie: binary.NativeEndian.Uint32(text[8:]),
			name: unix.ByteSliceToString(text[unix.SizeofInotifyEvent : unix.SizeofInotifyEvent+length]),
		})
		text = text[unix.SizeofInotifyEvent+length:]
	}
	return events
}

// departure is a directory that left its place and may have come to another: the kernel's next event says so.
type departure struct {
	cookie uint32
	node   *node
}

func (w *Watch) batch(ctx context.Context, text []byte) {
	for _, e := range parseEvents(text) {
		if w.ended {
			return
		}
		if w.moved != nil && (e.mask&unix.IN_MOVED_TO == 0 || e.cookie != w.moved.cookie) {
			w.depart()
		}
		w.event(ctx, e)
	}
	w.depart()
}

// depart gives up the watches of a directory that left the tree.
func (w *Watch) depart() {
	if w.moved != nil {
		n := w.moved.node
		w.moved = nil
		if w.nodes[n.number] == n && n.parent == nil {
			w.drop(n)
		}
	}
}

func (w *Watch) event(ctx context.Context, e event) {
	if e.mask&unix.IN_Q_OVERFLOW != 0 {
		w.overflow()
		w.again(ctx)
		return
	}
	n := w.nodes[e.number]
	if n == nil {
		return // of a watch that was given up
	}
	switch {
	case e.mask&(unix.IN_IGNORED|unix.IN_UNMOUNT|unix.IN_DELETE_SELF) != 0:
		if n == w.top {
			w.end()
		} else {
			w.forget(n)
		}
	case e.mask&unix.IN_MOVE_SELF != 0:
		if n == w.top {
			w.check()
		}
	case e.name == "":
		w.own(n, e)
	default:
		w.entry(ctx, n, e)
	}
}

// own is what happens to what is watched itself; of directories below the top the event of their parents says the same.
func (w *Watch) own(n *node, e event) {
	if n != w.top {
		return
	}
	if e.mask&unix.IN_MODIFY != 0 {
		w.tell("modified", w.path, n.directory)
	}
	if e.mask&unix.IN_ATTRIB != 0 { // the removal of a file that is open is one of these
		if w.check(); !w.ended {
			w.tell("attributes", w.path, n.directory)
		}
	}
}

func (w *Watch) entry(ctx context.Context, n *node, e event) {
	full, isDirectory := n.join(e.name), e.mask&unix.IN_ISDIR != 0
	switch {
	case e.mask&unix.IN_CREATE != 0:
		if !w.release(n, e.name) {
			w.tell("created", full, isDirectory)
		}
		w.arrive(ctx, n, e, isDirectory)
	case e.mask&unix.IN_MOVED_TO != 0:
		if !w.release(n, e.name) {
			w.tell("moved_to", full, isDirectory)
		}
		if w.moved != nil && isDirectory {
			moved := w.moved.node
			w.moved = nil
			w.attach(moved, n, e.name)
			return
		}
		w.arrive(ctx, n, e, isDirectory)
	case e.mask&unix.IN_MOVED_FROM != 0:
		w.release(n, e.name)
		w.tell("moved_from", full, isDirectory)
		if child := n.children[e.name]; child != nil && isDirectory {
			delete(n.children, e.name)
			child.parent = nil
			w.moved = &departure{cookie: e.cookie, node: child}
		}
	case e.mask&unix.IN_DELETE != 0:
		w.release(n, e.name)
		w.tell("removed", full, isDirectory)
		if child := n.children[e.name]; child != nil && isDirectory {
			w.drop(child)
		}
	case e.mask&unix.IN_MODIFY != 0:
		w.tell("modified", full, isDirectory)
	case e.mask&unix.IN_ATTRIB != 0:
		w.tell("attributes", full, isDirectory)
	}
}

// arrive begins to watch a directory that came.
func (w *Watch) arrive(ctx context.Context, n *node, e event, isDirectory bool) {
	if !isDirectory || !w.recursive || n.children[e.name] != nil {
		return
	}
	if err := w.enter(ctx, n, e.name, true); err != nil && ctx.Err() == nil {
		w.overflow() // it is not watched: the limit of the machine or our own is reached
	}
}

// again enters, after events were lost, the directories that are not watched yet.
func (w *Watch) again(ctx context.Context) {
	w.depart()
	if !w.recursive || !w.top.directory {
		return
	}
	w.refreshing = true
	defer func() { w.refreshing = false }()
	known := make([]*node, 0, len(w.nodes))
	for _, n := range w.nodes {
		known = append(known, n)
		n.told = nil // the events that would tell it again may be lost
	}
	w.names = 0
	for _, n := range known {
		if w.nodes[n.number] == n && w.scan(ctx, n, false) != nil {
			return
		}
	}
	w.check()
}
