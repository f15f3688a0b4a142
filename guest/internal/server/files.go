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
	"fuse/guest/internal/protocol"
)

const (
	defaultFileMode = 0o644
	sendBytes       = 128 << 10
)

var (
	validMode   = regexp.MustCompile(`^[0-7]{1,5}$`)
	validSHA256 = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

func (a *Agent) putFile(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	target, err := targetOf(values)
	if err != nil {
		return err
	}
	written, err := files.Put(target, r.Body)
	if err != nil {
		return err
	}
	return reply(w, http.StatusCreated, written)
}

func targetOf(values url.Values) (files.Target, error) {
	target := files.Target{Path: values.Get("path"), Mode: defaultFileMode, SHA256: values.Get("sha256")}
	if text := values.Get("mode"); text != "" {
		mode, err := strconv.ParseUint(text, 8, 32)
		if err != nil || !validMode.MatchString(text) || mode > 0o7777 {
			return target, fault.New(fault.InvalidArgument, "mode must be octal permission bits").With("field", "mode")
		}
		target.Mode = os.FileMode(mode)
	}
	if target.SHA256 != "" && !validSHA256.MatchString(target.SHA256) {
		return target, fault.New(fault.InvalidArgument, "sha256 must be 64 lower-case hex digits").With("field", "sha256")
	}
	for name, id := range map[string]*int{"uid": &target.UID, "gid": &target.GID} {
		text := values.Get(name)
		if text == "" {
			continue
		}
		number, err := strconv.ParseUint(text, 10, 32)
		if err != nil || number == 1<<32-1 {
			return target, fault.New(fault.InvalidArgument, "%s must be a number", name).With("field", name)
		}
		*id = int(number)
	}
	return target, nil
}

func (a *Agent) getFile(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r)
	if err != nil {
		return err
	}
	file, size, err := files.Open(values.Get("path"))
	if err != nil {
		return err
	}
	defer file.Close()
	w.Header().Set("content-type", "application/octet-stream")
	w.Header().Set("content-length", strconv.FormatInt(size, 10))
	w.WriteHeader(http.StatusOK)
	copied, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{io.LimitReader(file, size)}, make([]byte, sendBytes))
	after, statErr := file.Stat()
	if err != nil || copied < size || statErr != nil || after.Size() != size {
		panic(http.ErrAbortHandler) // its size changed, or it could not be read: the host must see a cut stream
	}
	return nil
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
