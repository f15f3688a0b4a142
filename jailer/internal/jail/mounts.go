package jail

import (
	"fmt"

	"golang.org/x/sys/unix"

	"fuse/jailer/internal/protocol"
)

// enterRoot makes `root` with `binds` on it the calling process's `/`, and lets go of everything else. There is no /proc in it.
func enterRoot(root string, binds []protocol.Bind) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to itself: %w", err)
	}
	// Device nodes of the root must work, whatever holds among the host's mounts.
	err := attach(root, unix.AT_FDCWD, root, unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID,
		Attr_clr: unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC,
	})
	if err != nil {
		return err
	}
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return pathError("open", root, err)
	}
	defer unix.Close(top)
	for _, bind := range binds {
		attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}
		if bind.Devices {
			attributes.Attr_clr |= unix.MOUNT_ATTR_NODEV
		} else {
			attributes.Attr_set |= unix.MOUNT_ATTR_NODEV
		}
		if !bind.Writable {
			attributes.Attr_set |= unix.MOUNT_ATTR_RDONLY
		}
		if err := attach(bind.Source, top, bind.Target, attributes); err != nil {
			return err
		}
	}
	// pivot_root(2): the old root is put on top of the new one, and taken off again.
	if err := unix.Fchdir(top); err != nil {
		return pathError("chdir", root, err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return pathError("pivot_root", root, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the host's root: %w", err)
	}
	return pathError("chdir", "/", unix.Chdir("/"))
}

// attach mounts a path at another, seen from `top`, once and with these attributes from the beginning. No link on the way to the target leads out of `top`.
func attach(source string, top int, target string, attributes unix.MountAttr) error {
	mount, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return pathError("bind", source, err)
	}
	defer unix.Close(mount)
	if err := unix.MountSetattr(mount, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		return pathError("set mount attributes of", source, err)
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
	if top != unix.AT_FDCWD {
		how.Resolve = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	}
	place, err := unix.Openat2(top, target, &how)
	if err != nil {
		return pathError("bind "+source+" on", target, err)
	}
	defer unix.Close(place)
	err = unix.MoveMount(mount, "", place, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
	return pathError("bind "+source+" on", target, err)
}
