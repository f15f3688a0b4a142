package exec

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
)

// execFailed is the error of a program that could not be started: nothing ran and nothing is kept.
func execFailed(program, format string, args ...any) *fault.Error {
	return fault.New(fault.InvalidArgument, "cannot start %q: %s", clip(program), fmt.Sprintf(format, args...)).
		With("reason", "exec_failed")
}

// startFailure words what the kernel answered to fork, chdir, setuid or exec.
func startFailure(c command, err error) error {
	program := c.name
	switch {
	case errors.Is(err, unix.ENOENT):
		return execFailed(program, "no such file, or its interpreter is missing")
	case errors.Is(err, unix.EACCES):
		return execFailed(program, "permission denied for user %s (the program, or working directory %s)", c.account.Name, c.cwd)
	case errors.Is(err, unix.ENOEXEC):
		return execFailed(program, "not a program this machine can run (a script needs a #! line)")
	case errors.Is(err, unix.E2BIG):
		return execFailed(program, "arguments and environment are too long")
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE),
		errors.Is(err, unix.ENOSPC):
		return fault.New(fault.Unavailable, "cannot start %q: the machine is out of processes, descriptors, terminals or memory", clip(program))
	default:
		return execFailed(program, "%v", reason(err))
	}
}

// reason is the error without the path that the message names already.
func reason(err error) error {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err
	}
	return err
}

func clip(name string) string {
	const most = 256
	if len(name) > most {
		return name[:most] + "…"
	}
	return name
}
