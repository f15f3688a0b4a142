package tree

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Entry is a name in a directory. Kind is one of unix.S_IF…, 0 where the file system does not say.
type Entry struct {
	Name string
	Kind uint32
}

// direntHeaderBytes are those before the name: inode, offset, length and type.
const direntHeaderBytes = 8 + 8 + 2 + 1

// Reader reads directories with one buffer, so that a deep recursion does not hold one a level.
type Reader struct{ buffer [32 << 10]byte }

// Next returns some entries of an open directory in the order of the file system, without `.` and `..`; none at its end.
func (r *Reader) Next(dir int) ([]Entry, error) {
	for {
		var filled int
		err := retry(func() (err error) { filled, err = unix.Getdents(dir, r.buffer[:]); return err })
		if err != nil || filled <= 0 {
			return nil, err
		}
		if entries := parse(r.buffer[:filled]); len(entries) > 0 {
			return entries, nil
		}
	}
}

func parse(text []byte) []Entry {
	var entries []Entry
	for len(text) > direntHeaderBytes {
		length := int(binary.NativeEndian.Uint16(text[16:]))
		if length <= direntHeaderBytes || length > len(text) {
			break
		}
		name := unix.ByteSliceToString(text[direntHeaderBytes:length])
		if name != "." && name != ".." {
			entries = append(entries, Entry{Name: name, Kind: uint32(text[18]) << 12})
		}
		text = text[length:]
	}
	return entries
}

func openDirectory(dir int, name string, flags int) (fd int, err error) {
	err = retry(func() (err error) {
		fd, err = unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
		return err
	})
	return fd, err
}

// OpenChild opens a directory by its name in another, never through a symlink.
func OpenChild(dir int, name string) (int, error) { return openDirectory(dir, name, unix.O_NOFOLLOW) }

func statAt(dir int, name string) (info unix.Stat_t, err error) {
	err = retry(func() error { return unix.Fstatat(dir, name, &info, unix.AT_SYMLINK_NOFOLLOW) })
	return info, err
}

// kindOf looks where the directory's own entry does not say.
func kindOf(dir int, entry Entry) (uint32, error) {
	if entry.Kind != 0 {
		return entry.Kind, nil
	}
	info, err := statAt(dir, entry.Name)
	return info.Mode & unix.S_IFMT, err
}
