package search

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

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

func find(t *testing.T, request protocol.SearchRequest) protocol.SearchResult {
	t.Helper()
	result, err := Find(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// places are the matches as `name:line:column:text`.
func places(root string, result protocol.SearchResult) []string {
	var list []string
	for _, m := range result.Matches {
		list = append(list, fmt.Sprintf("%s:%d:%d:%s", strings.TrimPrefix(m.Path, root+"/"), m.Line, m.Column, m.Text))
	}
	return list
}

func TestLinesAreFoundByExpressionOrText(t *testing.T) {
	root := files(t, map[string]string{
		"a.go": "package a\n\nfunc Foo() {}\n// foo.bar\n", "sub/b.txt": "x foo\r\nFOO\r\nfoo foo", "c": "foo", "empty": "", "d": "no\nnewline\nat foo",
	})
	for _, each := range []struct {
		request protocol.SearchRequest
		want    []string
	}{
		{protocol.SearchRequest{Pattern: "foo"}, []string{"a.go:4:4:// foo.bar", "c:1:1:foo", "d:3:4:at foo", "sub/b.txt:1:3:x foo", "sub/b.txt:3:1:foo foo"}},
		{protocol.SearchRequest{Pattern: "^foo"}, []string{"c:1:1:foo", "sub/b.txt:3:1:foo foo"}},
		{protocol.SearchRequest{Pattern: "^foo$"}, []string{"c:1:1:foo"}},
		{protocol.SearchRequest{Pattern: "foo$", IgnoreCase: true}, []string{"c:1:1:foo", "d:3:4:at foo", "sub/b.txt:1:3:x foo", "sub/b.txt:2:1:FOO", "sub/b.txt:3:5:foo foo"}},
		{protocol.SearchRequest{Pattern: "foo.bar", Literal: true}, []string{"a.go:4:4:// foo.bar"}},
		{protocol.SearchRequest{Pattern: "FOO.", Literal: true, IgnoreCase: true}, []string{"a.go:4:4:// foo.bar"}},
		{protocol.SearchRequest{Pattern: `fo{2}\b`, Include: []string{"*.txt"}}, []string{"sub/b.txt:1:3:x foo", "sub/b.txt:3:1:foo foo"}},
		{protocol.SearchRequest{Pattern: "foo", Include: []string{"sub/**", "c"}}, []string{"c:1:1:foo", "sub/b.txt:1:3:x foo", "sub/b.txt:3:1:foo foo"}},
		{protocol.SearchRequest{Pattern: "foo", Exclude: []string{"sub", "*.go", "/d"}}, []string{"c:1:1:foo"}},
		{protocol.SearchRequest{Pattern: "foo\nFOO"}, nil},
		{protocol.SearchRequest{Pattern: "^$"}, []string{"a.go:2:1:"}},
	} {
		each.request.Path = root
		if got := find(t, each.request); !reflect.DeepEqual(places(root, got), each.want) || got.Truncated {
			t.Errorf("%+v: %q", each.request, places(root, got))
		}
	}
	one := find(t, protocol.SearchRequest{Path: root + "/c", Pattern: "o+"})
	if !reflect.DeepEqual(places(root, one), []string{"c:1:2:foo"}) || one.FilesSearched != 1 {
		t.Errorf("%+v", one)
	}
}

func TestLinesAroundAMatchAreGiven(t *testing.T) {
	root := files(t, map[string]string{"f": "1\n2\r\n3\nhit\n5\n6\nhit"})
	got := find(t, protocol.SearchRequest{Path: root, Pattern: "hit", Context: 2}).Matches
	if len(got) != 2 || !reflect.DeepEqual(got[0].Before, []string{"2", "3"}) || !reflect.DeepEqual(got[0].After, []string{"5", "6"}) ||
		!reflect.DeepEqual(got[1].Before, []string{"5", "6"}) || got[1].After != nil {
		t.Errorf("%+v", got)
	}
}

func TestBinaryAndLargeFilesArePassedOverAndCounted(t *testing.T) {
	root := files(t, map[string]string{"text": "foo", "binary": "foo\x00", "late": strings.Repeat("x", binaryBytes) + "\nfoo\x00", "latin": "caf\xe9 foo"})
	os.WriteFile(root+"/large", []byte("foo\n"), 0o600)
	os.Truncate(root+"/large", maxFileBytes+1)
	got := find(t, protocol.SearchRequest{Path: root, Pattern: "foo"})
	if names := places(root, got); !reflect.DeepEqual(names, []string{"late:2:1:foo\x00", "latin:1:6:caf\uFFFD foo", "text:1:1:foo"}) || got.FilesSearched != 3 || got.FilesSkipped != 2 {
		t.Errorf("%q, %+v", names, got)
	}
}

func TestWhatIsNoFileIsNotTouched(t *testing.T) {
	root := files(t, map[string]string{"f": "foo"})
	unix.Mkfifo(root+"/pipe", 0o600)
	os.Symlink("f", root+"/link")
	os.Symlink(".", root+"/loop")
	os.Symlink("/etc", root+"/etc")
	os.WriteFile(root+"/bad\xff", []byte("foo"), 0o600)
	if got := places(root, find(t, protocol.SearchRequest{Path: root, Pattern: "foo"})); !reflect.DeepEqual(got, []string{"bad\uFFFD:1:1:foo", "f:1:1:foo"}) {
		t.Errorf("%q", got)
	}
	_, err := Find(context.Background(), protocol.SearchRequest{Path: root + "/pipe", Pattern: "x"})
	refused(t, err, fault.Conflict, paths.NotRegularFile)
	_, err = Find(context.Background(), protocol.SearchRequest{Path: root + "/nope", Pattern: "x"})
	refused(t, err, fault.NotFound, "")
	if got := find(t, protocol.SearchRequest{Path: root + "/link", Pattern: "foo"}); len(got.Matches) != 1 {
		t.Errorf("%+v", got)
	}
	if got := find(t, protocol.SearchRequest{Path: "/proc/sys/kernel", Pattern: "^Linux$", Include: []string{"ostype"}}); len(got.Matches) != 1 {
		t.Errorf("%+v", got)
	}
}

func refused(t *testing.T, err error, code fault.Code, reason string) {
	t.Helper()
	var known *fault.Error
	if !errors.As(err, &known) || known.Code != code || known.Details["reason"] != reason {
		t.Errorf("%v, want %s %s", err, code, reason)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	long := strings.Repeat("é", 3000)
	root := files(t, map[string]string{"f": strings.Repeat("hit\n", 20_000), "long": "find" + long})
	limit := 5
	got := find(t, protocol.SearchRequest{Path: root, Pattern: "hit", Limit: &limit})
	if len(got.Matches) != 5 || !got.Truncated {
		t.Errorf("%d, %v", len(got.Matches), got.Truncated)
	}
	if got := find(t, protocol.SearchRequest{Path: root, Pattern: "hit"}); len(got.Matches) != maxMatches || !got.Truncated {
		t.Errorf("%d, %v", len(got.Matches), got.Truncated)
	}
	if got := find(t, protocol.SearchRequest{Path: root, Pattern: "find"}); got.Matches[0].Text != "find"+long[:maxTextBytes-4] {
		t.Errorf("%d bytes of a line", len(got.Matches[0].Text))
	}
	wide := strings.Repeat(strings.Repeat("w", 3000)+"\n", 3000)
	root = files(t, map[string]string{"f": wide})
	if got := find(t, protocol.SearchRequest{Path: root, Pattern: "w", Context: 20}); !got.Truncated || len(got.Matches) == 0 || len(got.Matches) > 200 {
		t.Errorf("%d, %v", len(got.Matches), got.Truncated)
	}
	root = files(t, map[string]string{"f": strings.Repeat(strings.Repeat("<", 1900)+"\n", 9000)})
	if text, _ := json.Marshal(find(t, protocol.SearchRequest{Path: root, Pattern: "<"})); len(text) > maxAnswerBytes+100_000 {
		t.Errorf("%d bytes of an answer", len(text))
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Find(ended, protocol.SearchRequest{Path: "/", Pattern: "x"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	zero, many := 0, 10_001
	for _, bad := range []protocol.SearchRequest{
		{Path: "x", Pattern: "x"}, {Path: "/"}, {Path: "/", Pattern: "("}, {Path: "/", Pattern: `(a)\1`}, {Path: "/", Pattern: "a\nb", Literal: true},
		{Path: "/", Pattern: "x", Limit: &zero}, {Path: "/", Pattern: "x", Limit: &many}, {Path: "/", Pattern: "x", Context: 21}, {Path: "/", Pattern: "x", Context: -1},
		{Path: "/", Pattern: "x", Include: []string{"["}}, {Path: "/", Pattern: "x", Exclude: []string{"../x"}}, {Path: "/", Pattern: "x", Exclude: make([]string, 65)},
		{Path: "/", Pattern: strings.Repeat("x", 4097)}, {Path: "/", Pattern: "a{1001}"},
	} {
		_, err := Find(context.Background(), bad)
		refused(t, err, fault.InvalidArgument, "")
	}
}

func FuzzLines(f *testing.F) {
	f.Add("a\nb\r\nc", "b", false)
	f.Add("foo\n\nbar", "^$", false)
	f.Add("é\xff\n", "é", true)
	f.Fuzz(func(t *testing.T, text, pattern string, literal bool) {
		m, err := newMatcher(protocol.SearchRequest{Pattern: pattern, Literal: literal})
		if err != nil {
			return
		}
		s := &search{ctx: context.Background(), limit: 100, context: 2, match: m, buffer: []byte(text)}
		s.until = s.until.AddDate(9000, 0, 0)
		s.lines([]byte(text), "/f")
		lines := strings.Split(text, "\n")
		for _, each := range s.result.Matches {
			line := strings.TrimSuffix(lines[each.Line-1], "\r")
			if each.Column < 1 || each.Column > len(line)+1 {
				t.Errorf("%q in %q: %+v", pattern, text, each)
			}
		}
	})
}
