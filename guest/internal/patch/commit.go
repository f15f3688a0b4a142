package patch

import (
	"crypto/rand"
	"errors"
	"path"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/edit"
	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/tree"
)

const temporaryName = ".fuse-"

func isMissing(err error) bool {
	var known *fault.Error
	return errors.Is(err, unix.ENOENT) || (errors.As(err, &known) && known.Code == fault.NotFound)
}

// commit first writes everything beside where it goes, then renames one file after the other.
func (a *application) commit() error {
	var undo []func() error
	var failed *patched
	err := func() error {
		for _, each := range a.order {
			failed = each
			if err := a.prepare(each, &undo); err != nil {
				return err
			}
		}
		for _, each := range a.order {
			failed = each
			if err := each.publish(&undo); err != nil {
				return err
			}
		}
		return nil
	}()
	if err == nil {
		for _, each := range a.order {
			if each.backup != "" {
				_ = unix.Unlinkat(each.was.Dir, each.backup, 0)
			}
		}
		return nil
	}
	for i := len(undo) - 1; i >= 0; i-- {
		if undoing := undo[i](); undoing != nil && undoing != unix.ENOENT && undoing != unix.ENOTEMPTY {
			return fault.New(fault.Internal, "%s: %v; and putting back what was changed before failed: %v", failed.path, err, undoing)
		}
	}
	return paths.Fault(failed.path, err)
}

// prepare writes the new text under a temporary name.
func (a *application) prepare(file *patched, undo *[]func() error) (err error) {
	dir := -1
	switch {
	case !file.exists:
		return nil
	case file.was != nil:
		dir = file.was.Dir
		file.temporary, err = file.was.Prepare([]byte(file.text))
		if err == nil && file.mode != nil {
			err = unix.Fchmodat(dir, file.temporary, *file.mode, 0)
		}
	default:
		if file.dir, err = a.parent(file.relative, undo); err != nil {
			return err
		}
		dir = file.dir
		file.temporary, err = edit.Write(dir, []byte(file.text), func(fd int) error { return describeNew(dir, fd, file.mode) })
	}
	if file.temporary != "" {
		*undo = append(*undo, func() error { return unix.Unlinkat(dir, file.temporary, 0) })
	}
	return err
}

// describeNew: what a patch makes belongs to whom the directory belongs that it is made in.
func describeNew(dir, fd int, mode *uint32) error {
	var info unix.Stat_t
	if err := unix.Fstat(dir, &info); err != nil {
		return err
	}
	if err := unix.Fchown(fd, int(info.Uid), int(info.Gid)); err != nil {
		return err
	}
	if mode == nil {
		return unix.Fchmod(fd, newFileMode)
	}
	return unix.Fchmod(fd, *mode)
}

func (a *application) parent(relative string, undo *[]func() error) (int, error) {
	name := path.Dir(relative)
	if dir, err := tree.OpenBeneath(a.root, name, unix.O_RDONLY|unix.O_DIRECTORY); err != unix.ENOENT {
		return dir, err
	}
	return tree.MakeBeneath(a.root, name, func(dir int, part, made string) error {
		*undo = append(*undo, func() error { return removeMade(a.root, made) })
		var info unix.Stat_t
		if err := unix.Fstat(dir, &info); err != nil {
			return err
		}
		return unix.Fchownat(dir, part, int(info.Uid), int(info.Gid), unix.AT_SYMLINK_NOFOLLOW)
	})
}

func removeMade(root int, name string) error {
	dir, err := tree.OpenBeneath(root, path.Dir(name), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return unix.Unlinkat(dir, path.Base(name), unix.AT_REMOVEDIR)
}

// publish is the change itself. The file of before stays under another name until all is done.
func (file *patched) publish(undo *[]func() error) error {
	switch {
	case file.was == nil && !file.exists:
		return nil
	case file.was == nil:
		base := path.Base(file.relative)
		if err := unix.Renameat2(file.dir, file.temporary, file.dir, base, unix.RENAME_NOREPLACE); err != nil {
			return err
		}
		*undo = append(*undo, func() error { return unix.Unlinkat(file.dir, base, 0) })
		return nil
	}
	if err := file.was.Unchanged(); err != nil {
		return err
	}
	dir, base, backup := file.was.Dir, file.was.Name, temporaryName+rand.Text()
	if !file.exists {
		if err := unix.Renameat(dir, base, dir, backup); err != nil {
			return err
		}
	} else {
		if err := unix.Linkat(dir, base, dir, backup, 0); err != nil {
			return err
		}
		if err := unix.Renameat(dir, file.temporary, dir, base); err != nil {
			_ = unix.Unlinkat(dir, backup, 0)
			return err
		}
	}
	file.backup = backup
	*undo = append(*undo, func() error { return unix.Renameat(dir, backup, dir, base) })
	return nil
}
