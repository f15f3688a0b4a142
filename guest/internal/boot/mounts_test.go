package boot

import (
	"os"
	"testing"
)

func TestWhatTheImageHasInPlaceOfAMountPointIsMovedAside(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"nothing":     func(string) error { return nil },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a file":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a symlink":   func(path string) error { return os.Symlink("/etc", path) },
	} {
		path := t.TempDir() + "/proc"
		if err := plant(path); err != nil {
			t.Fatal(err)
		}
		if err := ensureDirectory(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := os.Lstat(path); err != nil || !info.IsDir() {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestExecsAreLeftLessThanThereIs(t *testing.T) {
	memory, err := ReadMemory()
	if err != nil {
		t.Fatal(err)
	}
	limits, err := ExecLimits(memory)
	if err != nil {
		t.Fatal(err)
	}
	if limits.MemoryMaxBytes > memory.Available-reserveMinBytes || limits.MemoryMaxBytes <= 0 || limits.PidsMax <= 0 {
		t.Errorf("%+v of %+v", limits, memory)
	}
}
