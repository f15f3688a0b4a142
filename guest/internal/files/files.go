// Package files takes files into the guest and gives them out, as streams. Paths are the guest's own: parents that are symlinks lead where the
// guest's own programs would go, the last part is never followed.
package files

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

const (
	maxPathBytes  = 4096
	copyBytes     = 128 << 10
	directoryMode = 0o755
)

// Target is where a file goes and whose it becomes.
type Target struct {
	Path     string
	Mode     os.FileMode
	UID, GID int
	// SHA256 is what the bytes must add up to, in hex; "" takes any.
	SHA256 string
}

// CheckPath refuses what cannot be the path of a file.
func CheckPath(name string) error {
	switch {
	case !path.IsAbs(name):
		return fault.New(fault.InvalidArgument, "path must be absolute").With("field", "path")
	case len(name) > maxPathBytes || strings.ContainsRune(name, 0):
		return fault.New(fault.InvalidArgument, "path must be at most %d bytes and hold no NUL", maxPathBytes).With("field", "path")
	case strings.HasSuffix(name, "/") || path.Base(name) == "." || path.Base(name) == "..":
		return fault.New(fault.InvalidArgument, "path must name a file").With("field", "path")
	}
	return nil
}

// Put writes a file whole or not at all: a temporary file beside the target takes its place by a rename. Parents are made, owned like it.
func Put(target Target, body io.Reader) (protocol.FileWritten, error) {
	if err := CheckPath(target.Path); err != nil {
		return protocol.FileWritten{}, err
	}
	directory := path.Dir(target.Path)
	if err := makeParents(directory, target.UID, target.GID); err != nil {
		return protocol.FileWritten{}, putFault(target.Path, err)
	}
	temporary := path.Join(directory, ".fuse-"+rand.Text())
	written, err := writeTemporary(temporary, target, body)
	if err == nil {
		err = os.Rename(temporary, target.Path)
	}
	if err != nil {
		os.Remove(temporary)
		return protocol.FileWritten{}, putFault(target.Path, err)
	}
	return written, nil
}

func makeParents(directory string, uid, gid int) error {
	err := os.Mkdir(directory, directoryMode)
	if errors.Is(err, unix.ENOENT) {
		if err := makeParents(path.Dir(directory), uid, gid); err != nil {
			return err
		}
		err = os.Mkdir(directory, directoryMode)
	}
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Lchown(directory, uid, gid)
}

func writeTemporary(name string, target Target, body io.Reader) (protocol.FileWritten, error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return protocol.FileWritten{}, err
	}
	defer file.Close()
	sum := sha256.New()
	size, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(file, sum)}, struct{ io.Reader }{body}, make([]byte, copyBytes))
	if err != nil {
		return protocol.FileWritten{}, err
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	if target.SHA256 != "" && target.SHA256 != digest {
		return protocol.FileWritten{}, fault.New(fault.InvalidArgument, "the bytes that came have sha256 %s, not %s", digest, target.SHA256).
			With("field", "sha256")
	}
	// Owner before mode: a change of owner clears setuid bits.
	if err := file.Chown(target.UID, target.GID); err != nil {
		return protocol.FileWritten{}, err
	}
	if err := unix.Fchmod(int(file.Fd()), uint32(target.Mode)); err != nil {
		return protocol.FileWritten{}, err
	}
	return protocol.FileWritten{SizeBytes: size, SHA256: digest}, file.Close()
}

// Open opens a regular file to be read, with its size at this moment.
func Open(name string) (*os.File, int64, error) {
	if err := CheckPath(name); err != nil {
		return nil, 0, err
	}
	file, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, getFault(name, err)
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() {
		return file, info.Size(), nil
	}
	file.Close()
	if err != nil {
		return nil, 0, err
	}
	return nil, 0, notRegular(name)
}

func getFault(name string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return fault.New(fault.NotFound, "no file %q", name)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		return notRegular(name)
	default:
		return pathFault(name, err)
	}
}

func notRegular(name string) error {
	return fault.New(fault.Conflict, "%q is not a regular file", name)
}

func putFault(name string, err error) error {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.New(fault.Conflict, "no space left on the machine's disk for %q", name).With("reason", "no_space")
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.EEXIST):
		return fault.New(fault.Conflict, "%q is a directory", name)
	case errors.Is(err, unix.ENOTDIR):
		return fault.New(fault.Conflict, "a parent of %q is not a directory", name)
	default:
		return pathFault(name, err)
	}
}

// pathFault tells what is wrong with the path itself from what is wrong with the machine.
func pathFault(name string, err error) error {
	var known *fault.Error
	var errno unix.Errno
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, unix.ENAMETOOLONG):
		return fault.New(fault.InvalidArgument, "a part of %q is over 255 bytes", name).With("field", "path")
	case errors.As(err, &errno):
		return fault.New(fault.Conflict, "%q: %s", name, errno.Error())
	default:
		return err
	}
}
