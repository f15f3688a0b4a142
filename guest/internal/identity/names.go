package identity

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/protocol"
)

const (
	bootIDFile  = "/run/fuse/boot_id"
	kernelsOwn  = "/proc/sys/kernel/random/boot_id"
	runtimeMode = 0o755
)

// rename puts the machine's names in force everywhere that programs look for them.
func rename(id protocol.Identity) error {
	if err := unix.Sethostname([]byte(id.Hostname)); err != nil {
		return fmt.Errorf("set hostname: %w", err)
	}
	for _, file := range []struct{ path, text string }{
		{"/etc/hostname", id.Hostname + "\n"},
		{"/etc/hosts", hosts(id.Hostname)},
		{"/etc/machine-id", id.MachineID + "\n"},
		{"/run/fuse/generation", strconv.FormatInt(id.Generation, 10) + "\n"},
	} {
		if err := WriteFile(file.path, file.text); err != nil {
			return err
		}
	}
	return renewBootID()
}

// Prepare gives the machine names of its own before the host has given it any, so that all their files exist: taking on an identity later
// writes them in place, which works on a full disk too.
func Prepare() error {
	return rename(protocol.Identity{Hostname: "fuse", MachineID: randomHex(16)})
}

func randomHex(size int) string {
	bytes := make([]byte, size)
	rand.Read(bytes)
	return hex.EncodeToString(bytes)
}

func hosts(hostname string) string {
	return "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\t" + hostname + "\n"
}

// WriteFile replaces a small file of the guest's, whatever lies there: in place when it is a regular file, so that a full disk does not
// matter, and never through a symlink.
func WriteFile(name, text string) error {
	err := overwrite(name, text, 0)
	if err != nil {
		if mkdirErr := os.MkdirAll(path.Dir(name), runtimeMode); mkdirErr != nil {
			return mkdirErr
		}
		if removeErr := os.RemoveAll(name); removeErr != nil {
			return removeErr
		}
		err = overwrite(name, text, os.O_CREATE|os.O_EXCL)
	}
	return err
}

func overwrite(name, text string, flags int) error {
	file, err := os.OpenFile(name, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|flags, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", name)
	}
	if _, err := file.WriteString(text); err != nil {
		return err
	}
	if info.Size() > int64(len(text)) {
		return file.Truncate(int64(len(text)))
	}
	return nil
}

// renewBootID covers the kernel's boot id, which is drawn once per boot and so shared by all VMs of a template, with one of this machine.
func renewBootID() error {
	var bytes [16]byte
	rand.Read(bytes[:])
	bytes[6] = bytes[6]&0x0f | 0x40
	bytes[8] = bytes[8]&0x3f | 0x80
	digits := hex.EncodeToString(bytes[:])
	text := digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:] + "\n"
	if err := WriteFile(bootIDFile, text); err != nil {
		return err
	}
	if BootID() == strings.TrimSpace(text) {
		return nil // mounted by an earlier identity
	}
	if err := unix.Unmount(kernelsOwn, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("uncover boot id: %w", err)
	}
	if err := unix.Mount(bootIDFile, kernelsOwn, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cover boot id: %w", err)
	}
	return nil
}

// BootID is the boot identity that programs in the guest see.
func BootID() string {
	text, err := os.ReadFile(kernelsOwn)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
