package tree

import (
	"context"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/paths"
)

const (
	// A request that ends is noticed between pieces.
	copyPieceBytes  = 16 << 20
	copyBufferBytes = 256 << 10
	maxPseudoBytes  = 16 << 20
)

// copyData copies a file's bytes to an empty one: by a clone where the file system can, else piece by piece in the kernel, holes left holes.
func copyData(ctx context.Context, from, to int, size int64) error {
	if paths.Pseudo(from) {
		_, err := copyByHand(ctx, from, to, 0, maxPseudoBytes)
		return err
	}
	if unix.IoctlFileClone(to, from) == nil {
		return nil
	}
	for at := int64(0); at < size; {
		start, end, err := nextData(from, at, size)
		if err != nil {
			return err
		}
		reached, err := copyRange(ctx, from, to, start, end)
		if err != nil {
			return err
		}
		if reached < end { // it was cut meanwhile
			size = reached
		}
		at = end
	}
	return retry(func() error { return unix.Ftruncate(to, size) })
}

// nextData finds the data at or behind an offset. A file system that knows no holes has data everywhere.
func nextData(file int, at, size int64) (start, end int64, err error) {
	start, err = unix.Seek(file, at, unix.SEEK_DATA)
	switch err {
	case nil:
	case unix.ENXIO:
		return size, size, nil
	case unix.EINVAL:
		return at, size, nil
	default:
		return 0, 0, err
	}
	end, err = unix.Seek(file, start, unix.SEEK_HOLE)
	if err == unix.ENXIO { // it was cut meanwhile
		return size, size, nil
	}
	return min(start, size), min(end, size), err
}

func copyRange(ctx context.Context, from, to int, at, end int64) (reached int64, err error) {
	for at < end {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		readAt, writeAt := at, at
		var n int
		err := retry(func() (err error) {
			n, err = unix.CopyFileRange(from, &readAt, to, &writeAt, int(min(end-at, copyPieceBytes)), 0)
			return err
		})
		switch err {
		case nil:
		case unix.EXDEV, unix.EINVAL, unix.ENOSYS, unix.EOPNOTSUPP, unix.EPERM:
			return copyByHand(ctx, from, to, at, end)
		default:
			return at, err
		}
		if n == 0 {
			break
		}
		at += int64(n)
	}
	return at, nil
}

func copyByHand(ctx context.Context, from, to int, at, end int64) (reached int64, err error) {
	buffer := make([]byte, copyBufferBytes)
	for at < end {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		var n int
		err := retry(func() (err error) { n, err = unix.Pread(from, buffer[:min(end-at, copyBufferBytes)], at); return err })
		if err == unix.EAGAIN {
			break
		}
		if err != nil || n == 0 {
			return at, err
		}
		for done := 0; done < n; {
			var written int
			err := retry(func() (err error) { written, err = unix.Pwrite(to, buffer[done:n], at+int64(done)); return err })
			if err != nil {
				return at, err
			}
			done += written
		}
		at += int64(n)
	}
	return at, nil
}
