package tree

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenBeneath resolves a name below a directory. It fails with EXDEV when something on the way, a symlink or a rename at this moment, leads out.
func OpenBeneath(root int, name string, flags uint64) (int, error) {
	for range 100 {
		fd, err := unix.Openat2(root, name, &unix.OpenHow{
			Flags:   flags | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
		})
		if err != unix.EAGAIN && err != unix.EINTR { // EAGAIN: a rename on the way
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// MakeBeneath opens a directory below another and makes what is missing of its path; made is told of each part.
func MakeBeneath(root int, name string, made func(dir int, part, name string) error) (int, error) {
	at, err := OpenBeneath(root, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	done := ""
	for part := range strings.SplitSeq(name, "/") {
		done = path.Join(done, part)
		err := unix.Mkdirat(at, part, directoryMode)
		if err == nil {
			err = made(at, part, done)
		}
		unix.Close(at)
		if err != nil && err != unix.EEXIST {
			return -1, err
		}
		if at, err = OpenBeneath(root, done, unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
			return -1, err
		}
	}
	return at, nil
}
