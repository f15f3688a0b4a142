// Package tree is what can be done with directories and the names in them: stat, list, make, move, copy, remove, modes and owners. Recursion never
// follows a symlink and goes by descriptors, so that what a program in the guest puts in the place of a directory meanwhile is not entered.
package tree

import (
	"errors"
	"fmt"
	"path"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/accounts"
	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

const (
	// MaxDepth bounds recursion: each level holds a descriptor.
	MaxDepth = 4096
	// MaxEntries of one answer.
	MaxEntries = 10_000
	// maxAnswerBytes of one answer's JSON, as near as it can be told beforehand.
	maxAnswerBytes = 4 << 20
	temporaryName  = ".fuse-"
	directoryMode  = 0o755
	unchanged      = -1
)

// Tree is the guest's file system with the names of its accounts.
type Tree struct {
	Users *accounts.Directory
}

// Owner finds the numbers of an owner; -1 for what it does not say.
func (t *Tree) Owner(owner protocol.Owner) (uid, gid int, err error) {
	if owner.User == "" {
		return number(owner.UID), number(owner.GID), nil
	}
	if owner.UID != nil || owner.GID != nil {
		return 0, 0, fault.New(fault.InvalidArgument, "either user, or uid and gid").With("field", "user")
	}
	account, err := t.Users.Lookup(owner.User)
	if err != nil {
		return 0, 0, fault.New(fault.InvalidArgument, "%v", err).With("field", "user")
	}
	return int(account.UID), int(account.GID), nil
}

func number(id *uint32) int {
	if id == nil {
		return unchanged
	}
	return int(*id)
}

func bounded(field string, given *int, standard, most int) (int, error) {
	if given == nil {
		return standard, nil
	}
	if *given < 1 || *given > most {
		return 0, fault.New(fault.InvalidArgument, "%s must be 1 to %d", field, most).With("field", field)
	}
	return *given, nil
}

func tooDeep(name string) error {
	return fault.New(fault.Conflict, "%q goes deeper than %d levels", name, MaxDepth).With("reason", "too_large").With("path", name)
}

// parentOf opens the directory that holds a path. Symlinks on the way are followed; `/` has no name in a parent.
func parentOf(name string) (dir int, base string, err error) {
	if name == "/" {
		return -1, "", fault.New(fault.InvalidArgument, "the root directory cannot be taken for this").With("field", "path")
	}
	dir, err = openDirectory(unix.AT_FDCWD, path.Dir(name), 0)
	return dir, path.Base(name), err
}

func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// wrapped keeps which path of a recursion failed; paths.Fault finds the number inside.
func wrapped(name string, err error) error {
	var known *fault.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &pathError{name: name, err: err}
}

type pathError struct {
	name string
	err  error
}

func (e *pathError) Error() string { return fmt.Sprintf("%s: %v", e.name, e.err) }
func (e *pathError) Unwrap() error { return e.err }

func missing(err error) bool { return errors.Is(err, unix.ENOENT) }
