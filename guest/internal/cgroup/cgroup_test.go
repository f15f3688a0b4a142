package cgroup

import (
	"bytes"
	"testing"
)

func TestAnEventIsFoundByItsWholeName(t *testing.T) {
	text := []byte("low 0\noom 3\noom_kill 2\noom_group_kill 1\n")
	for key, want := range map[string]int64{"oom": 3, "oom_kill": 2, "oom_group_kill": 1, "low": 0} {
		if got, err := eventValue(text, key); err != nil || got != want {
			t.Errorf("%s: %d, %v", key, got, err)
		}
	}
	for _, key := range []string{"kill", "", "high"} {
		if got, err := eventValue(text, key); err == nil {
			t.Errorf("%q: %d", key, got)
		}
	}
}

func FuzzEventValue(f *testing.F) {
	f.Add([]byte("low 0\noom_kill 2\n"), "oom_kill")
	f.Add([]byte("oom_kill 99999999999999999999\n"), "oom_kill")
	f.Add([]byte("\n \noom_kill\noom_kill x"), "oom_kill")
	f.Fuzz(func(t *testing.T, text []byte, key string) {
		if value, err := eventValue(text, key); err == nil && !bytes.Contains(text, []byte(key)) {
			t.Errorf("%q has no %q: %d", text, key, value)
		}
	})
}
