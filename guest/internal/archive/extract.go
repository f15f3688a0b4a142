package archive

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"io"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
	"fuse/guest/internal/tree"
)

const (
	maxTimesKept = 100_000
	// Padding behind the end of an archive that is read and dropped; a body that goes on is cut off.
	maxTrailingBytes = 16 << 20
	maxFileBytes     = 1 << 44
	// Of a sparse file a few bytes can ask for any size, and its holes are gone through as zeros.
	maxSparseBytes = 64 << 30
)

// Destination is where an archive goes and whose its files become; -1 takes the archive's own numbers.
type Destination struct {
	Path     string
	UID, GID int
}

// Extract extracts an archive below a directory, which is made. Every name is resolved from the directory's descriptor and cannot leave it, whatever
// symlinks are there or are put there meanwhile. What was extracted before an error stays; its details count it.
func Extract(ctx context.Context, to Destination, body io.Reader) (protocol.TarIn, error) {
	name, err := paths.Clean("path", to.Path)
	if err != nil {
		return protocol.TarIn{}, err
	}
	var before unix.Stat_t
	made := unix.Stat(name, &before) == unix.ENOENT
	if err := tree.MakeParents(name, to.UID, to.GID); err != nil {
		return protocol.TarIn{}, paths.Fault(name, err)
	}
	root, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return protocol.TarIn{}, paths.Fault(name, err)
	}
	x := &extraction{
		ctx: ctx, root: root, path: name, to: to, made: made, parent: -1, times: map[string]unix.Timespec{}, buffer: make([]byte, bufferBytes),
	}
	defer x.close()
	buffered := bufio.NewReaderSize(body, bufferBytes)
	marked := &endMarked{Reader: buffered}
	if err := x.all(tar.NewReader(marked)); err != nil {
		return protocol.TarIn{}, x.counted(err)
	}
	if marked.cut {
		return protocol.TarIn{}, x.counted(fault.New(fault.InvalidArgument, "the archive is cut: its end mark, two blocks of zeros, is missing"))
	}
	_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{io.LimitReader(buffered, maxTrailingBytes)}, x.buffer)
	return x.count, nil
}

// endMarked notices a body that ends where the archive goes on: archive/tar takes that for an end.
type endMarked struct {
	io.Reader
	cut bool
}

func (e *endMarked) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	e.cut = e.cut || err == io.EOF
	return n, err
}

type extraction struct {
	ctx  context.Context
	root int
	path string
	to   Destination
	// made: the directory is ours, so the archive says its mode and owner too.
	made  bool
	count protocol.TarIn
	// parent is the directory of the entry before, which most often is that of the next.
	parent     int
	parentName string
	times      map[string]unix.Timespec // of directories, set when nothing comes into them any more
	buffer     []byte
}

func (x *extraction) close() {
	if x.parent >= 0 {
		unix.Close(x.parent)
	}
	unix.Close(x.root)
}

func (x *extraction) counted(err error) error {
	var known *fault.Error
	if !errors.As(err, &known) {
		return err
	}
	for key, value := range map[string]int64{
		"files": x.count.Files, "directories": x.count.Directories, "links": x.count.Links, "bytes": x.count.Bytes,
	} {
		known = known.With(key, strconv.FormatInt(value, 10))
	}
	return known
}

func (x *extraction) all(archive *tar.Reader) error {
	for {
		if err := x.ctx.Err(); err != nil {
			return err
		}
		h, err := archive.Next()
		if err == io.EOF {
			return x.setTimes()
		}
		if err != nil {
			return broken(x.ctx, err)
		}
		if err := x.entry(h, archive); err != nil {
			return paths.Fault(path.Join(x.path, h.Name), err)
		}
	}
}

// broken tells a body that is no archive, or ends too early, from a request that was given up.
func broken(ctx context.Context, err error) error {
	var known *fault.Error
	switch {
	case errors.As(err, &known), ctx.Err() != nil:
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.New(fault.InvalidArgument, "the archive is cut")
	default:
		return fault.New(fault.InvalidArgument, "the body is not a tar archive that can be read: %v", err)
	}
}

func (x *extraction) entry(h *tar.Header, body io.Reader) error {
	name, err := inside("the name", h.Name, h.Name)
	if err != nil {
		return err
	}
	if err := x.checkNumbers(h); err != nil {
		return err
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return refusedEntry(h.Name, "is a file without a name")
		}
		return x.top(h)
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return x.directory(h, name)
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		return x.file(h, name, body)
	case tar.TypeSymlink:
		return x.symlink(h, name)
	case tar.TypeLink:
		return x.hardLink(h, name)
	case tar.TypeFifo:
		return x.fifo(h, name)
	case tar.TypeChar, tar.TypeBlock:
		return refusedEntry(h.Name, "is a device")
	case tar.TypeXGlobalHeader:
		return nil
	default:
		return refusedEntry(h.Name, "is of the unknown type %q", h.Typeflag)
	}
}

func (x *extraction) checkNumbers(h *tar.Header) error {
	const most = 1<<32 - 2
	if h.Uid < 0 || h.Uid > most || h.Gid < 0 || h.Gid > most {
		return refusedEntry(h.Name, "has an owner that is no uid and gid")
	}
	if h.Size < 0 || h.Size > maxFileBytes {
		return refusedEntry(h.Name, "is larger than %d bytes", int64(maxFileBytes))
	}
	if h.Size > maxSparseBytes && isSparse(h) {
		return refusedEntry(h.Name, "is a sparse file larger than %d bytes", int64(maxSparseBytes))
	}
	return nil
}

func isSparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// owner is whose an entry becomes.
func (x *extraction) owner(h *tar.Header) (uid, gid int) {
	uid, gid = x.to.UID, x.to.GID
	if uid < 0 {
		uid = h.Uid
	}
	if gid < 0 {
		gid = h.Gid
	}
	return uid, gid
}

func modified(h *tar.Header) unix.Timespec {
	return unix.Timespec{Sec: h.ModTime.Unix(), Nsec: int64(h.ModTime.Nanosecond())}
}

func (x *extraction) setTimes() error {
	for name, at := range x.times {
		dir, err := tree.OpenBeneath(x.root, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			continue // replaced by a later entry, or removed
		}
		err = setTime(dir, at)
		unix.Close(dir)
		if err != nil {
			return paths.Fault(path.Join(x.path, name), err)
		}
	}
	return nil
}

func setTime(file int, at unix.Timespec) error {
	return unix.UtimesNanoAt(file, "", []unix.Timespec{at, at}, unix.AT_EMPTY_PATH)
}
