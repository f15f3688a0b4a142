package accounts

import (
	"sync"

	"golang.org/x/sys/unix"
)

const maxRemembered = 64

// Directory answers look-ups from memory for as long as neither file changes.
type Directory struct {
	files Files

	mu      sync.Mutex
	version [2]fileVersion
	known   map[string]Account

	namesVersion [2]fileVersion
	names        *Names
}

// fileVersion changes with every change of a file: the change time is the kernel's own, no program sets it.
type fileVersion struct {
	device, inode uint64
	size          int64
	changed       unix.Timespec
}

func NewDirectory(files Files) *Directory {
	return &Directory{files: files, known: map[string]Account{}}
}

// Lookup finds a user by name or by decimal uid; "" is root. A uid without an entry is a user of that uid and gid; root exists always.
func (d *Directory) Lookup(user string) (Account, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	version := [2]fileVersion{versionOf(d.files.Passwd), versionOf(d.files.Group)}
	if version != d.version || len(d.known) >= maxRemembered {
		d.version, d.known = version, map[string]Account{}
	}
	if account, found := d.known[user]; found {
		return account, nil
	}
	account, err := d.files.find(user)
	if err == nil {
		d.known[user] = account
	}
	return account, err
}

func versionOf(name string) fileVersion {
	var info unix.Stat_t
	if unix.Stat(name, &info) != nil {
		return fileVersion{}
	}
	return fileVersion{device: info.Dev, inode: info.Ino, size: info.Size, changed: info.Ctim}
}
