package edit

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

func file(t *testing.T, text string) string {
	t.Helper()
	name := t.TempDir() + "/a -file\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func swap(old, new string) protocol.TextEdit { return protocol.TextEdit{OldText: old, NewText: new} }

func refused(t *testing.T, err error, code fault.Code, reason string) *fault.Error {
	t.Helper()
	var known *fault.Error
	if !errors.As(err, &known) || known.Code != code || known.Details["reason"] != reason {
		t.Errorf("%v, want %s %s", err, code, reason)
		return &fault.Error{}
	}
	return known
}

func TestEditsAreAppliedOneAfterTheOther(t *testing.T) {
	for _, each := range []struct {
		text, want   string
		replacements int
		edits        []protocol.TextEdit
	}{
		{"a b c", "a X c", 1, []protocol.TextEdit{swap("b", "X")}},
		{"a b c", "a Y c", 2, []protocol.TextEdit{swap("b", "X"), swap("X", "Y")}},
		{"aaaa", "bbbb", 4, []protocol.TextEdit{{OldText: "a", NewText: "b", ReplaceAll: true}}},
		{"aaaa", "bb", 2, []protocol.TextEdit{{OldText: "aa", NewText: "b", ReplaceAll: true}}},
		{"a\r\nb\r\nc", "a\r\nB\r\nc", 1, []protocol.TextEdit{swap("b", "B")}},
		{"x", "", 1, []protocol.TextEdit{swap("x", "")}},
		{"$1 \\0 .*", "$2 \\0 .*", 1, []protocol.TextEdit{swap("$1", "$2")}},
		{"e\u0301 \u00e9", "e\u0301 e", 1, []protocol.TextEdit{swap("\u00e9", "e")}},
		{"same", "same", 1, []protocol.TextEdit{swap("same", "same")}},
		{"no newline", "no newline\n", 1, []protocol.TextEdit{swap("newline", "newline\n")}},
	} {
		name := file(t, each.text)
		got, err := Apply(protocol.EditRequest{Path: name, Edits: each.edits})
		text, _ := os.ReadFile(name)
		if err != nil || string(text) != each.want || got.Replacements != each.replacements || got.SHA256 != digest(text) || got.SizeBytes != int64(len(text)) {
			t.Errorf("%q: %q, %+v, %v", each.text, text, got, err)
		}
	}
}

func TestWhatDoesNotMatchOnceIsToldAndChangesNothing(t *testing.T) {
	name := file(t, "one\ntwo\n  three\ntwo\r\nfour\n")
	for reason, edits := range map[string][]protocol.TextEdit{
		"no_match": {swap("one", "1"), swap("five", "5")}, "ambiguous": {swap("one", "1"), swap("two", "2")},
	} {
		_, err := Apply(protocol.EditRequest{Path: name, Edits: edits})
		known := refused(t, err, fault.Conflict, reason)
		if known.Details["edit"] != "2" || known.Details["path"] != name {
			t.Errorf("%v", known.Details)
		}
		if reason == "ambiguous" && (known.Details["matches"] != "2" || known.Details["lines"] != "2, 4") {
			t.Errorf("%v", known.Details)
		}
	}
	for old, hint := range map[string]string{"two\nfour": "CRLF", "\tthree": "line 3", "one\nfour": "line 1", "x": ""} {
		_, err := Apply(protocol.EditRequest{Path: name, Edits: []protocol.TextEdit{swap(old, "")}})
		if known := refused(t, err, fault.Conflict, "no_match"); !strings.Contains(known.Message, hint) {
			t.Errorf("%q: %s", old, known.Message)
		}
	}
	if text, _ := os.ReadFile(name); string(text) != "one\ntwo\n  three\ntwo\r\nfour\n" {
		t.Errorf("%q", text)
	}
}

func TestAFileThatChangedIsNotEdited(t *testing.T) {
	name := file(t, "text")
	good, bad := digest([]byte("text")), digest([]byte("other"))
	_, err := Apply(protocol.EditRequest{Path: name, Edits: []protocol.TextEdit{swap("t", "T"), swap("text", "x")}, ExpectSHA256: bad})
	if known := refused(t, err, fault.Conflict, paths.Changed); known.Details["sha256"] != good {
		t.Errorf("%v", known.Details)
	}
	if _, err := Apply(protocol.EditRequest{Path: name, Edits: []protocol.TextEdit{swap("text", "x")}, ExpectSHA256: good}); err != nil {
		t.Error(err)
	}
	f, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	os.WriteFile(name, []byte("meanwhile"), 0o600)
	refused(t, f.Replace([]byte("y")), fault.Conflict, paths.Changed)
}

func TestModeOwnerAndAttributesStayAndLinksLead(t *testing.T) {
	name := file(t, "text")
	os.Chown(name, 12, 34)
	os.Chmod(name, 0o751|os.ModeSetuid)
	unix.Setxattr(name, "user.note", []byte("n"), 0)
	link := name + "link"
	os.Symlink("a -file\n", link)
	if _, err := Apply(protocol.EditRequest{Path: link, Edits: []protocol.TextEdit{swap("text", "new")}}); err != nil {
		t.Fatal(err)
	}
	var info unix.Stat_t
	unix.Lstat(name, &info)
	value := make([]byte, 8)
	n, err := unix.Getxattr(name, "user.note", value)
	if info.Uid != 12 || info.Gid != 34 || info.Mode&0o7777 != 0o4751 || err != nil || string(value[:n]) != "n" {
		t.Errorf("%+v, %q, %v", info, value, err)
	}
	if target, err := os.Readlink(link); err != nil || target != "a -file\n" {
		t.Errorf("%q, %v", target, err)
	}
	entries, _ := os.ReadDir(name[:strings.LastIndex(name, "/")])
	if len(entries) != 2 {
		t.Errorf("%v", entries)
	}
}

func TestWhatIsNoTextFileIsRefused(t *testing.T) {
	root := t.TempDir()
	unix.Mkfifo(root+"/pipe", 0o600)
	os.WriteFile(root+"/binary", []byte("text\xff\x00"), 0o600)
	os.WriteFile(root+"/large", make([]byte, MaxFileBytes+1), 0o600)
	os.WriteFile(root+"/grows", []byte(strings.Repeat("x", MaxFileBytes)), 0o600)
	os.Symlink("loop", root+"/loop")
	edits := []protocol.TextEdit{{OldText: "x", NewText: "yy", ReplaceAll: true}}
	for name, reason := range map[string]string{
		"/pipe": paths.NotRegularFile, "": paths.IsADirectory, "/binary": "not_text", "/large": paths.TooLarge, "/grows": paths.TooLarge,
	} {
		_, err := Apply(protocol.EditRequest{Path: root + name, Edits: edits})
		refused(t, err, fault.Conflict, reason)
	}
	_, err := Apply(protocol.EditRequest{Path: root + "/nope", Edits: edits})
	refused(t, err, fault.NotFound, "")
	for _, bad := range []protocol.EditRequest{{Path: "x", Edits: edits}, {Path: root}, {Path: root, Edits: []protocol.TextEdit{{}}}, {Path: root, Edits: make([]protocol.TextEdit, 101)}} {
		_, err := Apply(bad)
		refused(t, err, fault.InvalidArgument, "")
	}
}

func TestEditsAtTheSameTimeAreAllThere(t *testing.T) {
	name := file(t, "0123456789abcdef")
	var all sync.WaitGroup
	for _, digit := range "0123456789abcdef" {
		all.Add(1)
		go func() {
			defer all.Done()
			if _, err := Apply(protocol.EditRequest{Path: name, Edits: []protocol.TextEdit{swap(string(digit), "<"+strings.ToUpper(string(digit))+">")}}); err != nil {
				t.Error(err)
			}
		}()
	}
	all.Wait()
	text, _ := os.ReadFile(name)
	if strings.Count(string(text), "<") != 16 {
		t.Errorf("%q", text)
	}
}

func FuzzReplace(f *testing.F) {
	f.Add("a b a", "a", "c", true)
	f.Add("a\nb", "a\nb", "", false)
	f.Add("x", " x ", "", false)
	f.Fuzz(func(t *testing.T, text, old, new string, all bool) {
		if old == "" {
			return
		}
		got, n, err := replaceAll("/f", []byte(text), []protocol.TextEdit{{OldText: old, NewText: new, ReplaceAll: all}})
		if err != nil {
			return
		}
		if string(got) != strings.ReplaceAll(text, old, new) || n != strings.Count(text, old) || (n != 1 && !all) {
			t.Errorf("%q, %d", got, n)
		}
	})
}
