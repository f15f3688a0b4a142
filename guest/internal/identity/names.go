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
	hostnameFile = "/etc/hostname"
	hostsFile    = "/etc/hosts"
	bootIDFile   = "/run/fuse/boot_id"
	kernelsOwn   = "/proc/sys/kernel/random/boot_id"
	runtimeMode  = 0o755
)

var errNotRegular = errors.New("not a regular file")

// copiesOfMachineID are kept by some images beside /etc/machine-id.
var copiesOfMachineID = []string{"/var/lib/dbus/machine-id", "/run/machine-id"}

// rename puts the machine's names in force everywhere that programs look for them.
func rename(id protocol.Identity) error {
	if err := unix.Sethostname([]byte(id.Hostname)); err != nil {
		return fmt.Errorf("set hostname: %w", err)
	}
	if err := renameInHosts(hostsFile, nameIn(hostnameFile), id.Hostname); err != nil {
		return err
	}
	for _, file := range []struct{ path, text string }{
		{hostnameFile, id.Hostname + "\n"},
		{"/etc/machine-id", id.MachineID + "\n"},
	} {
		if err := WriteFile(file.path, file.text); err != nil {
			return err
		}
	}
	for _, copied := range copiesOfMachineID {
		if err := overwriteCopy(copied, id.MachineID+"\n"); err != nil {
			return err
		}
	}
	if err := renewBootID(); err != nil {
		return err
	}
	// Last: a program that sees the new generation finds everything else new.
	return replaceFile(protocol.GenerationFile, strconv.FormatInt(id.Generation, 10)+"\n")
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
		return fmt.Errorf("%s: %w", name, errNotRegular)
	}
	if _, err := file.WriteString(text); err != nil {
		return err
	}
	if info.Size() > int64(len(text)) {
		return file.Truncate(int64(len(text)))
	}
	return nil
}

// replaceFile puts a whole new file in the place of the old one, so that readers see the one or the other and watchers a rename. Where there
// is no room for a second file, it is written in place.
func replaceFile(name, text string) error {
	temporary := name + ".new"
	if err := WriteFile(temporary, text); err != nil {
		os.Remove(temporary)
		return WriteFile(name, text)
	}
	if err := os.Rename(temporary, name); err != nil { // a directory lies there
		os.Remove(temporary)
		return WriteFile(name, text)
	}
	return nil
}

// overwriteCopy changes a regular file that exists; there need be none, and a link leads to a file that is changed itself.
func overwriteCopy(name, text string) error {
	err := overwrite(name, text, 0)
	for _, nothing := range []error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP, unix.EISDIR, unix.ENXIO, errNotRegular} {
		if errors.Is(err, nothing) {
			return nil
		}
	}
	return err
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
