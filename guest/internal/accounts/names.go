package accounts

import (
	"strconv"
	"strings"
)

const maxNames = 65_536

// Names tells what uids and gids are called.
type Names struct {
	users, groups map[uint32]string
}

// User is "" for a uid without an entry.
func (n *Names) User(uid uint32) string { return n.users[uid] }

// Group is "" for a gid without an entry.
func (n *Names) Group(gid uint32) string { return n.groups[gid] }

// Names are those of this moment; they are read again only when a file has changed.
func (d *Directory) Names() *Names {
	d.mu.Lock()
	defer d.mu.Unlock()
	version := [2]fileVersion{versionOf(d.files.Passwd), versionOf(d.files.Group)}
	if d.names == nil || version != d.namesVersion {
		d.namesVersion = version
		d.names = &Names{users: namesIn(d.files.Passwd), groups: namesIn(d.files.Group)}
	}
	return d.names
}

// namesIn reads `name:x:id:…` lines; the first of an id counts, as it does for the C library.
func namesIn(file string) map[uint32]string {
	names := map[uint32]string{}
	eachLine(file, func(line string) bool {
		fields := strings.SplitN(line, ":", 4)
		if len(fields) < 4 || fields[0] == "" {
			return true
		}
		id, err := strconv.ParseUint(fields[2], 10, 32)
		if _, taken := names[uint32(id)]; err == nil && !taken {
			names[uint32(id)] = strings.ToValidUTF8(fields[0], "\uFFFD")
		}
		return len(names) < maxNames
	})
	return names
}
