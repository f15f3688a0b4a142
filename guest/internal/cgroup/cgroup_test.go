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

func TestThrashingIsToldFromOtherWaysToFillTheMemory(t *testing.T) {
	const limit = 170 << 20
	before := usage{anonBytes: 160 << 20, fileBytes: 4 << 20, majorFaults: 1000, limitHits: 500}
	for _, c := range []struct {
		what string
		now  usage
		want bool
	}{
		{"programs are read again and again", usage{165 << 20, 4 << 20, 1500, 900}, true},
		{"the limit was not hit", usage{165 << 20, 4 << 20, 1500, 500}, false},
		{"a large file is read", usage{100 << 20, 60 << 20, 1500, 900}, false},
		{"a file is written, with all programs in memory", usage{165 << 20, 4 << 20, 1010, 900}, false},
	} {
		if got := c.now.thrashes(before, limit); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
