package archive

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/tree"
)

// inside cleans a name of an archive, which must stay below the top: "." is the top itself.
func inside(what, name, entry string) (string, error) {
	switch {
	case name == "" || strings.ContainsRune(name, 0):
		return "", refusedEntry(entry, "%s is empty or holds NUL", what)
	case path.IsAbs(name):
		return "", refusedEntry(entry, "%s is absolute", what)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", refusedEntry(entry, "%s holds `..`", what)
		}
	}
	return path.Clean(name), nil
}

func refusedEntry(entry, format string, args ...any) error {
	shown, _ := paths.Shown(entry)
	if len(shown) > 1_000 {
		shown = shown[:1_000]
	}
	problem := fault.New(fault.InvalidArgument, format, args...).Message
	return fault.New(fault.InvalidArgument, "entry %q of the archive: %s", shown, problem).With("field", "body").With("path", shown)
}

// open gives the directory that an entry's name is in, made where it is missing.
func (x *extraction) open(name, entry string) (dir int, base string, err error) {
	parent, base := path.Dir(name), path.Base(name)
	if x.parent >= 0 && x.parentName == parent {
		return x.parent, base, nil
	}
	dir, err = tree.OpenBeneath(x.root, parent, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.ENOENT {
		dir, err = x.make(parent)
	}
	if err != nil {
		return -1, "", leaving(entry, err)
	}
	x.forget()
	x.parent, x.parentName = dir, parent
	return dir, base, nil
}

func (x *extraction) forget() {
	if x.parent >= 0 {
		unix.Close(x.parent)
	}
	x.parent = -1
}

// make makes a directory of the archive that has no entry before its files, and those above it.
func (x *extraction) make(name string) (int, error) {
	return tree.MakeBeneath(x.root, name, func(dir int, part, _ string) error {
		return unix.Fchownat(dir, part, max(x.to.UID, 0), max(x.to.GID, 0), unix.AT_SYMLINK_NOFOLLOW)
	})
}

func leaving(entry string, err error) error {
	if err == unix.EXDEV || err == unix.ELOOP {
		return refusedEntry(entry, "goes through a symlink that leaves the directory")
	}
	return err
}
