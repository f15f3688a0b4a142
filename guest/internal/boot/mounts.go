package boot

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

// attach mounts over a directory that it makes when there is none. What else lies at the target, a symlink above all, is moved aside.
func (m mount) attach() error {
	if err := ensureDirectory(m.target); err != nil {
		return err
	}
	source := m.source
	if source == "" {
		source = m.kind
	}
	if err := unix.Mount(source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s at %s: %w", m.kind, m.target, err)
	}
	return nil
}

func ensureDirectory(name string) error {
	info, err := os.Lstat(name)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		if err := os.Rename(name, name+".image"); err != nil {
			return fmt.Errorf("move %s aside: %w", name, err)
		}
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	if err := os.Mkdir(name, 0o755); err != nil {
		return err
	}
	return nil
}

// detachedMount makes a file system that is attached nowhere and returns its root directory.
func detachedMount(kind string, options map[string]string) (int, error) {
	context, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("fsopen %s: %w", kind, err)
	}
	defer unix.Close(context)
	for key, value := range options {
		if err := unix.FsconfigSetString(context, key, value); err != nil {
			return -1, fmt.Errorf("fsconfig %s %s: %w", kind, key, err)
		}
	}
	if err := unix.FsconfigCreate(context); err != nil {
		return -1, fmt.Errorf("create %s: %w", kind, err)
	}
	root, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("fsmount %s: %w", kind, err)
	}
	return root, nil
}
