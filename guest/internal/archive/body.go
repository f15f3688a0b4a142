package archive

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/paths"
)

const (
	// sparseFrom: a file whose holes add up to less is archived with them as zeros, which every program reads. Above, it is a GNU sparse file of
	// version 1.0, which GNU tar, bsdtar, Python, Go and this agent read.
	sparseFrom     = 64 << 20
	maxPseudoBytes = 4 << 20
	maxExtents     = 100_000
)

type extent struct{ start, length int64 }

// file archives a regular file. Its header says the size of this moment: a file that is cut meanwhile is filled with zeros, one that grows is cut.
func (w *writer) file(dir int, name, as string) error {
	file, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return ignoreGone(as, err)
	}
	defer unix.Close(file)
	var info unix.Stat_t
	if err := unix.Fstat(file, &info); err != nil {
		return err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil // it became another thing: left out
	}
	h := headerOf(&info, as)
	if paths.Pseudo(file) {
		return w.pseudo(file, h)
	}
	h.size = info.Size
	if info.Size-info.Blocks*blockBytes >= sparseFrom {
		if extents, err := extentsOf(file, info.Size); err == nil {
			return w.sparse(file, h, extents)
		}
	}
	if err := w.put(h); err != nil {
		return err
	}
	if err := w.copy(file, extent{0, info.Size}); err != nil {
		return fmt.Errorf("%s: %w", as, err)
	}
	return w.pad(info.Size)
}

func (w *writer) pad(size int64) error {
	_, err := w.out.Write(make([]byte, padding(size)))
	return err
}

// copy writes exactly the extent's length; what cannot be read any more is zeros.
func (w *writer) copy(file int, part extent) error {
	for at, end := part.start, part.start+part.length; at < end; {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		piece := w.buffer[:min(end-at, int64(len(w.buffer)))]
		n, err := unix.Pread(file, piece, at)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			clear(piece)
			n = len(piece)
		}
		if _, err := w.out.Write(piece[:n]); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// pseudo archives a file of /proc, /sys and the like: its size is what reading it gives, up to a bound. One that cannot be read is left out.
func (w *writer) pseudo(file int, h *header) error {
	var whole []byte
	for len(whole) < maxPseudoBytes {
		n, err := unix.Read(file, w.buffer)
		if err == unix.EINTR {
			continue
		}
		if err != nil && err != unix.EAGAIN && len(whole) == 0 {
			return nil
		}
		if err != nil || n == 0 {
			break
		}
		whole = append(whole, w.buffer[:n]...)
	}
	h.size = int64(len(whole))
	if err := w.put(h); err != nil {
		return err
	}
	if _, err := w.out.Write(whole); err != nil {
		return err
	}
	return w.pad(h.size)
}

// extentsOf finds where a sparse file has data.
func extentsOf(file int, size int64) ([]extent, error) {
	var extents []extent
	for at := int64(0); at < size; {
		start, err := unix.Seek(file, at, unix.SEEK_DATA)
		if err == unix.ENXIO {
			break
		}
		if err != nil {
			return nil, err
		}
		end, err := unix.Seek(file, start, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		if start, end = min(start, size), min(end, size); end > start {
			extents = append(extents, extent{start, end - start})
		}
		if at = end; len(extents) > maxExtents {
			return nil, unix.E2BIG
		}
	}
	// The last extent, should it be empty, says where the file ends.
	return append(extents, extent{size, 0}), nil
}

func (w *writer) sparse(file int, h *header, extents []extent) error {
	var plan []byte
	plan = fmt.Appendf(plan, "%d\n", len(extents))
	data := int64(0)
	for _, each := range extents {
		plan = fmt.Appendf(plan, "%d\n%d\n", each.start, each.length)
		data += each.length
	}
	plan = append(plan, make([]byte, padding(int64(len(plan))))...)
	h.records = appendRecord(h.records, "GNU.sparse.major", "1")
	h.records = appendRecord(h.records, "GNU.sparse.minor", "0")
	h.records = appendRecord(h.records, "GNU.sparse.name", h.name)
	h.records = appendRecord(h.records, "GNU.sparse.realsize", strconv.FormatInt(h.size, 10))
	h.size = int64(len(plan)) + data
	if err := w.put(h); err != nil {
		return err
	}
	if _, err := w.out.Write(plan); err != nil {
		return err
	}
	for _, each := range extents {
		if err := w.copy(file, each); err != nil {
			return err
		}
	}
	return w.pad(h.size)
}
