package tree

import (
	"context"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxLinksKnown  = 100_000
	userAttributes = "user."
)

// copier makes a likeness of a tree under a name that is not there yet: mode, owner, times, `user.` attributes, hard links among what is copied.
// Symlinks stay links; FIFOs, sockets and devices are made anew and never opened.
type copier struct {
	ctx    context.Context
	reader Reader
	top    int // directory that the likeness is made in
	made   map[inode]string
}

type inode struct{ device, number uint64 }

func inodeOf(info *unix.Stat_t) inode { return inode{uint64(info.Dev), info.Ino} }

// copy copies the name of a directory to a name of another; likeness is the path of the latter from the top.
func (c *copier) copy(from int, name string, to int, as, likeness string, depth int) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	info, err := statAt(from, name)
	if err != nil {
		return err
	}
	kind := info.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		return c.directory(from, name, to, as, likeness, depth)
	}
	if info.Nlink > 1 {
		if made, found := c.made[inodeOf(&info)]; found {
			return unix.Linkat(c.top, made, to, as, 0)
		}
	}
	switch kind {
	case unix.S_IFREG:
		err = c.file(from, name, to, as)
	case unix.S_IFLNK:
		if err = unix.Symlinkat(readlinkAt(from, name), to, as); err == nil {
			err = ownAt(to, as, &info)
		}
	default:
		if err = unix.Mknodat(to, as, kind|0o600, int(info.Rdev)); err == nil {
			if err = ownAt(to, as, &info); err == nil {
				err = chmodAt(to, as, info.Mode&0o7777)
			}
		}
	}
	if err == nil && info.Nlink > 1 && len(c.made) < maxLinksKnown {
		c.made[inodeOf(&info)] = likeness
	}
	return err
}

// ownAt gives a name that is no file or directory the owner and times of another.
func ownAt(dir int, name string, like *unix.Stat_t) error {
	if err := unix.Fchownat(dir, name, int(like.Uid), int(like.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return unix.UtimesNanoAt(dir, name, []unix.Timespec{like.Atim, like.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

func (c *copier) file(from int, name string, to int, as string) error {
	source, info, err := openRegular(from, name)
	if err != nil {
		return err
	}
	defer unix.Close(source)
	target, err := unix.Openat(to, as, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	if err := copyData(c.ctx, source, target, info.Size); err != nil {
		return err
	}
	return liken(source, target, &info)
}

// openRegular opens a file that was a regular one a moment ago. Should it be a FIFO or a device by now, nothing waits, and it is refused.
func openRegular(dir int, name string) (file int, info unix.Stat_t, err error) {
	err = retry(func() (err error) {
		file, err = unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, info, err
	}
	if err = unix.Fstat(file, &info); err == nil && info.Mode&unix.S_IFMT != unix.S_IFREG {
		err = unix.EAGAIN
	}
	if err != nil {
		unix.Close(file)
	}
	return file, info, err
}

// liken gives an open file or directory what another has beside its bytes.
func liken(source, target int, info *unix.Stat_t) error {
	if err := own(target, info.Mode&0o7777, int(info.Uid), int(info.Gid)); err != nil {
		return err
	}
	if err := CopyAttributes(source, target); err != nil {
		return err
	}
	times := []unix.Timespec{info.Atim, info.Mtim}
	return unix.UtimesNanoAt(target, "", times, unix.AT_EMPTY_PATH)
}

// CopyAttributes copies the extended attributes that programs set for themselves; those of the kernel, capabilities among them, are left out.
func CopyAttributes(source, target int) error {
	size, err := unix.Flistxattr(source, nil)
	if err != nil || size == 0 {
		return nil // the file system has none
	}
	names := make([]byte, size)
	if size, err = unix.Flistxattr(source, names); err != nil {
		return nil
	}
	for name := range strings.SplitSeq(string(names[:size]), "\x00") {
		if !strings.HasPrefix(name, userAttributes) {
			continue
		}
		size, err := unix.Fgetxattr(source, name, nil)
		if err != nil {
			continue // gone meanwhile
		}
		value := make([]byte, size)
		if size, err = unix.Fgetxattr(source, name, value); err != nil {
			continue
		}
		if err := unix.Fsetxattr(target, name, value[:size], 0); err != nil && err != unix.EOPNOTSUPP {
			return err
		}
	}
	return nil
}

func (c *copier) directory(from int, name string, to int, as, likeness string, depth int) error {
	if depth >= MaxDepth {
		return tooDeep(likeness)
	}
	source, err := OpenChild(from, name)
	if err != nil {
		return err
	}
	defer unix.Close(source)
	var info unix.Stat_t
	if err := unix.Fstat(source, &info); err != nil {
		return err
	}
	if err := unix.Mkdirat(to, as, 0o700); err != nil {
		return err
	}
	target, err := OpenChild(to, as)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	for {
		entries, err := c.reader.Next(source)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return liken(source, target, &info)
		}
		for _, entry := range entries {
			err := c.copy(source, entry.Name, target, entry.Name, likeness+"/"+entry.Name, depth+1)
			if err != nil && err != unix.ENOENT {
				return wrapped(likeness+"/"+entry.Name, err)
			}
		}
	}
}
