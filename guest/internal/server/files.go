package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/files"
	"fuse/guest/internal/glob"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

const (
	defaultFileMode = 0o644
	sendBytes       = 256 << 10
)

var validSHA256 = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (a *Agent) putFile(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	target, err := a.targetOf(values)
	if err != nil {
		return err
	}
	written, err := files.Put(target, r.Body)
	if err != nil {
		return err
	}
	return reply(w, http.StatusCreated, written)
}

func (a *Agent) targetOf(values url.Values) (files.Target, error) {
	target := files.Target{
		Path: values.Get("path"), Mode: defaultFileMode, SHA256: values.Get("sha256"), Exclusive: flag(values, "exclusive"),
	}
	text := values.Get("mode")
	if text != "" {
		mode, err := paths.Mode(text)
		if err != nil {
			return target, err
		}
		target.Mode = os.FileMode(mode)
	}
	if target.SHA256 != "" && !validSHA256.MatchString(target.SHA256) {
		return target, fault.New(fault.InvalidArgument, "sha256 must be 64 lower-case hex digits").With("field", "sha256")
	}
	if target.Unhashed = flag(values, "unhashed"); target.Unhashed && target.SHA256 != "" {
		return target, fault.New(fault.InvalidArgument, "either sha256 or unhashed").With("field", "unhashed")
	}
	uid, gid, err := a.ownerOf(values)
	if err != nil {
		return target, err
	}
	if flag(values, "keep") {
		target.Follow = true
		target.Keep = files.Kept{Mode: text == "", UID: uid < 0, GID: gid < 0}
	}
	target.UID, target.GID = max(uid, 0), max(gid, 0)
	return target, nil
}

func flag(values url.Values, name string) bool {
	text := values.Get(name)
	return text != "" && text != "0" && text != "false"
}

// ownerOf parses user, uid and gid; -1 is one that is not given.
func (a *Agent) ownerOf(values url.Values) (uid, gid int, err error) {
	owner := protocol.Owner{User: values.Get("user")}
	for name, id := range map[string]**uint32{"uid": &owner.UID, "gid": &owner.GID} {
		text := values.Get(name)
		if text == "" {
			continue
		}
		number, err := strconv.ParseUint(text, 10, 32)
		if err != nil || number == 1<<32-1 {
			return 0, 0, fault.New(fault.InvalidArgument, "%s must be a number", name).With("field", name)
		}
		given := uint32(number)
		*id = &given
	}
	return a.Files.Owner(owner)
}

// getFile answers HEAD too.
func (a *Agent) getFile(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	follow := flag(values, "follow")
	file, err := files.Open(values.Get("path"), follow)
	if err != nil {
		return err
	}
	defer file.Close()
	start, end, err := rangeOf(values, file.Size)
	if err != nil {
		return err
	}
	header := w.Header()
	header.Set("content-type", "application/octet-stream")
	header.Set("content-length", strconv.FormatInt(end-start, 10))
	header.Set("file-size", strconv.FormatInt(file.Size, 10))
	header.Set("file-mode", fmt.Sprintf("%04o", file.Info.Mode&0o7777))
	header.Set("file-uid", strconv.FormatUint(uint64(file.Info.Uid), 10))
	header.Set("file-gid", strconv.FormatUint(uint64(file.Info.Gid), 10))
	header.Set("file-modified-ms", strconv.FormatInt(file.Info.Mtim.Nano()/1e6, 10))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	copied, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{file.Range(start, end)}, make([]byte, sendBytes))
	// What is collected as an output must be of one moment. A reader of a log, or of a part, has what it asked for though more was written meanwhile.
	whole := !follow && !values.Has("start") && !values.Has("end")
	if err != nil || copied < end-start || (whole && file.Resized()) {
		panic(http.ErrAbortHandler) // the host must see a cut stream
	}
	return nil
}

// rangeOf is all of a file unless the query says otherwise; an end beyond the file's is the file's.
func rangeOf(values url.Values, size int64) (start, end int64, err error) {
	end = size
	for name, at := range map[string]*int64{"start": &start, "end": &end} {
		text := values.Get(name)
		if text == "" {
			continue
		}
		if *at, err = strconv.ParseInt(text, 10, 64); err != nil || *at < 0 {
			return 0, 0, fault.New(fault.InvalidArgument, "%s must be a number of bytes", name).With("field", name)
		}
	}
	if start > size {
		return 0, 0, fault.New(fault.InvalidArgument, "start is behind the end of the file, at %d", size).
			With("field", "start").With("size", strconv.FormatInt(size, 10))
	}
	if end < start {
		return 0, 0, fault.New(fault.InvalidArgument, "end is before start").With("field", "end")
	}
	return start, min(end, size), nil
}

func (a *Agent) glob(w http.ResponseWriter, r *http.Request) error {
	var request protocol.GlobRequest
	if err := readJSON(w, r, &request); err != nil {
		return err
	}
	result, err := glob.Find(r.Context(), request)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, result)
}

// sync flushes the machine's own disk.
func (a *Agent) sync(w http.ResponseWriter, _ *http.Request) error {
	root, err := os.Open("/")
	if err != nil {
		return err
	}
	defer root.Close()
	if err := unix.Syncfs(int(root.Fd())); err != nil {
		if errors.Is(err, unix.EIO) || errors.Is(err, unix.ENOSPC) {
			return fault.New(fault.Conflict, "the disk could not be flushed: %v", err)
		}
		return fmt.Errorf("flush the disk: %w", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
