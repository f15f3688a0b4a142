package glob

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

// tree makes files (and directories, where the name ends in a slash) below a fresh directory.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(full, 0o755); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(full, []byte(name), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func find(t *testing.T, cwd string, patterns ...string) (files, skipped []string) {
	t.Helper()
	result, err := Find(context.Background(), protocol.GlobRequest{Cwd: cwd, Patterns: patterns, MaxFiles: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range result.Files {
		files = append(files, file.Path)
	}
	for _, each := range result.Skipped {
		skipped = append(skipped, each.Path+" "+each.Reason)
	}
	return files, skipped
}

func TestPatternsFindWhatTheySay(t *testing.T) {
	root := tree(t, "a.txt", "b.csv", ".hidden", "out/a.txt", "out/deep/er/c.txt", "out/deep/[x].txt", "empty/", "x-1", "x-2", "x-a", "ä.txt")
	for pattern, want := range map[string][]string{
		"a.txt":              {"a.txt"},
		"./out//a.txt":       {"out/a.txt"},
		"*.txt":              {"a.txt", "ä.txt"},
		"?.txt":              {"a.txt", "ä.txt"},
		"*":                  {".hidden", "a.txt", "b.csv", "x-1", "x-2", "x-a", "ä.txt"},
		"x-[0-9]":            {"x-1", "x-2"},
		"x-[!0-9]":           {"x-a"},
		"x-[^12]":            {"x-a"},
		"**/*.txt":           {"a.txt", "out/a.txt", "out/deep/[x].txt", "out/deep/er/c.txt", "ä.txt"},
		"out/**":             {"out/a.txt", "out/deep/[x].txt", "out/deep/er/c.txt"},
		"out/**/c.txt":       {"out/deep/er/c.txt"},
		"**/deep/**/*.txt":   {"out/deep/[x].txt", "out/deep/er/c.txt"},
		"**/**/c.txt":        {"out/deep/er/c.txt"},
		"o*t/*/er/*":         {"out/deep/er/c.txt"},
		`out/deep/\[x].txt`:  {"out/deep/[x].txt"},
		"nothing*":           nil,
		"empty/**":           nil,
		"a.txt/b":            nil,
		root + "/out/*.txt":  {root + "/out/a.txt"},
		"*.{txt,csv}":        nil,
		"o**t/a.txt":         {"out/a.txt"},
		"out/deep/er/c.txt/": {"out/deep/er/c.txt"},
	} {
		files, skipped := find(t, root, pattern)
		if !reflect.DeepEqual(files, want) || skipped != nil {
			t.Errorf("%s: %q, skipped %q", pattern, files, skipped)
		}
	}
}

func TestAFileIsListedOnceWithItsSizeAndMode(t *testing.T) {
	root := tree(t, "a.txt")
	result, err := Find(context.Background(), protocol.GlobRequest{Cwd: root, Patterns: []string{"*", "a.txt", root + "/*"}, MaxFiles: 10})
	want := []protocol.GlobFile{{Path: "a.txt", AbsolutePath: root + "/a.txt", SizeBytes: 5, Mode: 0o640}}
	if err != nil || !reflect.DeepEqual(result.Files, want) {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestSymlinksAreReportedAndNotFollowed(t *testing.T) {
	root := tree(t, "real/secret.txt", "out/a.txt")
	for link, target := range map[string]string{
		"out/file": "../real/secret.txt", "out/dir": "../real", "out/loop": "loop", "out/dangling": "nowhere", "out/abs": "/etc",
	} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, want := range map[string][]string{
		"out/file":           {"out/file symlink"},
		"out/dir/secret.txt": {"out/dir symlink"},
		"out/dir/*":          {"out/dir symlink"},
		"out/loop":           {"out/loop symlink"},
		"out/dangling/x":     nil,
		"out/*/secret.txt":   {"out/abs symlink", "out/dir symlink"},
		"out/**/passwd":      {"out/abs symlink", "out/dir symlink"},
	} {
		files, skipped := find(t, root, pattern)
		if len(files) != 0 || !reflect.DeepEqual(skipped, want) {
			t.Errorf("%s: %q, skipped %q", pattern, files, skipped)
		}
	}
	files, skipped := find(t, root, "out/**")
	if !reflect.DeepEqual(files, []string{"out/a.txt"}) || len(skipped) != 5 {
		t.Errorf("out/**: %q, skipped %q", files, skipped)
	}
}

func TestWhatIsNoRegularFileIsReported(t *testing.T) {
	root := tree(t, "dir/x")
	if err := unix.Mkfifo(root+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	_, skipped := find(t, root, "*", "dir")
	if !reflect.DeepEqual(skipped, []string{"pipe not_a_regular_file", "dir not_a_regular_file"}) {
		t.Errorf("%q", skipped)
	}
}

func TestANameThatIsNotUTF8IsReportedReadably(t *testing.T) {
	root := tree(t)
	if err := os.WriteFile(root+"/bad\xff", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files, skipped := find(t, root, "*")
	if files != nil || !reflect.DeepEqual(skipped, []string{"bad\uFFFD bad_name"}) {
		t.Errorf("%q, %q", files, skipped)
	}
}

func TestStrangeNamesAreNothingSpecial(t *testing.T) {
	names := []string{"-rf", "a b", "new\nline", `quote"'`, "$(id)", strings.Repeat("n", 255), "e\u0301", "\u00e9", "🎉"}
	root := tree(t, names...)
	files, skipped := find(t, root, "**")
	if len(files) != len(names) || skipped != nil {
		t.Errorf("%q, %q", files, skipped)
	}
}

func TestPseudoFileSystemsAreNotWalked(t *testing.T) {
	files, _ := find(t, "/", "proc/*", "/proc/**/status", "dev/null", "/sys/**", "/proc/self/environ")
	if files != nil {
		t.Errorf("%q", files)
	}
}

func TestMoreFilesThanAskedForAreToldByOneEntry(t *testing.T) {
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("f%02d", i))
	}
	root := tree(t, names...)
	result, err := Find(context.Background(), protocol.GlobRequest{Cwd: root, Patterns: []string{"*", "**"}, MaxFiles: 10})
	if err != nil || len(result.Files) != 10 || !reflect.DeepEqual(result.Skipped, []protocol.GlobSkipped{{Path: root, Reason: TooMany}}) {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestADirectoryThatIsTooDeepEndsTheSearch(t *testing.T) {
	root := tree(t, strings.Repeat("d/", maxDepth+5)+"x")
	_, skipped := find(t, root, "**")
	if !reflect.DeepEqual(skipped, []string{root + " too_many"}) {
		t.Errorf("%q", skipped)
	}
}

func TestASearchEndsWithItsRequest(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Find(ctx, protocol.GlobRequest{Cwd: "/", Patterns: []string{"**"}, MaxFiles: 10}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	for _, request := range []protocol.GlobRequest{
		{Cwd: "relative", Patterns: []string{"*"}, MaxFiles: 1},
		{Cwd: "", Patterns: []string{"*"}, MaxFiles: 1},
		{Cwd: "/", Patterns: []string{"*"}, MaxFiles: 0},
		{Cwd: "/", Patterns: []string{"../*"}, MaxFiles: 1},
		{Cwd: "/", Patterns: []string{"a/../b"}, MaxFiles: 1},
		{Cwd: "/", Patterns: []string{""}, MaxFiles: 1},
		{Cwd: "/", Patterns: []string{"/"}, MaxFiles: 1},
		{Cwd: "/", Patterns: []string{"a["}, MaxFiles: 1},
		{Cwd: "/", Patterns: []string{"a\x00b"}, MaxFiles: 1},
		{Cwd: "/", Patterns: []string{"\xff"}, MaxFiles: 1},
		{Cwd: "/", Patterns: make([]string, maxPatterns+1), MaxFiles: 1},
	} {
		_, err := Find(context.Background(), request)
		var known *fault.Error
		if !errors.As(err, &known) || known.Code != fault.InvalidArgument {
			t.Errorf("%+v: %v", request, err)
		}
	}
}

func TestNoDescriptorIsLeftOpen(t *testing.T) {
	root := tree(t, "a/b/c/d", "e/f")
	before := openFiles(t)
	find(t, root, "**", "a/*/c/*", "*/f")
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

func FuzzPattern(f *testing.F) {
	for _, seed := range []string{"*", "**/x", "a[!b-c]?", `\*`, "../x", "a//b", "[", "**********a"} {
		f.Add(seed, "name")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		p, err := parsePattern(text)
		if err != nil {
			return
		}
		for _, each := range p.parts {
			each.matches(name)
			if each.text == ".." || strings.Contains(each.text, "/") {
				t.Errorf("%q has the part %q", text, each.text)
			}
		}
	})
}
