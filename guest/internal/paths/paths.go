// Package paths checks the paths that requests name, shows names that are not UTF-8, and turns what the kernel says about a path into an
// error with the reasons of packages/contract/src/guest-files.ts.
package paths

import (
	"errors"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
)

const (
	MaxBytes     = 4096
	MaxNameBytes = 255
)

// Reasons of a conflict.
const (
	Exists         = "exists"
	NotADirectory  = "not_a_directory"
	IsADirectory   = "is_a_directory"
	NotRegularFile = "not_a_regular_file"
	NotEmpty       = "not_empty"
	NoSpace        = "no_space"
	Changed        = "changed"
	TooLarge       = "too_large"
)

// Clean checks an absolute path and takes `.`, `..` and needless slashes out of it, by its text alone.
func Clean(field, text string) (string, error) {
	switch {
	case !path.IsAbs(text):
		return "", fault.New(fault.InvalidArgument, "%s must be absolute", field).With("field", field)
	case len(text) > MaxBytes || strings.ContainsRune(text, 0):
		return "", fault.New(fault.InvalidArgument, "%s must be at most %d bytes and hold no NUL", field, MaxBytes).With("field", field)
	}
	return path.Clean(text), nil
}

// Shown is a name or path as JSON can hold it; good tells whether it is the very same.
func Shown(text string) (shown string, good bool) {
	if utf8.ValidString(text) {
		return text, true
	}
	return strings.ToValidUTF8(text, "\uFFFD"), false
}

// Conflict is a 409 about a path.
func Conflict(reason, name, format string, args ...any) *fault.Error {
	shown, _ := Shown(name)
	return fault.New(fault.Conflict, format, args...).With("reason", reason).With("path", shown)
}

// NotFound is a 404 about a path.
func NotFound(name string) *fault.Error {
	shown, _ := Shown(name)
	return fault.New(fault.NotFound, "no file or directory %q", shown).With("path", shown)
}

// Fault tells what is wrong with the path itself from what is wrong with the machine. An error that is a fault already stays as it is.
func Fault(name string, err error) error {
	shown, _ := Shown(name)
	var known *fault.Error
	var errno unix.Errno
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, unix.ENOENT):
		return NotFound(name)
	case errors.Is(err, unix.ENOTDIR):
		return Conflict(NotADirectory, name, "%q, or a parent of it, is not a directory", shown)
	case errors.Is(err, unix.EISDIR):
		return Conflict(IsADirectory, name, "%q is a directory", shown)
	case errors.Is(err, unix.EEXIST):
		return Conflict(Exists, name, "%q is there already", shown)
	case errors.Is(err, unix.ENOTEMPTY):
		return Conflict(NotEmpty, name, "the directory %q is not empty", shown)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return Conflict(NoSpace, name, "no space left on the machine's disk for %q", shown)
	case errors.Is(err, unix.EFBIG):
		return Conflict(TooLarge, name, "%q is larger than its file system takes", shown)
	case errors.Is(err, unix.ENAMETOOLONG):
		return fault.New(fault.InvalidArgument, "%q is too long, or a part of it is over %d bytes", shown, MaxNameBytes).With("field", "path")
	case errors.As(err, &errno):
		return fault.New(fault.Conflict, "%q: %s", shown, errno.Error()).With("path", shown)
	default:
		return err
	}
}

// Mode parses octal permission bits, setuid and the like included.
func Mode(text string) (uint32, error) {
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil || len(text) > 5 || mode > 0o7777 {
		return 0, fault.New(fault.InvalidArgument, "mode must be octal permission bits").With("field", "mode")
	}
	return uint32(mode), nil
}
