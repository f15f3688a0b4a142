package tree

import (
	"context"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

// Remove removes a name, a directory with all that is in it when recursive. Mount points are refused: at the path before anything is removed, below it
// when they are met. Details of an error say how many names were removed before it.
func (t *Tree) Remove(ctx context.Context, request protocol.RemoveRequest) (protocol.Removed, error) {
	name, err := paths.Clean("path", request.Path)
	if err != nil {
		return protocol.Removed{}, err
	}
	dir, base, err := parentOf(name)
	if err == nil {
		defer unix.Close(dir)
		r := remover{ctx: ctx}
		if err = r.name(dir, base, name, request.Recursive, 0); err == nil {
			return protocol.Removed{Removed: r.removed}, nil
		}
		err = paths.Fault(name, err)
		var known *fault.Error
		if r.removed > 0 && errors.As(err, &known) {
			return protocol.Removed{}, known.With("removed", strconv.FormatInt(r.removed, 10))
		}
	}
	err = paths.Fault(name, err)
	var known *fault.Error
	if request.MissingOK && errors.As(err, &known) && known.Code == fault.NotFound {
		return protocol.Removed{}, nil
	}
	return protocol.Removed{}, err
}

// removeAll removes whatever a name of a directory stands for.
func removeAll(ctx context.Context, dir int, base, at string) error {
	return (&remover{ctx: ctx}).name(dir, base, at, true, 0)
}

type remover struct {
	ctx     context.Context
	reader  Reader
	removed int64
}

func (r *remover) name(dir int, base, at string, recursive bool, depth int) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	err := retry(func() error { return unix.Unlinkat(dir, base, 0) })
	if err == unix.EISDIR {
		err = retry(func() error { return unix.Unlinkat(dir, base, unix.AT_REMOVEDIR) })
		if recursive && (err == unix.ENOTEMPTY || err == unix.EEXIST) {
			return r.directory(dir, base, at, depth)
		}
	}
	switch err {
	case nil:
		r.removed++
		return nil
	case unix.EBUSY:
		return mountPoint(at)
	default:
		return wrapped(at, err)
	}
}

func (r *remover) directory(dir int, base, at string, depth int) error {
	if depth >= MaxDepth {
		return tooDeep(at)
	}
	child, err := openBelowSameMount(dir, base)
	if err != nil {
		if err == unix.EXDEV {
			return mountPoint(at)
		}
		return wrapped(at, err)
	}
	defer unix.Close(child)
	for {
		entries, err := r.reader.Next(child)
		if err != nil {
			return wrapped(at, err)
		}
		for _, entry := range entries {
			if err := r.name(child, entry.Name, at+"/"+entry.Name, true, depth+1); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		if len(entries) > 0 {
			continue
		}
		err = retry(func() error { return unix.Unlinkat(dir, base, unix.AT_REMOVEDIR) })
		if err == nil {
			r.removed++
		}
		if err != unix.ENOTEMPTY && err != unix.EEXIST {
			return wrapped(at, err)
		}
		// Filled meanwhile, or the file system passed over names as others went: once more from the start, until the request ends.
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if _, err := unix.Seek(child, 0, unix.SEEK_SET); err != nil {
			return wrapped(at, err)
		}
	}
}

func openBelowSameMount(dir int, base string) (fd int, err error) {
	err = retry(func() (err error) {
		fd, err = unix.Openat2(dir, base, &unix.OpenHow{
			Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_NO_XDEV,
		})
		return err
	})
	return fd, err
}

func mountPoint(at string) error {
	shown, _ := paths.Shown(at)
	return fault.New(fault.Conflict, "%q is a mount point", shown).With("path", shown)
}
