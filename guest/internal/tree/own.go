package tree

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

// Chmod sets a mode. A symlink at the path itself is followed, for it has none; those below it are passed over.
func (t *Tree) Chmod(ctx context.Context, request protocol.ChmodRequest) (protocol.Done, error) {
	name, err := paths.Clean("path", request.Path)
	if err != nil {
		return protocol.Done{}, err
	}
	mode, err := paths.Mode(request.Mode)
	if err != nil {
		return protocol.Done{}, err
	}
	if err := retry(func() error { return unix.Chmod(name, mode) }); err != nil {
		return protocol.Done{}, paths.Fault(name, err)
	}
	if !request.Recursive {
		return protocol.Done{}, nil
	}
	return protocol.Done{}, below(ctx, name, func(dir int, entry Entry) error { return chmodAt(dir, entry.Name, mode) })
}

// Chown sets an owner, of a symlink its own.
func (t *Tree) Chown(ctx context.Context, request protocol.ChownRequest) (protocol.Done, error) {
	name, err := paths.Clean("path", request.Path)
	if err != nil {
		return protocol.Done{}, err
	}
	uid, gid, err := t.Owner(request.Owner)
	if err != nil {
		return protocol.Done{}, err
	}
	if uid == unchanged && gid == unchanged {
		return protocol.Done{}, fault.New(fault.InvalidArgument, "user, uid or gid must be given").With("field", "user")
	}
	chown := func(dir int, name string) error {
		return retry(func() error { return unix.Fchownat(dir, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW) })
	}
	if err := chown(unix.AT_FDCWD, name); err != nil {
		return protocol.Done{}, paths.Fault(name, err)
	}
	if !request.Recursive {
		return protocol.Done{}, nil
	}
	return protocol.Done{}, below(ctx, name, func(dir int, entry Entry) error { return chown(dir, entry.Name) })
}

// chmodAt goes by a descriptor that opens nothing: what is there may be a FIFO or a device, or become a symlink.
func chmodAt(dir int, name string, mode uint32) error {
	var file int
	err := retry(func() (err error) {
		file, err = unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return err
	}
	defer unix.Close(file)
	var info unix.Stat_t
	if err := unix.Fstat(file, &info); err != nil || info.Mode&unix.S_IFMT == unix.S_IFLNK {
		return err
	}
	err = retry(func() error { return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", file), mode) })
	if err == unix.ENOENT {
		return fmt.Errorf("by /proc: %v", err) // not the file's own: /proc was unmounted
	}
	return err
}

// below visits everything below a directory, each directory before what is in it. What goes meanwhile is passed over.
func below(ctx context.Context, name string, visit func(dir int, entry Entry) error) error {
	top, err := openDirectory(unix.AT_FDCWD, name, unix.O_NOFOLLOW)
	if err == unix.ENOTDIR || err == unix.ELOOP {
		return nil
	}
	if err != nil {
		return paths.Fault(name, err)
	}
	defer unix.Close(top)
	w := walker{ctx: ctx, visit: visit}
	return paths.Fault(name, w.directory(top, name, 1))
}

type walker struct {
	ctx    context.Context
	reader Reader
	visit  func(dir int, entry Entry) error
}

func (w *walker) directory(dir int, at string, depth int) error {
	if depth > MaxDepth {
		return tooDeep(at)
	}
	for {
		entries, err := w.reader.Next(dir)
		if err != nil || len(entries) == 0 {
			return wrapped(at, err)
		}
		for _, entry := range entries {
			if err := w.ctx.Err(); err != nil {
				return err
			}
			if err := w.entry(dir, at, entry, depth); err != nil && err != unix.ENOENT {
				return wrapped(at+"/"+entry.Name, err)
			}
		}
	}
}

func (w *walker) entry(dir int, at string, entry Entry, depth int) error {
	if err := w.visit(dir, entry); err != nil {
		return err
	}
	if kind, err := kindOf(dir, entry); err != nil || kind != unix.S_IFDIR {
		return err
	}
	child, err := OpenChild(dir, entry.Name)
	if err == unix.ENOTDIR || err == unix.ELOOP {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(child)
	return w.directory(child, at+"/"+entry.Name, depth+1)
}
