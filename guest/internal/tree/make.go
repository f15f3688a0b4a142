package tree

import (
	"errors"
	"path"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

// Mkdir makes a directory. With parents, those that are missing are made too, with the same owner, and one that is there already stays as it is.
func (t *Tree) Mkdir(request protocol.MkdirRequest) (protocol.FileInfo, error) {
	none := protocol.FileInfo{}
	name, err := paths.Clean("path", request.Path)
	if err != nil {
		return none, err
	}
	mode := uint32(directoryMode)
	if request.Mode != "" {
		if mode, err = paths.Mode(request.Mode); err != nil {
			return none, err
		}
	}
	uid, gid, err := t.Owner(request.Owner)
	if err != nil {
		return none, err
	}
	err = makeDirectory(name, mode, uid, gid)
	if request.Parents && errors.Is(err, unix.ENOENT) {
		if err = MakeParents(path.Dir(name), uid, gid); err == nil {
			err = makeDirectory(name, mode, uid, gid)
		}
	}
	if request.Parents && errors.Is(err, unix.EEXIST) {
		var info unix.Stat_t
		if unix.Stat(name, &info) == nil && info.Mode&unix.S_IFMT == unix.S_IFDIR {
			return t.about(name)
		}
		return none, paths.Conflict(paths.NotADirectory, name, "%q is there and is not a directory", name)
	}
	if err != nil {
		return none, paths.Fault(name, err)
	}
	return t.about(name)
}

// MakeParents makes a directory and those above it that are missing.
func MakeParents(name string, uid, gid int) error {
	err := makeDirectory(name, directoryMode, uid, gid)
	if errors.Is(err, unix.ENOENT) && name != "/" {
		if err := MakeParents(path.Dir(name), uid, gid); err != nil {
			return err
		}
		err = makeDirectory(name, directoryMode, uid, gid)
	}
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func makeDirectory(name string, mode uint32, uid, gid int) error {
	if err := retry(func() error { return unix.Mkdir(name, mode&0o777) }); err != nil {
		return err
	}
	made, err := openDirectory(unix.AT_FDCWD, name, unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(made)
	return own(made, mode, uid, gid)
}

// own sets owner, then mode: a change of owner clears setuid bits.
func own(file int, mode uint32, uid, gid int) error {
	if err := unix.Fchown(file, uid, gid); err != nil {
		return err
	}
	return unix.Fchmod(file, mode)
}

// Symlink makes a symlink, which may lead anywhere or nowhere.
func (t *Tree) Symlink(request protocol.SymlinkRequest) (protocol.FileInfo, error) {
	name, err := paths.Clean("path", request.Path)
	if err != nil {
		return protocol.FileInfo{}, err
	}
	if request.Target == "" || len(request.Target) >= paths.MaxBytes {
		return protocol.FileInfo{}, fault.New(fault.InvalidArgument, "target must be 1 to %d bytes", paths.MaxBytes-1).With("field", "target")
	}
	if err := unix.Symlink(request.Target, name); err != nil {
		if errors.Is(err, unix.EINVAL) {
			return protocol.FileInfo{}, fault.New(fault.InvalidArgument, "target must hold no NUL").With("field", "target")
		}
		return protocol.FileInfo{}, paths.Fault(name, err)
	}
	return t.about(name)
}
