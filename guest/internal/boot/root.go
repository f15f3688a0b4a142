package boot

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	imageDevice = "/dev/vda"
	diskDevice  = "/dev/vdb"
	deviceDelay = 2 * time.Millisecond
)

// enterRoot stacks the machine's own disk over the image and makes that the root of everything. The initramfs stays beneath, empty. The disk
// may be one that a machine has used before: mounting it replays its journal. It returns a directory of the disk's file system.
func enterRoot(deadline time.Time) (disk int, err error) {
	for _, device := range []string{imageDevice, diskDevice} {
		if err := awaitDevice(device, deadline); err != nil {
			return -1, err
		}
	}
	if err := mountImage("/image"); err != nil {
		return -1, err
	}
	if disk, err = mountDisk("/disk"); err != nil {
		return -1, err
	}
	root := mount{
		source: "fuse", target: "/root.new", kind: "overlay", flags: unix.MS_NOATIME,
		data: "lowerdir=/image,upperdir=/disk/upper,workdir=/disk/work",
	}
	if err := root.attach(); err != nil {
		return -1, err
	}
	return disk, switchRoot(root.target)
}

func mountDisk(target string) (int, error) {
	if err := (mount{source: diskDevice, target: target, kind: "ext4", flags: unix.MS_NOATIME}).attach(); err != nil {
		return -1, err
	}
	for _, name := range []string{target + "/upper", target + "/work"} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			return -1, err
		}
	}
	directory, err := unix.Open(target, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", target, err)
	}
	return directory, nil
}

func awaitDevice(device string, deadline time.Time) error {
	for {
		_, err := os.Stat(device)
		if err == nil {
			return nil
		}
		if !errors.Is(err, os.ErrNotExist) || time.Now().After(deadline) {
			return fmt.Errorf("wait for disk: %w", err)
		}
		time.Sleep(deviceDelay)
	}
}

func mountImage(target string) error {
	var failures []error
	for _, kind := range []string{"erofs", "squashfs"} {
		err := mount{source: imageDevice, target: target, kind: kind, flags: unix.MS_RDONLY}.attach()
		if err == nil {
			return nil
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

func switchRoot(target string) error {
	for _, name := range []string{"/dev", "/proc", "/sys"} {
		if err := unix.Unmount(name, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", name, err)
		}
	}
	os.Remove("/init")
	if err := unix.Chdir(target); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return err
	}
	return unix.Chdir("/")
}
