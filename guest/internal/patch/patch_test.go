package patch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

var background = context.Background()

func files(t *testing.T, texts map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range texts {
		os.MkdirAll(filepath.Dir(root+"/"+name), 0o755)
		if err := os.WriteFile(root+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func apply(root, text string) (protocol.PatchResult, error) {
	return Apply(background, protocol.PatchRequest{Cwd: root, Patch: text})
}

// contents are those of all files below, by name; what is left of the work shows as a file.
func contents(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	filepath.WalkDir(root, func(name string, entry os.DirEntry, err error) error {
		if entry.Type().IsRegular() {
			text, _ := os.ReadFile(name)
			found[strings.TrimPrefix(name, root+"/")] = string(text)
		}
		return nil
	})
	return found
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

func TestAPatchOfSeveralFilesIsApplied(t *testing.T) {
	root := files(t, map[string]string{
		"a.txt": "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n", "old/gone": "x\ny", "crlf": "a\r\nb\r\nc\r\n", "sub dir/odd \"name\"\t": "one\n", "empty": "",
	})
	os.Chmod(root+"/a.txt", 0o750)
	os.Chown(root+"/a.txt", 5, 6)
	os.Chown(root, 7, 8)
	got, err := apply(root, `From someone
diff --git a/a.txt b/a.txt
index 1..2 100644
--- a/a.txt	2020-01-01 00:00:00
+++ b/a.txt
@@ -1,3 +1,4 @@ where
 1
-2
+two
+2.5
 3
@@ -10,3 +11,3 @@
 10
 11
-12
+twelve
diff --git a/new/deep/file b/new/deep/file
new file mode 100755
index 000..123
--- /dev/null
+++ b/new/deep/file
@@ -0,0 +1,2 @@
+hello
+there
\ No newline at end of file
--- a/old/gone
+++ /dev/null
@@ -1,2 +0,0 @@
-x
-y
\ No newline at end of file
--- a/crlf
+++ b/crlf
@@ -1,3 +1,3 @@
`+" a\r\n-b\r\n+B\r\n c\r\n"+`--- "a/sub dir/odd \"name\"\t"
+++ "b/sub dir/odd \"name\"\t"
@@ -1 +1,2 @@
 one
+two
diff --git a/void b/void
new file mode 100644
index 0000000..e69de29
diff --git a/empty b/empty
deleted file mode 100644
index e69de29..0000000
`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"a.txt": "1\ntwo\n2.5\n3\n4\n5\n6\n7\n8\n9\n10\n11\ntwelve\n", "new/deep/file": "hello\nthere", "crlf": "a\r\nB\r\nc\r\n",
		"sub dir/odd \"name\"\t": "one\ntwo\n", "void": "",
	}
	if found := contents(t, root); !reflect.DeepEqual(found, want) {
		t.Errorf("%q", found)
	}
	if len(got.Files) != 7 || got.Files[0] != (protocol.PatchedFile{Path: root + "/a.txt", Action: "modified", Hunks: 2}) ||
		got.Files[1].Action != "created" || got.Files[2].Action != "removed" || got.Files[6].Action != "removed" {
		t.Errorf("%+v", got)
	}
	var info unix.Stat_t
	if unix.Stat(root+"/a.txt", &info); info.Mode&0o7777 != 0o750 || info.Uid != 5 || info.Gid != 6 {
		t.Errorf("%+v", info)
	}
	if unix.Stat(root+"/new/deep/file", &info); info.Mode&0o7777 != 0o755 || info.Uid != 7 || info.Gid != 8 {
		t.Errorf("%+v", info)
	}
}

func TestHunksAreFoundAwayFromTheirLine(t *testing.T) {
	text := strings.Repeat("filler\n", 50) + "a\nb\nc\n" + strings.Repeat("filler\n", 20) + "d\ne\nf\n"
	root := files(t, map[string]string{"f": text})
	got, err := apply(root, "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n@@ -24,3 +24,3 @@\n d\n-e\n+E\n f\n")
	if err != nil || got.Files[0].MovedLines != 50 {
		t.Errorf("%+v, %v", got, err)
	}
	if found := contents(t, root)["f"]; found != strings.NewReplacer("b", "B", "\ne\n", "\nE\n").Replace(text) {
		t.Errorf("%q", found)
	}
	// The nearest of several.
	root = files(t, map[string]string{"f": "x\n1\nx\n2\nx\n3\n"})
	if _, err := apply(root, "--- a/f\n+++ b/f\n@@ -4 +4 @@\n-x\n+y\n"); err != nil || contents(t, root)["f"] != "x\n1\ny\n2\nx\n3\n" {
		t.Errorf("%q, %v", contents(t, root), err)
	}
}

func TestWhatDoesNotApplyChangesNothing(t *testing.T) {
	before := map[string]string{"a": "1\n2\n3\n", "b": "x\ny\nz", "d/e": "e\n"}
	good := "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n--- /dev/null\n+++ b/made/new\n@@ -0,0 +1 @@\n+n\n--- a/d/e\n+++ /dev/null\n@@ -1 +0,0 @@\n-e\n"
	for name, each := range map[string]struct {
		patch                 string
		code                  fault.Code
		reason                string
		path, hunk, exp, find string
	}{
		"another line":        {"--- a/b\n+++ b/b\n@@ -1,2 +1,2 @@\n x\n-Y\n+W\n", fault.Conflict, "stale_patch", "b", "1", "Y\n", "y\n"},
		"a second hunk":       {"--- a/b\n+++ b/b\n@@ -1 +1 @@\n-x\n+X\n@@ -2 +2 @@\n-x\n+X\n", fault.Conflict, "stale_patch", "b", "2", "x\n", "y\n"},
		"no newline there":    {"--- a/b\n+++ b/b\n@@ -3 +3 @@\n-z\n+Z\n", fault.Conflict, "stale_patch", "b", "1", "z\n", "z"},
		"newline there":       {"--- a/a\n+++ b/a\n@@ -3 +3 @@\n-3\n\\ No newline at end of file\n+4\n", fault.Conflict, "stale_patch", "a", "1", "3", "3\n"},
		"behind the end":      {"--- a/a\n+++ b/a\n@@ -9,0 +10 @@\n+9\n", fault.Conflict, "stale_patch", "a", "1", "", ""},
		"onto an open end":    {"--- a/b\n+++ b/b\n@@ -3,0 +4 @@\n+9\n", fault.Conflict, "stale_patch", "b", "1", "", ""},
		"left over":           {"--- a/b\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-x\n-y\n", fault.Conflict, "stale_patch", "b", "1", "the end of the file", "z"},
		"made where one is":   {"--- /dev/null\n+++ b/b\n@@ -0,0 +1 @@\n+n\n", fault.Conflict, paths.Exists, "b", "", "", ""},
		"a missing file":      {"--- a/nope\n+++ b/nope\n@@ -1 +1 @@\n-x\n+y\n", fault.NotFound, "", "nope", "", "", ""},
		"a directory":         {"--- a/d\n+++ b/d\n@@ -1 +1 @@\n-x\n+y\n", fault.Conflict, paths.IsADirectory, "d", "", "", ""},
		"below a file":        {"--- /dev/null\n+++ b/b/x\n@@ -0,0 +1 @@\n+n\n", fault.Conflict, paths.NotADirectory, "b/x", "", "", ""},
		"a name that is long": {"--- /dev/null\n+++ b/" + strings.Repeat("n", 256) + "\n@@ -0,0 +1 @@\n+n\n", fault.InvalidArgument, "", "", "", "", ""},
	} {
		root := files(t, before)
		_, err := apply(root, good+each.patch)
		known := refused(t, err, each.code, each.reason)
		if each.path != "" && known.Details["path"] != root+"/"+each.path || known.Details["hunk"] != each.hunk ||
			(each.exp != "" && (known.Details["expected"] != each.exp || known.Details["found"] != each.find)) {
			t.Errorf("%s: %q", name, known.Details)
		}
		if found := contents(t, root); !reflect.DeepEqual(found, before) {
			t.Errorf("%s: %q", name, found)
		}
	}
}

func TestPatchesThatAreNoneAreRefused(t *testing.T) {
	root := files(t, map[string]string{"a": "1\n"})
	head := "--- a/a\n+++ b/a\n"
	for _, text := range []string{
		"", "hello", head, head + "no hunk\n", head + "@@ -1 +1 @@\n", head + "@@ -1 +1 @@\n-1\n", head + "@@ -1 +1 @@\n-1\n*2\n", head + "@@ -x +1 @@\n-1\n+2\n",
		head + "@@ -1,0 +1,0 @@\n", head + "@@ -1,1 +1,1\n-1\n+2\n", head + "@@ -1 +1 @@\n-1\n-1\n+2\n", head + "@@ -99999999999 +1 @@\n-1\n+2\n",
		head + "@@ -1 +1 @@\n\\ No newline\n-1\n+2\n", "@@ -1 +1 @@\n-1\n+2\n", "--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-1\n+2\n",
		"--- a/../a\n+++ b/../a\n@@ -1 +1 @@\n-1\n+2\n", "--- a\n+++ a\n@@ -1 +1 @@\n-1\n+2\n", "--- a/\n+++ b/\n@@ -1 +1 @@\n-1\n+2\n", "--- \"a/a\n+++ \"b/a\n@@ -1 +1 @@\n-1\n+2\n",
		"diff --git a/a b/b\nsimilarity index 100%\nrename from a\nrename to b\n", "diff --git a/a b/a\nold mode 100644\nnew mode 100755\n",
		"diff --git a/a b/a\nindex 1..2\nGIT binary patch\n", "diff --git a/a b/a\nBinary files a/a and b/a differ\n", "diff --git a/x b/y\nnew file mode 100644\n",
		"diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n", strings.Repeat("x", maxPatchBytes+1),
	} {
		_, err := apply(root, text)
		refused(t, err, fault.InvalidArgument, "")
	}
	_, err := Apply(background, protocol.PatchRequest{Cwd: "x", Patch: head})
	refused(t, err, fault.InvalidArgument, "")
	seventeen := 17
	_, err = Apply(background, protocol.PatchRequest{Cwd: root, Patch: head, Strip: &seventeen})
	refused(t, err, fault.InvalidArgument, "")
	_, err = apply(root+"/nope", head+"@@ -1 +1 @@\n-1\n+2\n")
	refused(t, err, fault.NotFound, "")
	if found := contents(t, root); !reflect.DeepEqual(found, map[string]string{"a": "1\n"}) {
		t.Errorf("%q", found)
	}
}

func TestLeniencesThatLoseNothing(t *testing.T) {
	for name, text := range map[string]string{
		"the last newline cut":   "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3",
		"crlf headers":           "--- a/a\r\n+++ b/a\r\n@@ -1,3 +1,3 @@\r\n 1\n-2\n+two\n 3\n",
		"words around":           "Here is it:\n\n--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@ fn()\n 1\n-2\n+two\n 3\n\nThat is all.\n",
		"the file twice":         "--- a/a\n+++ b/a\n@@ -2 +2 @@\n-2\n+zwei\n--- a/a\n+++ b/a\n@@ -2 +2 @@\n-zwei\n+two\n",
		"a time stamp":           "--- a/a\t2020-01-01\n+++ b/a\t2020-01-01\n@@ -2 +2 @@\n-2\n+two\n",
		"another name before it": "--- a/a.orig\n+++ b/a\n@@ -2 +2 @@\n-2\n+two\n",
	} {
		root := files(t, map[string]string{"a": "1\n2\n3\n"})
		if _, err := apply(root, text); err != nil || contents(t, root)["a"] != "1\ntwo\n3\n" {
			t.Errorf("%s: %q, %v", name, contents(t, root), err)
		}
	}
	root := files(t, map[string]string{"a": "1\n\n3\n"})
	if _, err := apply(root, "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n 1\n\n-3\n+x\n"); err != nil || contents(t, root)["a"] != "1\n\nx\n" {
		t.Errorf("an empty line of context: %q, %v", contents(t, root), err)
	}
}

func TestSymlinksDoNotLeadOut(t *testing.T) {
	root := files(t, map[string]string{"in/a": "1\n", "out/a": "1\n"})
	os.Symlink("../out", root+"/in/away")
	os.Symlink("../out/a", root+"/in/file")
	os.Symlink("a", root+"/in/near")
	os.Symlink(".", root+"/in/self")
	for name, each := range map[string]struct {
		code   fault.Code
		reason string
	}{"away/a": {fault.InvalidArgument, ""}, "file": {fault.Conflict, paths.NotRegularFile}, "near": {fault.Conflict, paths.NotRegularFile}, "away/new": {fault.InvalidArgument, ""}} {
		old := "a/" + name
		text := "-1\n+2\n"
		span := "@@ -1 +1 @@"
		if name == "away/new" {
			old, text, span = devNull, "+2\n", "@@ -0,0 +1 @@"
		}
		_, err := apply(root+"/in", "--- "+old+"\n+++ b/"+name+"\n"+span+"\n"+text)
		refused(t, err, each.code, each.reason)
	}
	if _, err := apply(root+"/in", "--- a/self/a\n+++ b/self/a\n@@ -1 +1 @@\n-1\n+2\n"); err != nil {
		t.Error(err)
	}
	if found := contents(t, root); found["out/a"] != "1\n" || found["in/a"] != "2\n" || len(found) != 2 {
		t.Errorf("%q", found)
	}
}

func TestAFailureMidwayPutsEverythingBack(t *testing.T) {
	texts := map[string]string{"a": "1\n", "b": "1\n", "c": "1\n", "z/stuck": "1\n"}
	root := files(t, texts)
	os.WriteFile(root+"/../mounted", []byte("1\n"), 0o644)
	if err := unix.Mount(root+"/../mounted", root+"/z/stuck", "", unix.MS_BIND, ""); err != nil {
		t.Skipf("needs mounts: %v", err)
	}
	defer unix.Unmount(root+"/z/stuck", unix.MNT_DETACH)
	before := fileInfos(t, root)
	_, err := apply(root, "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n--- /dev/null\n+++ b/n/e/w\n@@ -0,0 +1 @@\n+2\n"+
		"--- a/z/stuck\n+++ b/z/stuck\n@@ -1 +1 @@\n-1\n+2\n--- a/c\n+++ b/c\n@@ -1 +1 @@\n-1\n+2\n")
	if known := refused(t, err, fault.Conflict, ""); known.Details["path"] != root+"/z/stuck" {
		t.Errorf("%v", err)
	}
	if found := contents(t, root); !reflect.DeepEqual(found, texts) {
		t.Errorf("%q", found)
	}
	if after := fileInfos(t, root); after != before {
		t.Errorf("%s\n---\n%s", before, after)
	}
}

func fileInfos(t *testing.T, root string) string {
	t.Helper()
	text, err := exec.Command("find", root, "-printf", "%P %i %m %n %T@\n", "-type", "f").Output()
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 5 { // not the time of the top
			kept = append(kept, strings.Join(fields[:4], " "))
		}
	}
	return strings.Join(kept, "\n")
}

func TestWhatDiffMakesIsAppliedAlike(t *testing.T) {
	if _, err := exec.LookPath("diff"); err != nil {
		t.Skip("needs diff")
	}
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		old, new := randomText(random, nil), ""
		new = randomText(random, strings.SplitAfter(old, "\n"))
		root := files(t, map[string]string{"a/f": old, "b/f": new, "w/f": old})
		command := exec.Command("diff", fmt.Sprintf("-U%d", round%4), "a/f", "b/f")
		command.Dir = root
		text, _ := command.Output()
		if len(text) == 0 {
			continue
		}
		got, err := apply(root+"/w", string(text))
		if err != nil || contents(t, root)["w/f"] != new || got.Files[0].MovedLines != 0 {
			t.Errorf("%q -> %q: %+v, %v\n%s", old, new, got, err, text)
		}
	}
}

// randomText is of few different lines; with lines of before, some of them changed.
func randomText(random *rand.Rand, before []string) string {
	var lines []string
	if before == nil {
		for range random.IntN(40) {
			lines = append(lines, string(rune('a'+random.IntN(4)))+"\n")
		}
	}
	for _, line := range before {
		switch random.IntN(8) {
		case 0:
		case 1:
			lines = append(lines, "new\n", line)
		case 2:
			lines = append(lines, "other\n")
		default:
			lines = append(lines, line)
		}
	}
	text := strings.Join(lines, "")
	if random.IntN(3) == 0 {
		text = strings.TrimSuffix(text, "\n")
	}
	return text
}

func TestAPatchThatCostsTooMuchIsGivenUp(t *testing.T) {
	root := files(t, map[string]string{"f": strings.Repeat("\n", 4<<20)})
	_, err := apply(root, "--- a/f\n+++ b/f\n@@ -1,100001 +1,100001 @@\n"+strings.Repeat(" \n", 100_000)+"-x\n+y\n")
	refused(t, err, fault.Conflict, paths.TooLarge)
}

func FuzzPatch(f *testing.F) {
	f.Add("--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n", "a\nb\n")
	f.Add("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+c\n\\ No newline at end of file\n", "")
	f.Add("diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "x\n")
	f.Add("--- \"a/\\303\\251\"\n+++ \"b/\\303\\251\"\n@@ -1 +1 @@\n-x\n+y", "x\n")
	f.Add("diff --git a/f b/f\nnew file mode 100644\nindex 0..1\n", "")
	f.Fuzz(func(t *testing.T, text, file string) {
		diffs, err := parse(text, 1)
		if err != nil {
			return
		}
		for _, diff := range diffs {
			for _, name := range []string{diff.from, diff.to} {
				if strings.HasPrefix(name, "/") || name == ".." || strings.HasPrefix(name, "../") || strings.Contains(name, "/../") || strings.HasSuffix(name, "/..") {
					t.Errorf("the name %q leaves", name)
				}
			}
			_, _, _ = applyHunks("/f", file, diff.hunks)
		}
	})
}
