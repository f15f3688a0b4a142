package tree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/accounts"
	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

var (
	background = context.Background()
	oddNames   = []string{
		"-rf", "a b", "new\nline", `quote"'`, "$(id)", "`id`", strings.Repeat("n", 255), "e\u0301", "\u00e9", "🎉", "tab\t", "back\\slash", " ", "*", "[x]", "...",
	}
)

// guest is a tree with a passwd file of its own, and an empty directory.
func guest(t *testing.T) (*Tree, string) {
	t.Helper()
	root := t.TempDir()
	databases := t.TempDir()
	write(t, databases+"/passwd", "root:x:0:0:r:/root:/bin/sh\ndev:x:1234:2345:d:/home/dev:/bin/sh\n")
	write(t, databases+"/group", "root:x:0:\ndevs:x:2345:\n")
	return &Tree{Users: accounts.NewDirectory(accounts.Files{Passwd: databases + "/passwd", Group: databases + "/group"})}, root
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func refused(t *testing.T, err error, code fault.Code, reason string) *fault.Error {
	t.Helper()
	var known *fault.Error
	if !errors.As(err, &known) || known.Code != code || known.Details["reason"] != reason {
		t.Errorf("%v, want %s %s", err, code, reason)
		return &fault.Error{}
	}
	return known
}

func intp(n int) *int      { return &n }
func idp(n uint32) *uint32 { return &n }
func sh(t *testing.T, script, dir string) string {
	t.Helper()
	command := exec.Command("sh", "-ec", script)
	command.Dir = dir
	text, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, text)
	}
	return string(text)
}

func shownNames(root string, listing protocol.Listing) []string {
	var names []string
	for _, entry := range listing.Entries {
		names = append(names, strings.TrimPrefix(entry.Path, root+"/"))
	}
	return names
}

func TestStatTellsWhatThereIs(t *testing.T) {
	tree, root := guest(t)
	write(t, root+"/a", "12345")
	sh(t, "chmod 4751 a; chown 1234:2345 a; chmod 4751 a; touch -d 2001-02-03T04:05:06.789Z a; ln -s a link; mkfifo pipe; ln -s nowhere dangling", root)
	want := protocol.FileInfo{
		Path: root + "/a", Name: "a", Type: "file", SizeBytes: 5, Mode: "4751", UID: 1234, GID: 2345, User: "dev", Group: "devs",
		ModifiedAt: "2001-02-03T04:05:06.789Z",
	}
	if got := must[protocol.FileInfo](t)(tree.Stat(protocol.StatRequest{Path: root + "//./a"})); got != want {
		t.Errorf("%+v", got)
	}
	link := must[protocol.FileInfo](t)(tree.Stat(protocol.StatRequest{Path: root + "/link"}))
	if link.Type != "symlink" || link.Target != "a" {
		t.Errorf("%+v", link)
	}
	followed := must[protocol.FileInfo](t)(tree.Stat(protocol.StatRequest{Path: root + "/link", Follow: true}))
	if followed.Type != "file" || followed.Name != "link" || followed.SizeBytes != 5 {
		t.Errorf("%+v", followed)
	}
	for name, kind := range map[string]string{root: "directory", root + "/pipe": "fifo", "/dev/null": "character_device", "/": "directory"} {
		if got := must[protocol.FileInfo](t)(tree.Stat(protocol.StatRequest{Path: name})); got.Type != kind {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, reason := range map[string]string{root + "/a/b": paths.NotADirectory} {
		_, err := tree.Stat(protocol.StatRequest{Path: name})
		refused(t, err, fault.Conflict, reason)
	}
	_, err := tree.Stat(protocol.StatRequest{Path: root + "/nope"})
	refused(t, err, fault.NotFound, "")
	_, err = tree.Stat(protocol.StatRequest{Path: root + "/dangling", Follow: true})
	refused(t, err, fault.NotFound, "")
	_, err = tree.Stat(protocol.StatRequest{Path: root + "/" + strings.Repeat("x", 256)})
	refused(t, err, fault.InvalidArgument, "")
}

func TestAListIsInTheBytewiseOrderOfItsPathsAndPagesAnywhere(t *testing.T) {
	tree, root := guest(t)
	for _, name := range []string{"a/x", "a/b/c", "a-b", "a.txt", "a0", "B", ".hidden", "empty/"} {
		if strings.HasSuffix(name, "/") {
			os.Mkdir(root+"/"+name, 0o755)
		} else {
			write(t, root+"/"+name, name)
		}
	}
	for _, name := range oddNames {
		write(t, root+"/odd/"+name, "")
	}
	os.Symlink("..", root+"/a/loop")
	os.Symlink("/etc", root+"/etc")
	all := must[protocol.Listing](t)(tree.List(background, protocol.ListRequest{Path: root, Recursive: true}))
	names := shownNames(root, all)
	found := strings.Split(strings.TrimSuffix(sh(t, "find . -mindepth 1 -printf '%P\\0'", root), "\x00"), "\x00")
	slices.Sort(found)
	if !reflect.DeepEqual(names, found) || all.Truncated {
		t.Errorf("%q\n%q", names, found)
	}
	for _, limit := range []int{1, 2, 3, 7, len(names) - 1, len(names)} {
		var paged []string
		after := ""
		for page := 0; page <= len(names); page++ {
			part := must[protocol.Listing](t)(tree.List(background, protocol.ListRequest{Path: root, Recursive: true, Limit: &limit, After: after}))
			if len(part.Entries) > limit {
				t.Fatalf("%d entries in a page of %d", len(part.Entries), limit)
			}
			paged = append(paged, shownNames(root, part)...)
			if !part.Truncated {
				break
			}
			after = part.Entries[len(part.Entries)-1].Path
		}
		if !reflect.DeepEqual(paged, names) {
			t.Errorf("pages of %d: %q", limit, paged)
		}
	}
	flat := must[protocol.Listing](t)(tree.List(background, protocol.ListRequest{Path: root + "/a"}))
	if got := shownNames(root+"/a", flat); !reflect.DeepEqual(got, []string{"b", "loop", "x"}) {
		t.Errorf("%q", got)
	}
	two := must[protocol.Listing](t)(tree.List(background, protocol.ListRequest{Path: root + "/a/", Recursive: true, MaxDepth: intp(1)}))
	if !reflect.DeepEqual(two, flat) {
		t.Errorf("%+v", two)
	}
	followed := must[protocol.Listing](t)(tree.List(background, protocol.ListRequest{Path: root + "/a/loop", Limit: intp(1)}))
	if got := followed.Entries[0].Path; got != root+"/a/loop/.hidden" || !followed.Truncated {
		t.Errorf("%q", got)
	}
}

func TestAListRefusesWhatItCannotList(t *testing.T) {
	tree, root := guest(t)
	write(t, root+"/a", "")
	unix.Mkfifo(root+"/pipe", 0o600)
	for _, name := range []string{"/a", "/pipe"} {
		_, err := tree.List(background, protocol.ListRequest{Path: root + name})
		refused(t, err, fault.Conflict, paths.NotADirectory)
	}
	_, err := tree.List(background, protocol.ListRequest{Path: root + "/nope"})
	refused(t, err, fault.NotFound, "")
	for _, bad := range []protocol.ListRequest{{Path: "x"}, {Path: root, Limit: intp(0)}, {Path: root, Limit: intp(10_001)}, {Path: root, MaxDepth: intp(129)}} {
		_, err := tree.List(background, bad)
		refused(t, err, fault.InvalidArgument, "")
	}
	ended, cancel := context.WithCancel(background)
	cancel()
	if _, err := tree.List(ended, protocol.ListRequest{Path: root}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestNamesThatAreNotUTF8AreShownAndMarked(t *testing.T) {
	tree, root := guest(t)
	write(t, root+"/bad\xff", "")
	write(t, root+"/good", "")
	listing := must[protocol.Listing](t)(tree.List(background, protocol.ListRequest{Path: root}))
	if len(listing.Entries) != 2 || listing.Entries[0].Name != "bad\uFFFD" || !listing.Entries[0].BadName || listing.Entries[1].BadName {
		t.Errorf("%+v", listing)
	}
}

func TestALargeDirectoryIsPagedWithBoundedMemory(t *testing.T) {
	tree, root := guest(t)
	for i := range 30_000 {
		os.WriteFile(fmt.Sprintf("%s/%05d", root, i), nil, 0o600)
	}
	seen, after := 0, ""
	for {
		part := must[protocol.Listing](t)(tree.List(background, protocol.ListRequest{Path: root, Recursive: true, After: after}))
		for _, entry := range part.Entries {
			if entry.Name != fmt.Sprintf("%05d", seen) {
				t.Fatalf("%s where %05d should be", entry.Name, seen)
			}
			seen++
		}
		if !part.Truncated {
			break
		}
		after = part.Entries[len(part.Entries)-1].Path
	}
	if seen != 30_000 {
		t.Errorf("%d entries", seen)
	}
}

func TestWhatListsHoldStaysBoundedThroughManyFullLevels(t *testing.T) {
	_, root := guest(t)
	at := root
	for range 40 {
		at += "/d"
		os.Mkdir(at, 0o755)
		for i := range 200 {
			os.WriteFile(fmt.Sprintf("%s/e%03d", at, i), nil, 0o600)
		}
	}
	tree, _ := guest(t)
	limit := 50
	part := must[protocol.Listing](t)(tree.List(background, protocol.ListRequest{Path: root, Recursive: true, Limit: &limit}))
	if len(part.Entries) != limit || !part.Truncated || part.Entries[39].Path != at || part.Entries[40].Path != at+"/e000" {
		t.Errorf("%d entries, %+v", len(part.Entries), part.Entries[len(part.Entries)-1])
	}
	l := lister{limit: limit, depth: 100, ctx: background, names: tree.Users.Names()}
	dir, _ := openDirectory(unix.AT_FDCWD, root, 0)
	defer unix.Close(dir)
	if err := l.directory(dir, root); err != nil || l.held > 5*limit+5000 {
		t.Errorf("%d keys are held, %v", l.held, err)
	}
}

func TestMkdirMakesParentsWithTheirOwner(t *testing.T) {
	tree, root := guest(t)
	made := must[protocol.FileInfo](t)(tree.Mkdir(protocol.MkdirRequest{Path: root + "/a/b/c", Parents: true, Mode: "2750", Owner: protocol.Owner{User: "dev"}}))
	if made.Mode != "2750" || made.UID != 1234 || made.GID != 2345 {
		t.Errorf("%+v", made)
	}
	parent := must[protocol.FileInfo](t)(tree.Stat(protocol.StatRequest{Path: root + "/a"}))
	if parent.Mode != "0755" || parent.UID != 1234 {
		t.Errorf("%+v", parent)
	}
	again := must[protocol.FileInfo](t)(tree.Mkdir(protocol.MkdirRequest{Path: root + "/a/b/c", Parents: true, Mode: "0700"}))
	if again != made {
		t.Errorf("%+v", again)
	}
	_, err := tree.Mkdir(protocol.MkdirRequest{Path: root + "/a/b"})
	refused(t, err, fault.Conflict, paths.Exists)
	_, err = tree.Mkdir(protocol.MkdirRequest{Path: root + "/x/y"})
	refused(t, err, fault.NotFound, "")
	write(t, root+"/file", "")
	for _, name := range []string{"/file", "/file/x"} {
		_, err = tree.Mkdir(protocol.MkdirRequest{Path: root + name, Parents: true})
		refused(t, err, fault.Conflict, paths.NotADirectory)
	}
	for _, bad := range []protocol.MkdirRequest{{Path: root + "/m", Mode: "8"}, {Path: root + "/m", Mode: "17777"}, {Path: root + "/m", Owner: protocol.Owner{User: "nobody-here"}}, {Path: root + "/m", Owner: protocol.Owner{User: "dev", UID: idp(1)}}} {
		_, err := tree.Mkdir(bad)
		refused(t, err, fault.InvalidArgument, "")
	}
	plain := must[protocol.FileInfo](t)(tree.Mkdir(protocol.MkdirRequest{Path: root + "/plain"}))
	if plain.Mode != "0755" || plain.UID != 0 {
		t.Errorf("%+v", plain)
	}
}

func TestSymlinksLeadWhereTheySay(t *testing.T) {
	tree, root := guest(t)
	made := must[protocol.FileInfo](t)(tree.Symlink(protocol.SymlinkRequest{Path: root + "/l", Target: "../no where\n"}))
	if made.Type != "symlink" || made.Target != "../no where\n" {
		t.Errorf("%+v", made)
	}
	_, err := tree.Symlink(protocol.SymlinkRequest{Path: root + "/l", Target: "x"})
	refused(t, err, fault.Conflict, paths.Exists)
	for _, target := range []string{"", "a\x00b", strings.Repeat("x", 4096)} {
		_, err = tree.Symlink(protocol.SymlinkRequest{Path: root + "/m", Target: target})
		refused(t, err, fault.InvalidArgument, "")
	}
}

func TestModesAndOwnersAreSetBelowWithoutFollowingLinks(t *testing.T) {
	tree, root := guest(t)
	write(t, root+"/outside", "")
	for _, name := range oddNames {
		write(t, root+"/d/e/"+name, "")
	}
	sh(t, "ln -s ../outside d/link; ln -s ../.. d/up; mkfifo d/pipe; chmod 600 outside", root)
	must[protocol.Done](t)(tree.Chmod(background, protocol.ChmodRequest{Path: root + "/d", Mode: "0711", Recursive: true}))
	must[protocol.Done](t)(tree.Chown(background, protocol.ChownRequest{Path: root + "/d", Owner: protocol.Owner{UID: idp(7), GID: idp(8)}, Recursive: true}))
	if left := sh(t, `find d \( ! -uid 7 -o ! -gid 8 -o ! -type l ! -perm 0711 \)`, root); left != "" {
		t.Errorf("%q", left)
	}
	outside := must[protocol.FileInfo](t)(tree.Stat(protocol.StatRequest{Path: root + "/outside"}))
	if outside.Mode != "0600" || outside.UID != 0 {
		t.Errorf("%+v", outside)
	}
	must[protocol.Done](t)(tree.Chmod(background, protocol.ChmodRequest{Path: root + "/d/link", Mode: "4755"}))
	must[protocol.Done](t)(tree.Chown(background, protocol.ChownRequest{Path: root + "/d/link", Owner: protocol.Owner{GID: idp(9)}}))
	outside = must[protocol.FileInfo](t)(tree.Stat(protocol.StatRequest{Path: root + "/outside"}))
	link := must[protocol.FileInfo](t)(tree.Stat(protocol.StatRequest{Path: root + "/d/link"}))
	if outside.Mode != "4755" || outside.GID != 0 || link.GID != 9 || link.UID != 7 {
		t.Errorf("%+v %+v", outside, link)
	}
	_, err := tree.Chown(background, protocol.ChownRequest{Path: root})
	refused(t, err, fault.InvalidArgument, "")
	_, err = tree.Chmod(background, protocol.ChmodRequest{Path: root})
	refused(t, err, fault.InvalidArgument, "")
}

func TestAModeThatTheKernelRefusesIsAConflict(t *testing.T) {
	err := below(background, "/proc/self/fdinfo", func(dir int, entry Entry) error { return chmodAt(dir, entry.Name, 0o444) })
	refused(t, err, fault.Conflict, "")
}

func TestRemoveTakesTreesAndNothingBehindLinks(t *testing.T) {
	tree, root := guest(t)
	write(t, root+"/kept/file", "")
	for _, name := range oddNames {
		write(t, root+"/d/e/"+name+"/x", "")
	}
	sh(t, "ln -s ../kept d/link; ln -s . d/loop; mkfifo d/pipe", root)
	_, err := tree.Remove(background, protocol.RemoveRequest{Path: root + "/d"})
	refused(t, err, fault.Conflict, paths.NotEmpty)
	got := must[protocol.Removed](t)(tree.Remove(background, protocol.RemoveRequest{Path: root + "/d", Recursive: true}))
	if want := int64(2 + 2*len(oddNames) + 3); got.Removed != want {
		t.Errorf("%d removed, want %d", got.Removed, want)
	}
	if left := sh(t, "find . -mindepth 1", root); left != "./kept\n./kept/file\n" {
		t.Error(left)
	}
	_, err = tree.Remove(background, protocol.RemoveRequest{Path: root + "/d"})
	refused(t, err, fault.NotFound, "")
	if got := must[protocol.Removed](t)(tree.Remove(background, protocol.RemoveRequest{Path: root + "/d/x", MissingOK: true})); got.Removed != 0 {
		t.Errorf("%+v", got)
	}
	for _, name := range []string{"/", "/..", "//."} {
		_, err = tree.Remove(background, protocol.RemoveRequest{Path: name, Recursive: true})
		refused(t, err, fault.InvalidArgument, "")
	}
}

func TestMountPointsAreNotRemoved(t *testing.T) {
	tree, root := guest(t)
	write(t, root+"/d/a", "")
	mountTmpfs(t, root+"/d/mount", "size=1m")
	write(t, root+"/d/mount/inside", "")
	for _, name := range []string{"/d/mount", "/d"} {
		_, err := tree.Remove(background, protocol.RemoveRequest{Path: root + name, Recursive: true})
		if known := refused(t, err, fault.Conflict, ""); known.Details["path"] != root+"/d/mount" {
			t.Errorf("%+v", known)
		}
	}
	if _, err := os.Stat(root + "/d/mount/inside"); err != nil {
		t.Error(err)
	}
}

func mountTmpfs(t *testing.T, name, options string) {
	t.Helper()
	os.MkdirAll(name, 0o755)
	if err := unix.Mount("tmpfs", name, "tmpfs", 0, options); err != nil {
		t.Skipf("needs mounts: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(name, unix.MNT_DETACH) })
}

func TestVeryDeepTreesAreWalkedByDescriptors(t *testing.T) {
	tree, root := guest(t)
	deep(t, root+"/d", 2_000)
	must[protocol.Done](t)(tree.Chmod(background, protocol.ChmodRequest{Path: root + "/d", Mode: "0700", Recursive: true}))
	must[protocol.FileInfo](t)(tree.Copy(background, protocol.TransferRequest{From: root + "/d", To: root + "/copy", Recursive: true}))
	listing := must[protocol.Listing](t)(tree.List(background, protocol.ListRequest{Path: root, Recursive: true}))
	if len(listing.Entries) != 2*maxListDepth || listing.Truncated {
		t.Errorf("%d entries", len(listing.Entries))
	}
	for _, name := range []string{"/d", "/copy"} {
		if got := must[protocol.Removed](t)(tree.Remove(background, protocol.RemoveRequest{Path: root + name, Recursive: true})); got.Removed != 2_001 {
			t.Errorf("%s: %d", name, got.Removed)
		}
	}
}

// deep makes directories in each other and a file in the last.
func deep(t *testing.T, name string, levels int) {
	t.Helper()
	at, err := openDirectory(unix.AT_FDCWD, filepath.Dir(name), 0)
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Base(name)
	for range levels {
		if err := unix.Mkdirat(at, base, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := OpenChild(at, base)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(at)
		at, base = next, "level"
	}
	unix.Mknodat(at, "file", unix.S_IFREG|0o600, 0)
	unix.Close(at)
}

func TestNothingIsLeftOpen(t *testing.T) {
	tree, root := guest(t)
	write(t, root+"/a/b/c", "x")
	before := openFiles(t)
	tree.List(background, protocol.ListRequest{Path: root, Recursive: true})
	tree.Copy(background, protocol.TransferRequest{From: root + "/a", To: root + "/z", Recursive: true})
	tree.Copy(background, protocol.TransferRequest{From: root + "/a", To: root + "/a/b/inside", Recursive: true})
	tree.Move(background, protocol.TransferRequest{From: root + "/z", To: root + "/a", Overwrite: true})
	tree.Chmod(background, protocol.ChmodRequest{Path: root, Mode: "700", Recursive: true})
	tree.Mkdir(protocol.MkdirRequest{Path: root + "/m/n", Parents: true})
	tree.Remove(background, protocol.RemoveRequest{Path: root + "/a", Recursive: true})
	tree.Remove(background, protocol.RemoveRequest{Path: root + "/none/x", Recursive: true})
	if after := openFiles(t); after != before {
		t.Errorf("%d open files became %d", before, after)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestGlobsTellAboutEachFile(t *testing.T) {
	tree, root := guest(t)
	for _, name := range []string{"b/x.txt", "a.txt", "c.csv"} {
		write(t, root+"/"+name, name)
	}
	got := must[protocol.Listing](t)(tree.Glob(background, protocol.FileGlobRequest{Cwd: root, Patterns: []string{"**/*.txt"}}))
	if names := shownNames(root, got); !reflect.DeepEqual(names, []string{"a.txt", "b/x.txt"}) || got.Truncated || got.Entries[0].SizeBytes != 5 {
		t.Errorf("%+v", got)
	}
	one := must[protocol.Listing](t)(tree.Glob(background, protocol.FileGlobRequest{Patterns: []string{root + "/**"}, Limit: intp(1)}))
	if len(one.Entries) != 1 || !one.Truncated {
		t.Errorf("%+v", one)
	}
	for _, bad := range []protocol.FileGlobRequest{{}, {Cwd: "x", Patterns: []string{"*"}}, {Patterns: []string{"["}}, {Patterns: make([]string, 65)}} {
		_, err := tree.Glob(background, bad)
		refused(t, err, fault.InvalidArgument, "")
	}
}
