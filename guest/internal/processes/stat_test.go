package processes

import (
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

const bash = "117 (a) b (c) S 1 117 117 0 -1 4194560 172 0 0 0 12 34 0 0 20 0 1 0 5047 2564096 234 18446744073709551615 1 1 0 0"

func TestAStatIsReadWhateverTheNameHolds(t *testing.T) {
	got, err := parseStat([]byte(bash))
	want := stat{pid: 117, ppid: 1, name: "a) b (c", state: "S", flags: 4194560, cpuTicks: 46, start: 5047, pages: 234}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWhatIsNoStatIsRefused(t *testing.T) {
	for _, text := range []string{"", "1", "1 (a", ")(", "1 (a) S 1", strings.Replace(bash, "117 (", "-1 (", 1), strings.Replace(bash, "S 1", "S x", 1),
		strings.Replace(bash, "S 1", "SS 1", 1), strings.Replace(bash, "5047", "-5047", 1)} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestACommandLineIsSplitAtItsNULs(t *testing.T) {
	for text, want := range map[string][]string{
		"sh\x00-c\x00echo\n\x00": {"sh", "-c", "echo\n"},
		"a\x00\x00":              {"a", ""},
		"cut":                    {"cut"},
		"":                       {"name"},
		"\x00":                   {"name"},
	} {
		if got := parseCommand([]byte(text), "name"); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestTheGroupIsTheOneBelowTheAgents(t *testing.T) {
	for text, want := range map[string]string{
		"0::/fuse/12\n": "12", "0::/fuse/12/docker/x\n": "12", "1:cpu:/x\n0::/fuse/7\n": "7", "0::/fuse-agent\n": "", "0::/\n": "", "": "", "0::/fuse/\n": "",
	} {
		if got := parseGroup([]byte(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

func TestTheUserIsTheEffectiveOne(t *testing.T) {
	if uid, err := parseUser([]byte("Name:\tUid:\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n")); err != nil || uid != 2 {
		t.Errorf("%d, %v", uid, err)
	}
	for _, text := range []string{"", "Uid:", "Uid: 1", "Uid: 1 x", "Uid: 1 4294967296"} {
		if uid, err := parseUser([]byte(text)); err == nil {
			t.Errorf("%q: %d", text, uid)
		}
	}
}

func TestAStartIsTheSameWhenItIsAskedForAgain(t *testing.T) {
	now := time.Date(2026, 11, 30, 1, 0, 0, 123_456_789, time.UTC)
	first := startedAt(now, 100*time.Second+3*time.Millisecond, 5047)
	if again := startedAt(now.Add(time.Minute+20*time.Microsecond), 160*time.Second+3*time.Millisecond, 5047); !again.Equal(first) {
		t.Errorf("%s and %s", first, again)
	}
	if want := now.Add(-50 * time.Second); first.Sub(want).Abs() > time.Second {
		t.Errorf("%s, want about %s", first, want)
	}
}

func FuzzStat(f *testing.F) {
	own, _ := os.ReadFile("/proc/self/stat")
	for _, seed := range []string{bash, string(own), "", ")(", "1 () S 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseStat(text)
		if err == nil && (s.pid < 1 || s.ppid < 0 || s.pages < 0 || len(s.state) != 1) {
			t.Errorf("%q: %+v", text, s)
		}
		if err == nil {
			startedAt(time.Now(), time.Second, s.start)
		}
	})
}

func FuzzContents(f *testing.F) {
	for _, name := range []string{"cmdline", "status", "cgroup"} {
		text, _ := os.ReadFile("/proc/self/" + name)
		f.Add(text)
	}
	f.Add([]byte("0::/fuse/12/x\nUid: 1 2\n\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(parseCommand(text, "name")) == 0 {
			t.Error("a process without a command")
		}
		if strings.ContainsAny(parseGroup(text), "/\n") {
			t.Errorf("%q: group %q", text, parseGroup(text))
		}
		if uid, err := parseUser(text); err == nil && strconv.FormatUint(uint64(uid), 10) == "" {
			t.Error("no number")
		}
	})
}
