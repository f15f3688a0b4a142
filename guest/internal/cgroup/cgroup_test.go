package cgroup

import "testing"

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
