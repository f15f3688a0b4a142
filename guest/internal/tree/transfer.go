package tree

import (
	"context"
	"crypto/rand"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

// transfer is a move or a copy from a name in one directory to a name in another.
type transfer struct {
	ctx                context.Context
	fromPath, toPath   string
	fromDir, toDir     int
	fromName, toName   string
	source             unix.Stat_t
	overwrite, recurse bool
}

func (t *Tree) transfer(ctx context.Context, request protocol.TransferRequest, do func(*transfer) error) (protocol.FileInfo, error) {
	none := protocol.FileInfo{}
	from, err := paths.Clean("from", request.From)
	if err != nil {
		return none, err
	}
	to, err := paths.Clean("to", request.To)
	if err != nil {
		return none, err
	}
	w := &transfer{ctx: ctx, fromPath: from, toPath: to, overwrite: request.Overwrite, recurse: request.Recursive}
	if w.fromDir, w.fromName, err = parentOf(from); err != nil {
		return none, paths.Fault(from, err)
	}
	defer unix.Close(w.fromDir)
	if w.toDir, w.toName, err = parentOf(to); err != nil {
		return none, paths.Fault(to, err)
	}
	defer unix.Close(w.toDir)
	if w.source, err = statAt(w.fromDir, w.fromName); err != nil {
		return none, paths.Fault(from, err)
	}
	if err := do(w); err != nil {
		return none, paths.Fault(to, err)
	}
	return t.about(to)
}

// Copy copies; the target has its name only once it is whole. With overwrite what was there is replaced as a whole, a directory too.
func (t *Tree) Copy(ctx context.Context, request protocol.TransferRequest) (protocol.FileInfo, error) {
	return t.transfer(ctx, request, (*transfer).copy)
}

// Move renames; across file systems it copies and then removes.
func (t *Tree) Move(ctx context.Context, request protocol.TransferRequest) (protocol.FileInfo, error) {
	return t.transfer(ctx, request, (*transfer).move)
}

func (w *transfer) isDirectory() bool { return w.source.Mode&unix.S_IFMT == unix.S_IFDIR }

func (w *transfer) copy() error {
	if w.isDirectory() && !w.recurse {
		return paths.Conflict(paths.IsADirectory, w.fromPath, "%q is a directory; it is copied with recursive", w.fromPath)
	}
	if err := w.fits(); err != nil {
		return err
	}
	temporary := temporaryName + rand.Text()
	c := copier{ctx: w.ctx, top: w.toDir, made: map[inode]string{}}
	err := c.copy(w.fromDir, w.fromName, w.toDir, temporary, temporary, 0)
	if err == nil {
		err = place(w.ctx, w.toDir, temporary, w.toDir, w.toName, w.toPath, w.overwrite)
	}
	if err != nil {
		if cleaning := removeAll(context.WithoutCancel(w.ctx), w.toDir, temporary, w.toPath); cleaning != nil && !missing(cleaning) {
			return fault.New(fault.Internal, "%v; and what was copied could not be removed: %v", err, cleaning)
		}
	}
	return err
}

// fits refuses early what could not be put in its place in the end.
func (w *transfer) fits() error {
	target, err := statAt(w.toDir, w.toName)
	there := err == nil
	switch {
	case there && !w.overwrite:
		return unix.EEXIST
	case there && w.isDirectory() && target.Mode&unix.S_IFMT != unix.S_IFDIR:
		return unix.ENOTDIR
	case there && !w.isDirectory() && target.Mode&unix.S_IFMT == unix.S_IFDIR:
		return unix.EISDIR
	case !there && err != unix.ENOENT:
		return err
	}
	if there && w.isDirectory() {
		if inside, err := isInside(w.fromDir, inodeOf(&target)); inside || err != nil {
			return w.nested(w.fromPath, w.toPath, err)
		}
	}
	if w.isDirectory() {
		if inside, err := isInside(w.toDir, inodeOf(&w.source)); inside || err != nil {
			return w.nested(w.toPath, w.fromPath, err)
		}
	}
	return nil
}

func (w *transfer) nested(inner, outer string, err error) error {
	if err != nil {
		return err
	}
	return fault.New(fault.InvalidArgument, "%q is inside of %q", inner, outer).With("field", "to")
}

// isInside climbs from a directory to the root and looks whether another is on the way.
func isInside(dir int, outer inode) (bool, error) {
	at, err := openDirectory(dir, ".", 0)
	if err != nil {
		return false, err
	}
	defer func() { unix.Close(at) }()
	for last, depth := (inode{}), 0; depth <= MaxDepth; depth++ {
		var info unix.Stat_t
		if err := unix.Fstat(at, &info); err != nil {
			return false, err
		}
		here := inodeOf(&info)
		if here == outer || here == last {
			return here == outer, nil
		}
		up, err := openDirectory(at, "..", 0)
		if err != nil {
			return false, err
		}
		unix.Close(at)
		last, at = here, up
	}
	return false, tooDeep("/")
}

func (w *transfer) move() error {
	if err := w.fits(); err != nil {
		return err
	}
	if w.overwrite {
		if same, err := w.sameFile(); same || err != nil {
			return err
		}
	}
	err := place(w.ctx, w.fromDir, w.fromName, w.toDir, w.toName, w.toPath, w.overwrite)
	if err != unix.EXDEV {
		return err
	}
	w.recurse = true
	if err := w.copy(); err != nil {
		return err
	}
	return removeAll(w.ctx, w.fromDir, w.fromName, w.fromPath)
}

// sameFile handles two names of one file, which rename(2) leaves both: the source's is removed, unless it is the very same name.
func (w *transfer) sameFile() (bool, error) {
	target, err := statAt(w.toDir, w.toName)
	if err != nil || inodeOf(&target) != inodeOf(&w.source) {
		return false, nil
	}
	var from, to unix.Stat_t
	if err := unix.Fstat(w.fromDir, &from); err != nil {
		return false, err
	}
	if err := unix.Fstat(w.toDir, &to); err != nil {
		return false, err
	}
	if inodeOf(&from) == inodeOf(&to) && w.fromName == w.toName {
		return true, nil
	}
	return true, retry(func() error { return unix.Unlinkat(w.fromDir, w.fromName, 0) })
}

// place gives what stands under one name another, over what is there when it may. EXDEV: nothing was done.
func place(ctx context.Context, fromDir int, from string, toDir int, to, toPath string, overwrite bool) error {
	flags := uint(0)
	if !overwrite {
		flags = unix.RENAME_NOREPLACE
	}
	err := retry(func() error { return unix.Renameat2(fromDir, from, toDir, to, flags) })
	switch {
	case err == unix.EBUSY:
		return mountPoint(toPath)
	case !overwrite || (err != unix.ENOTEMPTY && err != unix.EEXIST):
		return err
	}
	// A directory with something in it: the two change places, then the old one goes.
	err = retry(func() error { return unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_EXCHANGE) })
	if err == nil {
		return removeAll(ctx, fromDir, from, toPath)
	}
	if err != unix.EXDEV {
		return err
	}
	// An overlay cannot rename a directory of the image.
	if err := removeAll(ctx, toDir, to, toPath); err != nil {
		return err
	}
	return retry(func() error { return unix.Renameat2(fromDir, from, toDir, to, unix.RENAME_NOREPLACE) })
}
