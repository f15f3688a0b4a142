// Package files takes files into the guest and gives them out, as streams. Paths are the guest's own: parents that are symlinks lead where the
// guest's own programs would go, the last part is followed only when that is asked for.
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
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

const (
	maxPathBytes  = 4096
	copyBytes     = 256 << 10
	maxLinks      = 40
	directoryMode = 0o755
)

// Target is where a file goes and whose it becomes.
type Target struct {
	Path     string
	Mode     os.FileMode
	UID, GID int
	// SHA256 is what the bytes must add up to, in hex; "" takes any.
	SHA256 string
	// Unhashed: the bytes are not summed up, which under emulation costs more than all the rest.
	Unhashed bool
	// Exclusive: the name must be free.
	Exclusive bool
	// Keep says what is taken from the file that is replaced, should there be one.
	Keep Kept
	// Follow: a symlink as the last part of the path is followed.
	Follow bool
}

// Kept is what a file that is replaced passes on.
type Kept struct{ Mode, UID, GID bool }

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
	asked := target.Path
	if err := target.meet(); err != nil {
		return protocol.FileWritten{}, putFault(asked, err)
	}
	directory := path.Dir(target.Path)
	if err := makeParents(directory, target.UID, target.GID); err != nil {
		return protocol.FileWritten{}, putFault(asked, err)
	}
	temporary := path.Join(directory, ".fuse-"+rand.Text())
	written, err := writeTemporary(temporary, target, body)
	if err == nil {
		err = target.publish(temporary)
	}
	if err != nil {
		os.Remove(temporary)
		return protocol.FileWritten{}, putFault(asked, err)
	}
	return written, nil
}

// meet looks at what is there already, before the bytes come.
func (t *Target) meet() error {
	if t.Follow {
		followed, err := FollowLast(t.Path)
		if err != nil {
			return err
		}
		t.Path = followed
	}
	var there unix.Stat_t
	if err := unix.Lstat(t.Path, &there); err != nil {
		return nil // what else is wrong shows when the temporary file is made
	}
	kind := there.Mode & unix.S_IFMT
	switch {
	case t.Exclusive:
		return paths.Conflict(paths.Exists, t.Path, "%q is there already", t.Path)
	case kind == unix.S_IFDIR:
		return unix.EISDIR
	case kind == unix.S_IFLNK:
		return nil
	case kind != unix.S_IFREG: // every program needs /dev/null to be the device that it is
		return notRegular(t.Path)
	}
	if t.Keep.Mode {
		t.Mode = os.FileMode(there.Mode & 0o7777)
	}
	if t.Keep.UID {
		t.UID = int(there.Uid)
	}
	if t.Keep.GID {
		t.GID = int(there.Gid)
	}
	return nil
}

func (t *Target) publish(temporary string) error {
	if !t.Exclusive {
		return os.Rename(temporary, t.Path)
	}
	err := unix.Renameat2(unix.AT_FDCWD, temporary, unix.AT_FDCWD, t.Path, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		return paths.Conflict(paths.Exists, t.Path, "%q is there already", t.Path)
	}
	return err
}

// FollowLast finds what the last part of a path leads to, when it is a symlink; that need not exist.
func FollowLast(name string) (string, error) {
	buffer := make([]byte, maxPathBytes)
	for range maxLinks {
		n, err := unix.Readlink(name, buffer)
		if err != nil {
			return name, nil // no symlink, or nothing there
		}
		target := string(buffer[:n])
		if !path.IsAbs(target) {
			target = name[:strings.LastIndexByte(name, '/')+1] + target // not cleaned: its parents may be symlinks themselves
		}
		if name = target; len(name) > maxPathBytes {
			return "", unix.ENAMETOOLONG
		}
	}
	return "", unix.ELOOP
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
	var to io.Writer = file
	sum := sha256.New()
	if !target.Unhashed {
		to = io.MultiWriter(file, sum)
	}
	size, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{body}, make([]byte, copyBytes))
	if err != nil {
		return protocol.FileWritten{}, err
	}
	digest := ""
	if !target.Unhashed {
		digest = hex.EncodeToString(sum.Sum(nil))
	}
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

func putFault(name string, err error) error {
	switch {
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.EEXIST):
		return paths.Conflict(paths.IsADirectory, name, "%q is a directory", name)
	case errors.Is(err, unix.ENOENT): // parents are made: it is no place for files, such as /proc
		return fault.New(fault.Conflict, "no file can be made at %q", name).With("path", name)
	case errors.Is(err, unix.ENOTDIR):
		return paths.Conflict(paths.NotADirectory, name, "a parent of %q is not a directory", name)
	default:
		return paths.Fault(name, err)
	}
}
