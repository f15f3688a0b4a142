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

func TestAGenerationIsReplacedAsAWhole(t *testing.T) {
	name := t.TempDir() + "/run/generation"
	for _, text := range []string{"1795977835251\n", "7\n"} {
		if err := replaceFile(name, text); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || string(got) != text {
			t.Errorf("%q, %v", got, err)
		}
	}
	before, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(name, "8\n"); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(name); err != nil || os.SameFile(before, after) {
		t.Errorf("written in place, %v", err)
	}
	if names, err := os.ReadDir(filepath.Dir(name)); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}

func TestAGenerationTakesThePlaceOfADirectory(t *testing.T) {
	name := t.TempDir() + "/generation"
	if err := os.MkdirAll(name+"/full", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(name, "8\n"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "8\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestACopyIsChangedOnlyWhereThereIsOne(t *testing.T) {
	directory := t.TempDir()
	file, link := directory+"/machine-id", directory+"/link"
	for name, plant := range map[string]error{
		"link": os.Symlink("/etc/nothing", link), "directory": os.Mkdir(directory+"/directory", 0o755), "file": os.WriteFile(file, []byte("old and longer\n"), 0o444),
	} {
		if plant != nil {
			t.Fatalf("%s: %v", name, plant)
		}
	}
	for _, name := range []string{directory + "/none", file + "/none", link, directory + "/directory", file} {
		if err := overwriteCopy(name, "new\n"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "new\n" {
		t.Errorf("%q, %v", text, err)
	}
	if names, err := os.ReadDir(directory); err != nil || len(names) != 3 {
		t.Errorf("%v, %v", names, err)
	}
}
