package identity

import (
	"os"
	"strings"
	"testing"
)

func TestTheMachineIsRenamedInItsHostsAndNothingElseIs(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"an empty file":      {"", "127.0.1.1\tnew\n"},
		"the image's":        {standardHosts, standardHosts + "127.0.1.1\tnew\n"},
		"no last newline":    {"127.0.0.1 localhost", "127.0.0.1 localhost\n127.0.1.1\tnew\n"},
		"named once":         {"127.0.1.1\told\n", "127.0.1.1\tnew\n"},
		"named as an alias":  {"127.0.0.1  localhost old other # us\n", "127.0.0.1\tlocalhost new other # us\n"},
		"entries of theirs":  {"10.0.0.5 db old\n# 127.0.1.1 old\n127.0.1.1 old\n", "10.0.0.5 db old\n# 127.0.1.1 old\n127.0.1.1\tnew\n"},
		"another's name":     {"127.0.1.1 older\n", "127.0.1.1 older\n127.0.1.1\tnew\n"},
		"named already":      {"127.0.1.1   new # kept\n", "127.0.1.1   new # kept\n"},
		"an address alone":   {"127.0.0.1\n::1 old", "127.0.0.1\n::1\tnew\n"},
		"lines of all kinds": {"\n\t\n#\nold\n127.0.1.1 old\n", "\n\t\n#\nold\n127.0.1.1\tnew\n"},
	} {
		if got := withHostname(c.before, "old", "new"); got != c.after {
			t.Errorf("%s: %q", name, got)
		}
		if got := withHostname(c.after, "new", "new"); got != c.after {
			t.Errorf("%s, again: %q", name, got)
		}
	}
}

func TestLocalhostKeepsItsName(t *testing.T) {
	if got := withHostname("127.0.0.1 localhost\n", "localhost", "new"); got != "127.0.0.1 localhost\n127.0.1.1\tnew\n" {
		t.Errorf("%q", got)
	}
}

func TestHostsThatAreNoFileBecomeOne(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"nothing":     func(string) error { return nil },
		"a directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"a symlink":   func(path string) error { return os.Symlink("/etc/passwd", path) },
	} {
		path := t.TempDir() + "/hosts"
		if err := plant(path); err != nil {
			t.Fatal(err)
		}
		if err := renameInHosts(path, "old", "new"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != standardHosts+"127.0.1.1\tnew\n" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

func TestHostsOfAnUnlikelySizeAreLeftAlone(t *testing.T) {
	path := t.TempDir() + "/hosts"
	text := strings.Repeat("127.0.1.1 old\n", maxHostsBytes/14+1)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := renameInHosts(path, "old", "new"); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != text {
		t.Errorf("changed, %v", err)
	}
}
