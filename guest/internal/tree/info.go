package tree

import (
	"fmt"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/accounts"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

const timeFormat = "2006-01-02T15:04:05.000Z"

var typeNames = map[uint32]string{
	unix.S_IFREG: "file", unix.S_IFDIR: "directory", unix.S_IFLNK: "symlink", unix.S_IFIFO: "fifo", unix.S_IFSOCK: "socket",
	unix.S_IFBLK: "block_device", unix.S_IFCHR: "character_device",
}

// Stat tells about a path; a symlink itself unless it is to be followed.
func (t *Tree) Stat(request protocol.StatRequest) (protocol.FileInfo, error) {
	name, err := paths.Clean("path", request.Path)
	if err != nil {
		return protocol.FileInfo{}, err
	}
	var info unix.Stat_t
	if request.Follow {
		err = retry(func() error { return unix.Stat(name, &info) })
	} else {
		info, err = statAt(unix.AT_FDCWD, name)
	}
	if err != nil {
		return protocol.FileInfo{}, paths.Fault(name, err)
	}
	return describe(unix.AT_FDCWD, name, name, &info, t.Users.Names()), nil
}

// about is the answer of operations that made something.
func (t *Tree) about(name string) (protocol.FileInfo, error) {
	return t.Stat(protocol.StatRequest{Path: name})
}

// describe tells about the entry `name` of a directory, which is known as `full`.
func describe(dir int, name, full string, info *unix.Stat_t, names *accounts.Names) protocol.FileInfo {
	shown, good := paths.Shown(full)
	about := protocol.FileInfo{
		Path: shown, Name: path.Base(shown), Type: typeNames[info.Mode&unix.S_IFMT], SizeBytes: info.Size,
		Mode: fmt.Sprintf("%04o", info.Mode&0o7777), UID: info.Uid, GID: info.Gid, User: names.User(info.Uid), Group: names.Group(info.Gid),
		ModifiedAt: shownTime(info.Mtim), BadName: !good,
	}
	if info.Mode&unix.S_IFMT == unix.S_IFLNK {
		about.Target, _ = paths.Shown(readlinkAt(dir, name))
	}
	return about
}

// readlinkAt is "" when it is no symlink any more.
func readlinkAt(dir int, name string) string {
	buffer := make([]byte, paths.MaxBytes)
	n, err := unix.Readlinkat(dir, name, buffer)
	if err != nil {
		return ""
	}
	return string(buffer[:n])
}

// shownTime is bounded to the years that the form has digits for.
func shownTime(at unix.Timespec) string {
	const first, last = -62_135_596_800, 253_402_300_799
	return time.Unix(min(max(at.Sec, first), last), at.Nsec).UTC().Format(timeFormat)
}

// AnswerBytes is about what a text of UTF-8 costs as JSON.
func AnswerBytes(text string) int {
	bytes := len(text)
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			bytes += 5
		}
	}
	return bytes
}
