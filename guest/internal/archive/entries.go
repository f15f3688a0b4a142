package archive

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"path"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/paths"
	"fuse/guest/internal/tree"
)

const (
	temporaryName = ".fuse-"
	directoryMode = 0o755
	// zeroPieceBytes: runs of zeros of this size become holes.
	zeroPieceBytes = 64 << 10
)

var zeros [zeroPieceBytes]byte

// publish makes something under a temporary name and gives it the entry's, over a file that has it.
func (x *extraction) publish(h *tar.Header, name string, create func(dir int, temporary string) error) error {
	dir, base, err := x.open(name, h.Name)
	if err != nil {
		return err
	}
	temporary := temporaryName + rand.Text()
	err = create(dir, temporary)
	if err == nil {
		err = unix.Renameat(dir, temporary, dir, base)
	}
	if err != nil || h.Typeflag == tar.TypeLink { // rename(2) leaves both of two names of one file
		_ = unix.Unlinkat(dir, temporary, 0)
	}
	return err
}

func (x *extraction) file(h *tar.Header, name string, body io.Reader) error {
	err := x.publish(h, name, func(dir int, temporary string) error {
		file, err := unix.Openat(dir, temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		defer unix.Close(file)
		if err := x.fill(file, h.Size, body); err != nil {
			return err
		}
		// Owner before mode: a change of owner clears setuid bits.
		if err := x.give(file, h); err != nil {
			return err
		}
		if err := unix.Fchmod(file, uint32(h.Mode)&0o7777); err != nil {
			return err
		}
		return setTime(file, modified(h))
	})
	if err == nil {
		x.count.Files++
		x.count.Bytes += h.Size
	}
	return err
}

// give sets a file's owner, if it is not whose it was made as already: each change is dear on an overlay under emulation.
func (x *extraction) give(file int, h *tar.Header) error {
	uid, gid := x.owner(h)
	var info unix.Stat_t
	if err := unix.Fstat(file, &info); err != nil {
		return err
	}
	if int(info.Uid) == uid && int(info.Gid) == gid {
		return nil
	}
	return unix.Fchown(file, uid, gid)
}

// fill writes an entry's bytes, and nothing for long runs of zeros.
func (x *extraction) fill(file int, size int64, body io.Reader) error {
	at, written := int64(0), int64(0)
	for at < size {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(body, x.buffer[:min(size-at, int64(len(x.buffer)))])
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return broken(x.ctx, err)
		}
		reached, err := writeData(file, x.buffer[:n], at)
		if err != nil {
			return err
		}
		written = max(written, reached)
		at += int64(n)
	}
	if written == size {
		return nil
	}
	return unix.Ftruncate(file, size)
}

// writeData tells where the last byte that it wrote ends.
func writeData(file int, data []byte, at int64) (written int64, err error) {
	for len(data) > 0 {
		piece := data[:min(len(data), len(zeros))]
		if len(piece) == len(zeros) && bytes.Equal(piece, zeros[:]) {
			data, at = data[len(piece):], at+int64(len(piece))
			continue
		}
		// Up to the next run of zeros in one go.
		end := len(piece)
		for end < len(data) {
			next := data[end:min(end+len(zeros), len(data))]
			if len(next) == len(zeros) && next[0] == 0 && bytes.Equal(next, zeros[:]) {
				break
			}
			end += len(next)
		}
		for done := 0; done < end; {
			n, err := unix.Pwrite(file, data[done:end], at+int64(done))
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return written, err
			}
			done += n
		}
		data, at = data[end:], at+int64(end)
		written = at
	}
	return written, nil
}

func (x *extraction) directory(h *tar.Header, name string) error {
	dir, base, err := x.open(name, h.Name)
	if err != nil {
		return err
	}
	err = unix.Mkdirat(dir, base, directoryMode)
	if err != nil && err != unix.EEXIST {
		return err
	}
	made, err := tree.OpenBeneath(x.root, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return leaving(h.Name, err)
	}
	defer unix.Close(made)
	if err := x.describe(made, h); err != nil {
		return err
	}
	x.count.Directories++
	x.keepTime(name, h)
	return nil
}

func (x *extraction) describe(dir int, h *tar.Header) error {
	uid, gid := x.owner(h)
	if err := unix.Fchown(dir, uid, gid); err != nil {
		return err
	}
	return unix.Fchmod(dir, uint32(h.Mode)&0o7777)
}

// keepTime holds a bounded number of them; directories beyond it have the time of their last change.
func (x *extraction) keepTime(name string, h *tar.Header) {
	if len(x.times) < maxTimesKept {
		x.times[name] = modified(h)
	}
}

// top is the entry of the directory itself: one that was there before keeps its mode and owner.
func (x *extraction) top(h *tar.Header) error {
	x.count.Directories++
	if !x.made {
		return nil
	}
	x.keepTime(".", h)
	return x.describe(x.root, h)
}

// symlink makes it as it stands, wherever it leads: nothing is written through one that leaves the directory.
func (x *extraction) symlink(h *tar.Header, name string) error {
	if h.Linkname == "" || len(h.Linkname) >= paths.MaxBytes {
		return refusedEntry(h.Name, "is a link to nothing, or to too long a path")
	}
	err := x.publish(h, name, func(dir int, temporary string) error {
		if err := unix.Symlinkat(h.Linkname, dir, temporary); err != nil {
			return err
		}
		return x.describeName(dir, temporary, h)
	})
	if err == nil {
		x.count.Links++
	}
	return err
}

// describeName sets owner and time of what is not opened.
func (x *extraction) describeName(dir int, name string, h *tar.Header) error {
	uid, gid := x.owner(h)
	if err := unix.Fchownat(dir, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	at := modified(h)
	return unix.UtimesNanoAt(dir, name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW)
}

// hardLink links to a file that is below the directory already, of this archive or not.
func (x *extraction) hardLink(h *tar.Header, name string) error {
	target, err := inside("the link's target", h.Linkname, h.Name)
	if err != nil {
		return err
	}
	source, err := tree.OpenBeneath(x.root, path.Dir(target), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return leaving(h.Name, err)
	}
	defer unix.Close(source)
	var info unix.Stat_t
	err = unix.Fstatat(source, path.Base(target), &info, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT || (err == nil && info.Mode&unix.S_IFMT == unix.S_IFDIR) {
		return refusedEntry(h.Name, "is a link to %.200q, which is no file of the directory", h.Linkname)
	}
	if err != nil {
		return err
	}
	if target == name {
		x.count.Links++
		return nil
	}
	err = x.publish(h, name, func(dir int, temporary string) error {
		return unix.Linkat(source, path.Base(target), dir, temporary, 0)
	})
	if err == nil {
		x.count.Links++
	}
	return err
}

func (x *extraction) fifo(h *tar.Header, name string) error {
	err := x.publish(h, name, func(dir int, temporary string) error {
		if err := unix.Mknodat(dir, temporary, unix.S_IFIFO|0o600, 0); err != nil {
			return err
		}
		if err := x.describeName(dir, temporary, h); err != nil {
			return err
		}
		return unix.Fchmodat(dir, temporary, uint32(h.Mode)&0o7777, 0)
	})
	if err == nil {
		x.count.Files++
	}
	return err
}
