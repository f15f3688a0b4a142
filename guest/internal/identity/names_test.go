package identity

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAFileIsReplacedWhateverLiesThere(t *testing.T) {
	for name, plant := range map[string]func(path, outside string) error{
		"nothing":         func(string, string) error { return nil },
		"a longer file":   func(path, _ string) error { return os.WriteFile(path, []byte("a much longer text"), 0o600) },
		"a symlink":       func(path, outside string) error { return os.Symlink(outside, path) },
		"a dead symlink":  func(path, _ string) error { return os.Symlink("/nope/nope", path) },
		"a directory":     func(path, _ string) error { return os.MkdirAll(path+"/full/of/things", 0o755) },
		"no parents":      func(path, _ string) error { return os.RemoveAll(filepath.Dir(path)) },
		"a read-only one": func(path, _ string) error { return os.WriteFile(path, []byte("x"), 0o400) },
	} {
		root := t.TempDir()
		path, outside := root+"/etc/hostname", root+"/outside"
		if err := os.MkdirAll(root+"/etc", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(outside, []byte("safe"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := plant(path, outside); err != nil {
			t.Fatal(err)
		}
		if err := WriteFile(path, "name\n"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "name\n" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if text, _ := os.ReadFile(outside); string(text) != "safe" {
			t.Errorf("%s: wrote through it", name)
		}
	}
}

func TestEveryNameOfTheMachineIsInItsHosts(t *testing.T) {
	want := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\tenv-1\n"
	if got := hosts("env-1"); got != want {
		t.Errorf("%q", got)
	}
}
