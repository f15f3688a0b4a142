// Package accounts finds users and groups in the image's own /etc/passwd and /etc/group. Both files are the guest's: they are read up to a
// bound and lines that do not parse are passed over.
package accounts

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	maxFileBytes = 1 << 20
	maxGroups    = 256
)

// Account is what a process of this user runs as.
type Account struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []uint32
	Home   string
	Shell  string
}

// Files names the two databases.
type Files struct{ Passwd, Group string }

var System = Files{Passwd: "/etc/passwd", Group: "/etc/group"}

// find finds a user by name or by decimal uid; "" is root. A uid without an entry is a user of that uid and gid; root exists always.
func (f Files) find(user string) (Account, error) {
	if user == "" {
		user = "root"
	}
	uid, err := strconv.ParseUint(user, 10, 32)
	numeric := err == nil && uid != 1<<32-1
	account, found := f.passwd(func(name string, id uint32) bool {
		return name == user || (numeric && id == uint32(uid))
	})
	switch {
	case found:
	case numeric:
		account = Account{Name: user, UID: uint32(uid), GID: uint32(uid), Home: "/"}
	case user == "root":
		account = Account{Name: "root", Home: "/root"}
	default:
		return Account{}, fmt.Errorf("no user %q in the image's /etc/passwd", user)
	}
	if !strings.HasPrefix(account.Shell, "/") {
		account.Shell = "/bin/sh"
	}
	account.Groups = f.groupsOf(account)
	return account, nil
}

func (f Files) passwd(wanted func(name string, uid uint32) bool) (Account, bool) {
	var account Account
	found := false
	eachLine(f.Passwd, func(line string) bool {
		fields := strings.Split(line, ":")
		if len(fields) < 6 {
			return true
		}
		uid, uidErr := strconv.ParseUint(fields[2], 10, 32)
		gid, gidErr := strconv.ParseUint(fields[3], 10, 32)
		if uidErr != nil || gidErr != nil || !wanted(fields[0], uint32(uid)) {
			return true
		}
		account = Account{Name: fields[0], UID: uint32(uid), GID: uint32(gid), Home: fields[5]}
		if len(fields) > 6 {
			account.Shell = fields[6]
		}
		found = true
		return false
	})
	if !strings.HasPrefix(account.Home, "/") {
		account.Home = "/"
	}
	return account, found
}

func (f Files) groupsOf(account Account) []uint32 {
	groups := []uint32{account.GID}
	eachLine(f.Group, func(line string) bool {
		fields := strings.Split(line, ":")
		if len(fields) < 4 || !slices.Contains(strings.Split(fields[3], ","), account.Name) {
			return true
		}
		gid, err := strconv.ParseUint(fields[2], 10, 32)
		if err == nil && !slices.Contains(groups, uint32(gid)) {
			groups = append(groups, uint32(gid))
		}
		return len(groups) < maxGroups
	})
	return groups
}

// eachLine calls visit with every line until it returns false. A file that is missing or no regular file has no lines.
func eachLine(path string, visit func(line string) bool) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	lines := bufio.NewScanner(io.LimitReader(file, maxFileBytes))
	for lines.Scan() {
		if !visit(lines.Text()) {
			return
		}
	}
}
