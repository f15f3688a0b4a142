package serve

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"fuse/jailer/internal/netns"
	"fuse/jailer/internal/protocol"
)

// stdio of one child: the files that become its descriptors, and our ends of its pipes by descriptor.
type stdio struct {
	files []*os.File
	pipes map[int]*os.File
}

func openStdio(wanted []protocol.Stdio) (*stdio, error) {
	opened := &stdio{pipes: map[int]*os.File{}}
	for len(wanted) < 3 {
		wanted = append(wanted, protocol.Stdio{})
	}
	for descriptor, each := range wanted {
		file, err := opened.open(descriptor, each)
		if err != nil {
			opened.closeOthers()
			opened.closeOurs()
			return nil, err
		}
		opened.files = append(opened.files, file)
	}
	return opened, nil
}

func (s *stdio) open(descriptor int, wanted protocol.Stdio) (*os.File, error) {
	switch {
	case wanted.Pipe && (descriptor == 1 || descriptor == 2):
		ours, theirs, err := pipe()
		if err == nil {
			s.pipes[descriptor] = ours
		}
		return theirs, err
	case wanted.Pipe:
		return nil, fmt.Errorf("descriptor %d cannot be a pipe", descriptor)
	case wanted.Tap != nil:
		return netns.OpenTap(wanted.Tap.NamespacePath, wanted.Tap.Name)
	case wanted.Path == "":
		return openFile(os.DevNull, unix.O_RDWR)
	case wanted.Flags == "a":
		return openFile(wanted.Path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT)
	default:
		return openFile(wanted.Path, unix.O_RDONLY)
	}
}

// Not through os.OpenFile, which makes pipes and the like non-blocking, also for the child. A file that is a link is refused: some lie where a VM writes.
func openFile(path string, flags int) (*os.File, error) {
	descriptor, err := unix.Open(path, flags|unix.O_NOFOLLOW|unix.O_NOCTTY|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(descriptor), path), nil
}

// pipe whose reading end waits in Go's way and whose writing end is the child's: blocking.
func pipe() (ours, theirs *os.File, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	if err := unix.SetNonblock(ends[0], true); err != nil {
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(ends[0]), "pipe"), os.NewFile(uintptr(ends[1]), "pipe"), nil
}

// closeOthers closes what the child has by now.
func (s *stdio) closeOthers() {
	for _, file := range s.files {
		file.Close()
	}
}

func (s *stdio) closeOurs() {
	for _, file := range s.pipes {
		file.Close()
	}
}
