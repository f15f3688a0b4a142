package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
)

func code(err error) fault.Code {
	var known *fault.Error
	if errors.As(err, &known) {
		return known.Code
	}
	return ""
}

func own(name string) Target {
	return Target{Path: name, Mode: 0o644, UID: os.Getuid(), GID: os.Getgid()}
}

func names(t *testing.T, directory string) []string {
	t.Helper()
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, entry := range entries {
		list = append(list, entry.Name())
	}
	return list
}

func TestAFileOfAnySizeComesBackWhole(t *testing.T) {
	root := t.TempDir()
	for _, size := range []int{0, 1, 4096, 16383, 16384, 16385, 65535, 65536, 65537, 1 << 20, 3<<20 + 1} {
		content := bytes.Repeat([]byte("0123456789abcdef\x00\xff\n"), size/19+1)[:size]
		sum := sha256.Sum256(content)
		written, err := Put(own(root+"/file"), iotest.HalfReader(bytes.NewReader(content)))
		if err != nil || written.SizeBytes != int64(size) || written.SHA256 != hex.EncodeToString(sum[:]) {
			t.Fatalf("%d: %+v, %v", size, written, err)
		}
		file, err := Open(root+"/file", false)
		if err != nil || file.Size != int64(size) {
			t.Fatalf("%d: %+v, %v", size, file, err)
		}
		back, err := io.ReadAll(file.Range(0, file.Size))
		file.Close()
		if err != nil || !bytes.Equal(back, content) {
			t.Fatalf("%d: other bytes, %v", size, err)
		}
	}
	if left := names(t, root); len(left) != 1 {
		t.Errorf("left behind: %q", left)
	}
}

func TestModeAndOwnerAreHonouredAndParentsAreMade(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root := t.TempDir()
	if _, err := Put(Target{Path: root + "/a/b/run.sh", Mode: 0o4750, UID: 1234, GID: 4321}, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]uint32{"/a": 0o755, "/a/b": 0o755, "/a/b/run.sh": 0o4750} {
		var info unix.Stat_t
		if err := unix.Lstat(root+name, &info); err != nil {
			t.Fatal(err)
		}
		if info.Mode&0o7777 != mode || info.Uid != 1234 || info.Gid != 4321 {
			t.Errorf("%s: %o, %d:%d", name, info.Mode&0o7777, info.Uid, info.Gid)
		}
	}
}

func TestStrangeNamesAreNothingSpecial(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"-rf", "a b", "new\nline", `quote"'`, "$(id)", strings.Repeat("n", 255), "e\u0301", "\u00e9", "🎉"} {
		if _, err := Put(own(filepath.Join(root, name)), strings.NewReader(name)); err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		file, err := Open(filepath.Join(root, name), false)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		file.Close()
	}
}

func TestOnlyFilesAndLinksAreReplaced(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mkfifo(root+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := unix.Mknod(root+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("pipe", root+"/link"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pipe", "null"} {
		before, err := os.Lstat(root + "/" + name)
		if err != nil {
			continue // it takes root to make a device
		}
		if _, err := Put(own(root+"/"+name), strings.NewReader("x")); code(err) != fault.Conflict {
			t.Errorf("%s: %v", name, err)
		}
		if after, err := os.Lstat(root + "/" + name); err != nil || after.Mode() != before.Mode() {
			t.Errorf("%s became %v, %v", name, after, err)
		}
	}
	followed := own(root + "/link")
	followed.Follow = true
	if _, err := Put(followed, strings.NewReader("x")); code(err) != fault.Conflict {
		t.Errorf("through a link: %v", err)
	}
	if _, err := Put(own(root+"/link"), strings.NewReader("x")); err != nil {
		t.Errorf("a link itself: %v", err)
	}
}

func TestAnUploadThatFailsLeavesTheOldFileAndNothingElse(t *testing.T) {
	root := t.TempDir()
	if _, err := Put(own(root+"/file"), strings.NewReader("old")); err != nil {
		t.Fatal(err)
	}
	wrong := own(root + "/file")
	wrong.SHA256 = strings.Repeat("0", 64)
	if _, err := Put(wrong, strings.NewReader("new")); code(err) != fault.InvalidArgument {
		t.Errorf("wrong sum: %v", err)
	}
	if _, err := Put(own(root+"/file"), iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("new")))); err == nil {
		t.Error("a cut upload was taken")
	}
	if text, _ := os.ReadFile(root + "/file"); string(text) != "old" {
		t.Errorf("holds %q", text)
	}
	if left := names(t, root); len(left) != 1 {
		t.Errorf("left behind: %q", left)
	}
}

func TestASymlinkAsTheTargetIsReplacedAndNotFollowed(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(root+"/victim", []byte("safe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("victim", root+"/link"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(root+"/link", false); code(err) != fault.Conflict {
		t.Errorf("read through a symlink: %v", err)
	}
	if _, err := Put(own(root+"/link"), strings.NewReader("new")); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(root + "/victim"); string(text) != "safe" {
		t.Errorf("victim holds %q", text)
	}
}

func TestWhatCannotBeReadIsNamed(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mkfifo(root+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fault.Code{
		root + "/none": fault.NotFound, root + "/pipe/x": fault.NotFound, root + "/pipe": fault.Conflict, root: fault.Conflict,
		"/dev/null": fault.Conflict, "relative": fault.InvalidArgument, "": fault.InvalidArgument, "/": fault.InvalidArgument,
		"/a/..": fault.InvalidArgument, "/a\x00b": fault.InvalidArgument, "/" + strings.Repeat("n", 256): fault.InvalidArgument,
		"/" + strings.Repeat("d/", 3000): fault.InvalidArgument,
	} {
		file, err := Open(name, false)
		if code(err) != want {
			t.Errorf("%.40q: %v", name, err)
		}
		if err == nil {
			file.Close()
		}
	}
}

func TestWhereNoFileCanBeIsNamed(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(root+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(root+"/dir", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fault.Code{
		root + "/dir": fault.Conflict, root + "/file/x": fault.Conflict, root + "/file/x/y": fault.Conflict, "/proc/x": fault.Conflict,
		root + "/" + strings.Repeat("n", 256): fault.InvalidArgument, "x": fault.InvalidArgument,
	} {
		if _, err := Put(own(name), strings.NewReader("x")); code(err) != want {
			t.Errorf("%.60q: %v", name, err)
		}
	}
	if left := names(t, root); len(left) != 2 {
		t.Errorf("left behind: %q", left)
	}
}

func TestAFullDiskIsAConflictAndLeavesNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root := t.TempDir()
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("needs leave to mount: ", err)
	}
	defer unix.Unmount(root, unix.MNT_DETACH)
	_, err := Put(own(root+"/big"), bytes.NewReader(make([]byte, 1<<20)))
	var known *fault.Error
	if !errors.As(err, &known) || known.Code != fault.Conflict || known.Details["reason"] != "no_space" {
		t.Errorf("%v", err)
	}
	if left := names(t, root); left != nil {
		t.Errorf("left behind: %q", left)
	}
}
