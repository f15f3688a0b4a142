package files

import (
	"bytes"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
)

// maxPseudoBytes of a file whose size only reading it tells.
const maxPseudoBytes = 4 << 20

// File is a regular file that is open to be read, as it was at this moment.
type File struct {
	Info unix.Stat_t
	Size int64
	file *os.File
	// whole is all of a file of /proc, /sys and the like: what is said of its size is not true, and it is another one each time it is read.
	whole  []byte
	pseudo bool
}

// Open opens a regular file. Nothing waits, a FIFO is not even opened for long enough to be noticed by who writes to it.
func Open(name string, follow bool) (*File, error) {
	if err := CheckPath(name); err != nil {
		return nil, err
	}
	flags := os.O_RDONLY | unix.O_NONBLOCK
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	file, err := os.OpenFile(name, flags, 0)
	if err != nil {
		return nil, getFault(name, err)
	}
	opened := &File{file: file}
	if err := opened.look(name); err != nil {
		file.Close()
		return nil, err
	}
	return opened, nil
}

func (f *File) look(name string) error {
	fd := int(f.file.Fd())
	if err := unix.Fstat(fd, &f.Info); err != nil {
		return paths.Fault(name, err)
	}
	if f.Info.Mode&unix.S_IFMT != unix.S_IFREG {
		return notRegular(name)
	}
	f.Size = f.Info.Size
	if !paths.Pseudo(fd) {
		return nil
	}
	whole, err := readPseudo(fd)
	if err != nil {
		return paths.Fault(name, err)
	}
	if len(whole) > maxPseudoBytes {
		return paths.Conflict(paths.TooLarge, name, "%q gives more than %d bytes, and its size is not known before", name, maxPseudoBytes)
	}
	f.whole, f.pseudo, f.Size = whole, true, int64(len(whole))
	return nil
}

// readPseudo reads by the descriptor itself: one that would wait for more, as of the kernel's log, is at its end.
func readPseudo(fd int) ([]byte, error) {
	var whole []byte
	buffer := make([]byte, 64<<10)
	for len(whole) <= maxPseudoBytes {
		n, err := unix.Read(fd, buffer)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN, err == nil && n == 0:
			return whole, nil
		case err != nil:
			return nil, err
		default:
			whole = append(whole, buffer[:n]...)
		}
	}
	return whole, nil
}

// Range gives the bytes from start to end, which lie within the size.
func (f *File) Range(start, end int64) io.Reader {
	if f.pseudo {
		return bytes.NewReader(f.whole[start:end])
	}
	return io.NewSectionReader(f.file, start, end-start)
}

// Resized tells whether the file has another size by now.
func (f *File) Resized() bool {
	if f.pseudo {
		return false
	}
	now, err := f.file.Stat()
	return err != nil || now.Size() != f.Size
}

func (f *File) Close() error { return f.file.Close() }

func getFault(name string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return fault.New(fault.NotFound, "no file %q", name).With("path", name)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		return notRegular(name)
	default:
		return paths.Fault(name, err)
	}
}

func notRegular(name string) error {
	return paths.Conflict(paths.NotRegularFile, name, "%q is not a regular file", name)
}
