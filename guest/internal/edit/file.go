package edit

import (
	"crypto/rand"
	"path"
	"sync"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/files"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/tree"
)

const temporaryName = ".fuse-"

var one sync.Mutex

// lock makes edits and patches take turns.
func lock() (unlock func()) {
	one.Lock()
	return one.Unlock
}

// Lock is for packages that change files as this one does.
func Lock() (unlock func()) { return lock() }

// File is a regular file, read whole, with the directory that holds it under its own name: what replaces it can get nowhere else.
type File struct {
	Text []byte
	// Dir and Name are where it is.
	Dir  int
	Name string
	Info unix.Stat_t

	path string
	file int
}

// Open opens a file to be changed. A symlink is followed, so that the file is replaced that it leads to.
func Open(name string) (*File, error) {
	followed, err := files.FollowLast(name)
	if err != nil {
		return nil, paths.Fault(name, err)
	}
	dir, err := unix.Open(path.Dir(followed), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, paths.Fault(name, err)
	}
	file, err := OpenIn(dir, path.Base(followed), name)
	if err != nil {
		unix.Close(dir)
		return nil, err
	}
	return file, nil
}

// OpenIn opens a file by its name in a directory, without following a symlink. The directory is the file's from then on, unless there is an error.
func OpenIn(dir int, base, shown string) (*File, error) {
	fd, err := unix.Openat(dir, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == unix.ELOOP || err == unix.ENXIO {
		return nil, notRegular(shown)
	}
	if err != nil {
		return nil, paths.Fault(shown, err)
	}
	f := &File{Dir: dir, Name: base, path: shown, file: fd}
	if err := f.read(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return f, nil
}

func notRegular(name string) error {
	return paths.Conflict(paths.NotRegularFile, name, "%q is not a regular file", name)
}

func (f *File) read() error {
	if err := unix.Fstat(f.file, &f.Info); err != nil {
		return paths.Fault(f.path, err)
	}
	switch {
	case f.Info.Mode&unix.S_IFMT == unix.S_IFDIR:
		return paths.Conflict(paths.IsADirectory, f.path, "%q is a directory", f.path)
	case f.Info.Mode&unix.S_IFMT != unix.S_IFREG:
		return notRegular(f.path)
	case f.Info.Size > MaxFileBytes:
		return tooLarge(f.path)
	}
	text := make([]byte, f.Info.Size+1)
	filled := 0
	for {
		n, err := unix.Read(f.file, text[filled:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return paths.Fault(f.path, err)
		}
		if filled += n; n == 0 {
			f.Text = text[:filled]
			return nil
		}
		if filled > MaxFileBytes {
			return tooLarge(f.path)
		}
		if filled == len(text) { // it grows
			text = append(text, make([]byte, len(text))...)
		}
	}
}

func (f *File) Close() {
	unix.Close(f.file)
	unix.Close(f.Dir)
}

// Replace gives the file another text: the old one or the new one is there at every moment. It is refused when another program has changed the file since.
func (f *File) Replace(text []byte) error {
	temporary, err := f.Prepare(text)
	if err == nil {
		if err = f.Unchanged(); err == nil {
			err = unix.Renameat(f.Dir, temporary, f.Dir, f.Name)
		}
		if err != nil {
			_ = unix.Unlinkat(f.Dir, temporary, 0)
		}
	}
	return err
}

// Prepare writes what is to replace the file under a temporary name beside it.
func (f *File) Prepare(text []byte) (temporary string, err error) {
	return Write(f.Dir, text, func(fd int) error {
		// Owner before mode: a change of owner clears setuid bits.
		if err := unix.Fchown(fd, int(f.Info.Uid), int(f.Info.Gid)); err != nil {
			return err
		}
		if err := unix.Fchmod(fd, f.Info.Mode&0o7777); err != nil {
			return err
		}
		return tree.CopyAttributes(f.file, fd)
	})
}

// Write writes a new file under a temporary name.
func Write(dir int, text []byte, describe func(fd int) error) (temporary string, err error) {
	temporary = temporaryName + rand.Text()
	fd, err := unix.Openat(dir, temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return "", err
	}
	for len(text) > 0 && err == nil {
		var n int
		if n, err = unix.Write(fd, text); err == unix.EINTR {
			n, err = 0, nil
		}
		text = text[max(n, 0):]
	}
	if err == nil {
		err = describe(fd)
	}
	unix.Close(fd)
	if err != nil {
		_ = unix.Unlinkat(dir, temporary, 0)
	}
	return temporary, err
}

// Unchanged checks that the name still stands for the file that was read, as it was.
func (f *File) Unchanged() error {
	var now unix.Stat_t
	err := unix.Fstatat(f.Dir, f.Name, &now, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || now.Ino != f.Info.Ino || now.Dev != f.Info.Dev || now.Size != f.Info.Size || now.Mtim != f.Info.Mtim || now.Ctim != f.Info.Ctim {
		return paths.Conflict(paths.Changed, f.path, "%q was changed by another program meanwhile", f.path)
	}
	return nil
}
