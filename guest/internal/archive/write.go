// Package archive makes tar archives (pax) of what is in the guest and takes them in, both as streams.
package archive

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/tree"
)

const (
	bufferBytes   = 256 << 10
	maxDepth      = tree.MaxDepth
	maxLinksKnown = 100_000
)

// Source is what an archive will be made of: it is open already, so that its absence is an error before any byte is sent.
type Source struct {
	path string
	dir  int
	name string
}

// Open finds a directory or file to archive. A symlink as the last part is archived as one.
func Open(text string) (*Source, error) {
	name, err := paths.Clean("path", text)
	if err != nil {
		return nil, err
	}
	parent, base := path.Dir(name), path.Base(name)
	if name == "/" {
		base = "."
	}
	dir, err := unix.Open(parent, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, paths.Fault(name, err)
	}
	source := &Source{path: name, dir: dir, name: base}
	var info unix.Stat_t
	if err := unix.Fstatat(dir, base, &info, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		source.Close()
		return nil, paths.Fault(name, err)
	}
	if info.Mode&unix.S_IFMT == unix.S_IFSOCK {
		source.Close()
		return nil, fault.New(fault.Conflict, "%q is a socket", name).With("reason", paths.NotRegularFile).With("path", name)
	}
	return source, nil
}

func (s *Source) Close() { unix.Close(s.dir) }

// Write writes the archive: a directory as `./…` below itself, anything else under its own name. An error means that the archive is not whole.
func (s *Source) Write(ctx context.Context, to io.Writer) error {
	w := &writer{ctx: ctx, out: bufio.NewWriterSize(to, bufferBytes), links: map[inode]string{}, buffer: make([]byte, bufferBytes)}
	var info unix.Stat_t
	if err := unix.Fstatat(s.dir, s.name, &info, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	var err error
	if info.Mode&unix.S_IFMT == unix.S_IFDIR {
		w.inPseudo = paths.Pseudo(s.dir)
		err = w.directory(s.dir, s.name, ".", 0)
	} else {
		err = w.entry(s.dir, s.name, s.name, 0)
	}
	if err != nil {
		return err
	}
	if _, err := w.out.Write(make([]byte, 2*blockBytes)); err != nil {
		return err
	}
	return w.out.Flush()
}

type inode struct{ device, number uint64 }

type writer struct {
	ctx    context.Context
	out    *bufio.Writer
	reader tree.Reader
	links  map[inode]string // first name of what has several
	buffer []byte
	// inPseudo: the source itself lies in /proc, /sys or the like; otherwise those are archived as the empty directories that they are mounted on.
	inPseudo bool
}

func (w *writer) put(h *header) error {
	_, err := w.out.Write(h.encode())
	return err
}

// entry archives the name of a directory as `as`. What went meanwhile, or is not what it was, is left out or archived as what it is now.
func (w *writer) entry(dir int, name, as string, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	var info unix.Stat_t
	if err := unix.Fstatat(dir, name, &info, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return ignoreGone(as, err)
	}
	kind := info.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		return w.directory(dir, name, as, depth)
	}
	if kind == unix.S_IFSOCK {
		return nil
	}
	h := headerOf(&info, as)
	key := inode{uint64(info.Dev), info.Ino}
	if first, found := w.links[key]; found && info.Nlink > 1 {
		h.kind, h.link = typeHardLink, first
		return w.put(h)
	}
	var err error
	switch kind {
	case unix.S_IFREG:
		err = w.file(dir, name, as)
	case unix.S_IFLNK:
		h.kind = typeSymlink
		if h.link, err = readlink(dir, name); err == nil {
			err = w.put(h)
		} else {
			err = ignoreGone(as, err)
		}
	default:
		h.kind = map[uint32]byte{unix.S_IFIFO: typeFIFO, unix.S_IFCHR: typeCharacter, unix.S_IFBLK: typeBlock}[kind]
		h.device = uint64(info.Rdev)
		err = w.put(h)
	}
	if err == nil && info.Nlink > 1 && len(w.links) < maxLinksKnown {
		w.links[key] = as
	}
	return err
}

func headerOf(info *unix.Stat_t, as string) *header {
	return &header{kind: typeFile, name: as, mode: info.Mode & 0o7777, uid: info.Uid, gid: info.Gid, modified: info.Mtim}
}

func readlink(dir int, name string) (string, error) {
	target := make([]byte, paths.MaxBytes)
	n, err := unix.Readlinkat(dir, name, target)
	if err != nil {
		return "", err
	}
	return string(target[:n]), nil
}

func (w *writer) directory(dir int, name, as string, depth int) error {
	if depth >= maxDepth {
		return fmt.Errorf("%s goes deeper than %d levels", as, maxDepth)
	}
	child, err := tree.OpenChild(dir, name)
	if err != nil {
		return ignoreGone(as, err)
	}
	defer unix.Close(child)
	var info unix.Stat_t
	if err := unix.Fstat(child, &info); err != nil {
		return err
	}
	h := headerOf(&info, as+"/")
	h.kind = typeDirectory
	if err := w.put(h); err != nil {
		return err
	}
	if !w.inPseudo && depth > 0 && paths.Pseudo(child) {
		return nil
	}
	for {
		entries, err := w.reader.Next(child)
		if err != nil || len(entries) == 0 {
			return ignoreGone(as, err)
		}
		for _, entry := range entries {
			if err := w.entry(child, entry.Name, as+"/"+entry.Name, depth+1); err != nil {
				return err
			}
		}
	}
}

// ignoreGone passes over what was removed, or became something else, between looking and opening.
func ignoreGone(as string, err error) error {
	switch err {
	case nil, unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.ESRCH, unix.ENXIO:
		return nil
	default:
		return fmt.Errorf("%s: %w", as, err)
	}
}
