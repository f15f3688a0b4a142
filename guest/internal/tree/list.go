package tree

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/accounts"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

const (
	maxListDepth = 128
	entryBytes   = 256 // of an entry's JSON beside its path and name
)

// List tells what is in a directory, in the bytewise order of the paths that it shows. What it holds in memory is bounded by the limit, however
// many names there are: of every directory it keeps only those that can still come into the answer.
func (t *Tree) List(ctx context.Context, request protocol.ListRequest) (protocol.Listing, error) {
	none := protocol.Listing{}
	name, err := paths.Clean("path", request.Path)
	if err != nil {
		return none, err
	}
	depth, err := bounded("max_depth", request.MaxDepth, maxListDepth, maxListDepth)
	if err != nil {
		return none, err
	}
	limit, err := bounded("limit", request.Limit, MaxEntries, MaxEntries)
	if err != nil {
		return none, err
	}
	if !request.Recursive {
		depth = 1
	}
	dir, err := openDirectory(unix.AT_FDCWD, name, 0)
	if err != nil {
		return none, paths.Fault(name, err)
	}
	defer unix.Close(dir)
	l := lister{
		ctx: ctx, names: t.Users.Names(), depth: depth, limit: limit, after: request.After,
		result: protocol.Listing{Entries: []protocol.FileInfo{}},
	}
	if err := l.directory(dir, strings.TrimSuffix(name, "/")); err != nil {
		return none, paths.Fault(name, err)
	}
	return l.result, nil
}

type lister struct {
	ctx    context.Context
	reader Reader
	names  *accounts.Names
	depth  int
	limit  int
	after  string
	result protocol.Listing
	bytes  int
	// levels are the directories on the way down, each with what it has still to give.
	levels [][]listKey
	held   int
	full   bool
}

// listKey is an entry, or all that is below it: a directory has both, with other names in between, as `a`, `a-b`, `a/x` are in order.
type listKey struct {
	order string
	name  string
	below bool
}

func (l *lister) directory(dir int, at string) error {
	keys, err := l.keysOf(dir, at)
	if err != nil {
		return err
	}
	level := len(l.levels)
	l.levels = append(l.levels, keys)
	l.held += len(keys)
	defer func() { l.levels = l.levels[:level] }()
	l.trim()
	for !l.full && len(l.levels[level]) > 0 {
		key := l.levels[level][0]
		l.levels[level] = l.levels[level][1:]
		l.held--
		if err := l.ctx.Err(); err != nil {
			return err
		}
		if key.below {
			err = l.below(dir, at, key)
		} else {
			err = l.entry(dir, at, key)
		}
		if err != nil {
			return err
		}
	}
	l.held -= len(l.levels[level])
	return nil
}

func (l *lister) below(dir int, at string, key listKey) error {
	child, err := OpenChild(dir, key.name)
	if err != nil {
		return nil // gone, no directory any more, or not to be read: it was listed itself
	}
	defer unix.Close(child)
	err = l.directory(child, at+"/"+key.name)
	if err == unix.ENOENT || err == unix.ESRCH { // removed after it was opened
		return nil
	}
	return wrapped(at+"/"+key.name, err)
}

func (l *lister) entry(dir int, at string, key listKey) error {
	info, err := statAt(dir, key.name)
	if err != nil {
		return nil // gone meanwhile
	}
	l.bytes += 2*AnswerBytes(key.order) + entryBytes
	if len(l.result.Entries) >= l.limit || (l.bytes > maxAnswerBytes && len(l.result.Entries) > 0) {
		l.result.Truncated, l.full = true, true
		return nil
	}
	about := describe(dir, key.name, at+"/"+key.name, &info, l.names)
	l.bytes += AnswerBytes(about.Target)
	l.result.Entries = append(l.result.Entries, about)
	return nil
}

// need is how many entries can still be of use: one more than fit tells that there are more.
func (l *lister) need() int { return l.limit - len(l.result.Entries) + 1 }

func (l *lister) keysOf(dir int, at string) ([]listKey, error) {
	shown, _ := paths.Shown(at + "/")
	var keys []listKey
	for {
		entries, err := l.reader.Next(dir)
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			l.cut(&keys, l.need())
			return keys, nil
		}
		if err := l.ctx.Err(); err != nil {
			return nil, err
		}
		for _, entry := range entries {
			order, _ := paths.Shown(entry.Name)
			order = shown + order
			if order > l.after {
				keys = append(keys, listKey{order: order, name: entry.Name})
			}
			if len(l.levels)+1 >= l.depth {
				continue
			}
			inside := order + "/"
			if kind, err := kindOf(dir, entry); err == nil && kind == unix.S_IFDIR && (inside > l.after || strings.HasPrefix(l.after, inside)) {
				keys = append(keys, listKey{order: inside, name: entry.Name, below: true})
			}
		}
		if len(keys) > 4*l.need()+1024 {
			l.cut(&keys, l.need())
		}
	}
}

// cut sorts keys and keeps those up to the last entry that is needed; it returns how many of them are entries.
func (l *lister) cut(keys *[]listKey, need int) int {
	slices.SortFunc(*keys, func(a, b listKey) int {
		if order := strings.Compare(a.order, b.order); order != 0 {
			return order
		}
		return strings.Compare(a.name, b.name)
	})
	return l.keep(keys, need)
}

func (l *lister) keep(keys *[]listKey, need int) int {
	entries := 0
	for i, key := range *keys {
		if entries >= need {
			*keys = slices.Clone((*keys)[:i])
			l.result.Truncated = true
			return entries
		}
		if !key.below {
			entries++
		}
	}
	return entries
}

// trim drops what outer directories hold and inner ones already make needless.
func (l *lister) trim() {
	if l.held <= 4*l.limit+4096 {
		return
	}
	need := l.need()
	l.held = 0
	for i := len(l.levels) - 1; i >= 0; i-- {
		need -= l.keep(&l.levels[i], max(need, 0))
		l.held += len(l.levels[i])
	}
}
