package glob

import (
	"errors"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

const readBatch = 1024

func openDirectory(dir int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// readNames returns the sorted names in a directory, at most `most` of them; complete tells whether those are all.
func readNames(dir, most int) (names []string, complete bool, err error) {
	own, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false, err
	}
	file := os.NewFile(uintptr(own), "directory")
	defer file.Close()
	for len(names) <= most {
		batch, err := file.Readdirnames(readBatch)
		names = append(names, batch...)
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, true, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
	slices.Sort(names)
	return names, false, nil
}

// leadsToDirectory tells whether name is a symlink at whose end a directory lies. It looks, it does not enter.
func leadsToDirectory(dir int, name string) bool {
	var link, target unix.Stat_t
	return unix.Fstatat(dir, name, &link, unix.AT_SYMLINK_NOFOLLOW) == nil && link.Mode&unix.S_IFMT == unix.S_IFLNK &&
		unix.Fstatat(dir, name, &target, 0) == nil && target.Mode&unix.S_IFMT == unix.S_IFDIR
}
