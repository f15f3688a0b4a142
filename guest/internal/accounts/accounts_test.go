package accounts

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func files(t *testing.T, passwd, group string) Files {
	t.Helper()
	made := Files{Passwd: filepath.Join(t.TempDir(), "passwd"), Group: filepath.Join(t.TempDir(), "group")}
	for name, text := range map[string]string{made.Passwd: passwd, made.Group: group} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return made
}

func write(t *testing.T, passwd, group string) *Directory {
	t.Helper()
	return NewDirectory(files(t, passwd, group))
}

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\n# comment\nbroken:x:abc\ndev:x:1000:1001:Dev,,,:/home/dev:/bin/sh\nodd:x:7:7:odd:relative:/bin/sh\n"
	group  = "root:x:0:\ndev:x:1001:dev\nsudo:x:27:root,dev\nbad:x:-1:dev\nother:x:50:devil\n"
)

func TestAUserIsFoundByNameAndByNumberWithItsGroups(t *testing.T) {
	directory := write(t, passwd, group)
	want := Account{Name: "dev", UID: 1000, GID: 1001, Groups: []uint32{1001, 27}, Home: "/home/dev", Shell: "/bin/sh"}
	for _, user := range []string{"dev", "1000"} {
		if got, err := directory.Lookup(user); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", user, got, err)
		}
	}
}

func TestNobodyNamedIsRoot(t *testing.T) {
	got, err := write(t, passwd, group).Lookup("")
	if err != nil || got.UID != 0 || got.Home != "/root" || !reflect.DeepEqual(got.Groups, []uint32{0, 27}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRootExistsWithoutAnyFile(t *testing.T) {
	got, err := NewDirectory(Files{Passwd: "/nonexistent", Group: "/nonexistent"}).Lookup("root")
	if err != nil || got.UID != 0 || got.Home != "/root" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestANumberWithoutAnEntryIsAUserOfItsOwn(t *testing.T) {
	got, err := write(t, passwd, group).Lookup("4242")
	if err != nil || !reflect.DeepEqual(got, Account{Name: "4242", UID: 4242, GID: 4242, Groups: []uint32{4242}, Home: "/", Shell: "/bin/sh"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestUnknownNamesAndImpossibleNumbersAreRefused(t *testing.T) {
	directory := write(t, passwd, group)
	for _, user := range []string{"nobody2", "broken", "-1", "4294967295", "4294967296", "1e3", "dev:x"} {
		if got, err := directory.Lookup(user); err == nil {
			t.Errorf("%q is %+v", user, got)
		}
	}
}

func TestAHomeThatIsNoPathIsTheRoot(t *testing.T) {
	if got, err := write(t, passwd, group).Lookup("odd"); err != nil || got.Home != "/" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFilesThatNeverEndAreNotRead(t *testing.T) {
	if got, err := NewDirectory(Files{Passwd: "/dev/zero", Group: "/dev/zero"}).Lookup("0"); err != nil || got.UID != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestAChangedFileIsReadAgain(t *testing.T) {
	made := files(t, passwd, group)
	directory := NewDirectory(made)
	for uid, name := range []string{"zero", "one", "two"} {
		line := fmt.Sprintf("someone:x:%d:%d::/home/%s:/bin/sh\n", uid, uid, name)
		if err := os.WriteFile(made.Passwd+".new", []byte(line), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(made.Passwd+".new", made.Passwd); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := directory.Lookup("someone"); err != nil || got.UID != uint32(uid) || got.Home != "/home/"+name {
				t.Errorf("%+v, %v", got, err)
			}
		}
	}
}

func FuzzLookup(f *testing.F) {
	f.Add(passwd, group, "dev")
	f.Add(strings.Repeat("x", 70_000), ":::", "1")
	f.Fuzz(func(t *testing.T, passwd, group, user string) {
		account, err := write(t, passwd, group).Lookup(user)
		if err == nil && (!strings.HasPrefix(account.Home, "/") || len(account.Groups) == 0 || len(account.Groups) > maxGroups) {
			t.Errorf("%+v", account)
		}
	})
}
