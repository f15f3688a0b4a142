package tree

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

// sizes around every buffer there is.
var sizes = []int{0, 1, 4 << 10, 16<<10 - 1, 16 << 10, 16<<10 + 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20, 32<<20 - 1, 32 << 20, 32<<20 + 1}

func manifest(t *testing.T, root string) string {
	t.Helper()
	return sh(t, `find . -printf '%P %y %m %U %G %T@ %l %n\n' | sort; find . -type f -print0 | sort -z | xargs -0 sha256sum`, root)
}

// everything makes a directory with one of each kind.
func everything(t *testing.T, root string) {
	t.Helper()
	for i, name := range oddNames {
		write(t, root+"/odd/"+name, strings.Repeat("x", i*1000))
	}
	sh(t, `mkdir -p deep/er empty; echo 1 > deep/er/f; chmod 4755 deep/er/f; chown 5:6 deep/er; chmod 1777 deep
		chown 7:8 deep/er/f; chmod 4755 deep/er/f; ln -s deep/er/f link; ln -s nowhere dangling; ln -s /etc absolute; mkfifo pipe; chmod 611 pipe; mknod null c 1 3
		ln deep/er/f hard; truncate -s 64M sparse; printf end >> sparse; setfattr -n user.note -v hello link 2>/dev/null || true
		touch -h -d 2001-01-01T00:00:00.123456789 link deep/er/f pipe; touch -d 2002-02-02T00:00:00 deep empty`, root)
	unix.Setxattr(root+"/deep/er/f", "user.note", []byte("hello"), 0)
}

func TestACopyIsAlikeInEverything(t *testing.T) {
	tree, root := guest(t)
	os.Mkdir(root+"/a", 0o700)
	everything(t, root+"/a")
	_, err := tree.Copy(background, protocol.TransferRequest{From: root + "/a", To: root + "/b"})
	refused(t, err, fault.Conflict, paths.IsADirectory)
	must[protocol.FileInfo](t)(tree.Copy(background, protocol.TransferRequest{From: root + "/a", To: root + "/b", Recursive: true}))
	if a, b := manifest(t, root+"/a"), manifest(t, root+"/b"); a != b {
		t.Errorf("%s\n---\n%s", a, b)
	}
	if blocks := sh(t, "stat -c %b sparse", root+"/b"); len(blocks) > 5 {
		t.Errorf("a sparse file took %s blocks", blocks)
	}
	value := make([]byte, 10)
	if n, err := unix.Getxattr(root+"/b/deep/er/f", "user.note", value); err != nil || string(value[:n]) != "hello" {
		t.Errorf("%q, %v", value, err)
	}
	if left := sh(t, "find . -name '.fuse-*'", root); left != "" {
		t.Error(left)
	}
}

func TestFilesOfAllSizesAreCopiedByteForByte(t *testing.T) {
	tree, root := guest(t)
	mountTmpfs(t, root+"/other", "size=200m")
	random := make([]byte, sizes[len(sizes)-1])
	rand.Read(random)
	for i := range 256 {
		random[i] = byte(i)
	}
	for _, size := range sizes {
		name := fmt.Sprintf("%s/%d", root, size)
		if err := os.WriteFile(name, random[:size], 0o640); err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{name + "-copy", root + "/other/copy"} {
			must[protocol.FileInfo](t)(tree.Copy(background, protocol.TransferRequest{From: name, To: to, Overwrite: true}))
			if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, random[:size]) {
				t.Errorf("%s: %d other bytes, %v", to, len(got), err)
			}
		}
		must[protocol.FileInfo](t)(tree.Move(background, protocol.TransferRequest{From: name, To: root + "/other/moved", Overwrite: true}))
		if got, err := os.ReadFile(root + "/other/moved"); err != nil || !bytes.Equal(got, random[:size]) {
			t.Errorf("moved %d: %d other bytes, %v", size, len(got), err)
		}
		if _, err := os.Stat(name); !os.IsNotExist(err) {
			t.Error("the source is still there")
		}
	}
}

func TestFilesOfPseudoFileSystemsAreCopiedByReading(t *testing.T) {
	tree, root := guest(t)
	for _, name := range []string{"/proc/version", "/sys/kernel/notes", "/proc/sys/kernel/ostype"} {
		want, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		must[protocol.FileInfo](t)(tree.Copy(background, protocol.TransferRequest{From: name, To: root + "/c", Overwrite: true}))
		if got, _ := os.ReadFile(root + "/c"); !bytes.Equal(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestAFileIsReplacedOnlyWhenAsked(t *testing.T) {
	tree, root := guest(t)
	for _, do := range []func(context.Context, protocol.TransferRequest) (protocol.FileInfo, error){tree.Copy, tree.Move} {
		write(t, root+"/a", "new")
		write(t, root+"/b", "old")
		write(t, root+"/d/x", "")
		_, err := do(background, protocol.TransferRequest{From: root + "/a", To: root + "/b"})
		refused(t, err, fault.Conflict, paths.Exists)
		if text, _ := os.ReadFile(root + "/b"); string(text) != "old" {
			t.Errorf("%s", text)
		}
		_, err = do(background, protocol.TransferRequest{From: root + "/a", To: root + "/d", Overwrite: true})
		refused(t, err, fault.Conflict, paths.IsADirectory)
		_, err = do(background, protocol.TransferRequest{From: root + "/d", To: root + "/b", Overwrite: true, Recursive: true})
		refused(t, err, fault.Conflict, paths.NotADirectory)
		must[protocol.FileInfo](t)(do(background, protocol.TransferRequest{From: root + "/a", To: root + "/b", Overwrite: true}))
		if text, _ := os.ReadFile(root + "/b"); string(text) != "new" {
			t.Errorf("%s", text)
		}
	}
}

func TestADirectoryIsReplacedAsAWhole(t *testing.T) {
	tree, root := guest(t)
	for _, do := range []func(context.Context, protocol.TransferRequest) (protocol.FileInfo, error){tree.Copy, tree.Move} {
		write(t, root+"/a/new", "")
		write(t, root+"/b/old", "")
		_, err := do(background, protocol.TransferRequest{From: root + "/a", To: root + "/b", Recursive: true})
		refused(t, err, fault.Conflict, paths.Exists)
		must[protocol.FileInfo](t)(do(background, protocol.TransferRequest{From: root + "/a", To: root + "/b", Recursive: true, Overwrite: true}))
		if got := sh(t, "ls -A b", root); got != "new\n" {
			t.Errorf("%q", got)
		}
	}
	if got := sh(t, "ls -A", root); got != "b\n" {
		t.Errorf("%q", got)
	}
}

func TestNothingGoesIntoItself(t *testing.T) {
	tree, root := guest(t)
	write(t, root+"/a/b/c", "1")
	os.Symlink("a/b", root+"/l")
	for _, do := range []func(context.Context, protocol.TransferRequest) (protocol.FileInfo, error){tree.Copy, tree.Move} {
		for from, to := range map[string]string{"/a": "/a/x", "/a/": "/a/b/x", "/a/.": "/l/x", "/a/b": "/a"} {
			_, err := do(background, protocol.TransferRequest{From: root + from, To: root + to, Recursive: true, Overwrite: true})
			refused(t, err, fault.InvalidArgument, "")
		}
		_, err := do(background, protocol.TransferRequest{From: "/", To: root + "/x", Recursive: true})
		refused(t, err, fault.InvalidArgument, "")
	}
	if got := sh(t, "find . -mindepth 1 | sort", root); got != "./a\n./a/b\n./a/b/c\n./l\n" {
		t.Errorf("%q", got)
	}
}

func TestTwoNamesOfOneFileBecomeOne(t *testing.T) {
	tree, root := guest(t)
	write(t, root+"/d/a", "1")
	sh(t, "ln d/a d/b; ln -s d l", root)
	must[protocol.FileInfo](t)(tree.Move(background, protocol.TransferRequest{From: root + "/d/a", To: root + "/l/a", Overwrite: true}))
	if got := sh(t, "ls d", root); got != "a\nb\n" {
		t.Errorf("%q", got)
	}
	must[protocol.FileInfo](t)(tree.Move(background, protocol.TransferRequest{From: root + "/d/a", To: root + "/l/b", Overwrite: true}))
	if got := sh(t, "ls d", root); got != "b\n" {
		t.Errorf("%q", got)
	}
}

func TestAMoveAcrossFileSystemsLeavesNothingBehind(t *testing.T) {
	tree, root := guest(t)
	os.Mkdir(root+"/a", 0o755)
	everything(t, root+"/a")
	want := manifest(t, root+"/a")
	mountTmpfs(t, root+"/other", "size=64m")
	must[protocol.FileInfo](t)(tree.Move(background, protocol.TransferRequest{From: root + "/a", To: root + "/other/a"}))
	if got := manifest(t, root+"/other/a"); got != want {
		t.Errorf("%s\n---\n%s", want, got)
	}
	if got := sh(t, "ls -A; ls -A other", root); got != "other\na\n" {
		t.Errorf("%q", got)
	}
	_, err := tree.Move(background, protocol.TransferRequest{From: root + "/other", To: root + "/elsewhere"})
	refused(t, err, fault.Conflict, "")
}

func TestACopyThatDoesNotFitLeavesNothing(t *testing.T) {
	tree, root := guest(t)
	write(t, root+"/d/small", "1")
	write(t, root+"/d/large", strings.Repeat("x", 3<<20))
	mountTmpfs(t, root+"/other", "size=2m")
	write(t, root+"/other/there", "old")
	for _, request := range []protocol.TransferRequest{
		{From: root + "/d", To: root + "/other/d", Recursive: true},
		{From: root + "/d/large", To: root + "/other/there", Overwrite: true},
	} {
		_, err := tree.Copy(background, request)
		refused(t, err, fault.Conflict, paths.NoSpace)
		_, err = tree.Move(background, request)
		refused(t, err, fault.Conflict, paths.NoSpace)
	}
	if got := sh(t, "ls -A other; cat other/there; ls d", root); got != "there\noldlarge\nsmall\n" {
		t.Errorf("%q", got)
	}
}

func TestACopyEndsWithItsRequest(t *testing.T) {
	tree, root := guest(t)
	write(t, root+"/a/b", "")
	ended, cancel := context.WithCancel(background)
	cancel()
	if _, err := tree.Copy(ended, protocol.TransferRequest{From: root + "/a", To: root + "/c", Recursive: true}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := sh(t, "ls -A", root); got != "a\n" {
		t.Errorf("%q", got)
	}
}
