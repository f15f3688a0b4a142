package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fuse/guest/internal/hooks"
	"fuse/guest/internal/protocol"
)

// hooked is an agent with a directory of hooks.
type hooked struct {
	*guest
	directory string
	hooks     *hooks.Hooks
}

func newHooked(t *testing.T) *hooked {
	g := newGuest(t)
	directory := filepath.Join(t.TempDir(), "restored.d")
	return &hooked{guest: g, directory: directory, hooks: hooks.New(directory, g.execs)}
}

func (h *hooked) write(name string, mode os.FileMode, lines ...string) {
	h.Helper()
	text := "#!/bin/sh\n" + strings.Join(lines, "\n") + "\n"
	if err := os.MkdirAll(h.directory, 0o755); err != nil {
		h.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.directory, name), []byte(text), mode); err != nil {
		h.Fatal(err)
	}
}

func (h *hooked) run(generation int64, within time.Duration) []protocol.HookResult {
	id := protocol.Identity{Generation: generation, Hostname: "env-1", Reason: "fork"}
	return h.hooks.Run(id, time.Now().Add(within))
}

func TestHooksRunInTheOrderOfTheirNamesWithWhatTheyNeedToKnow(t *testing.T) {
	h := newHooked(t)
	h.write("20-b", 0o755, "echo second >&2", "exit 3")
	h.write("10-a", 0o755, `echo "$FUSE_GENERATION $FUSE_HOSTNAME $FUSE_REASON $HOME $(pwd) $#"`, "cat")
	want := []protocol.HookResult{{Name: "10-a", Output: "7 env-1 fork /root / 0\n"}, {Name: "20-b", ExitCode: 3, Output: "second\n"}}
	if got := h.run(7, time.Minute); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v", got)
	}
	if execs := h.execs.List(); len(execs) != 0 {
		t.Errorf("the host sees %+v", execs)
	}
}

func TestWithoutADirectoryThereAreNoHooks(t *testing.T) {
	h := newHooked(t)
	if got := h.run(1, time.Minute); got != nil {
		t.Errorf("%+v", got)
	}
	if err := os.Mkdir(h.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := h.run(2, time.Minute); got != nil {
		t.Errorf("%+v", got)
	}
}

func TestWhatCannotBeRunIsPassedOver(t *testing.T) {
	h := newHooked(t)
	h.write("10-not-executable", 0o644, "echo no")
	h.write(".hidden", 0o755, "echo no")
	h.write("unreadable", 0o111, "echo yes")
	outside := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(outside, []byte("#!/bin/sh\necho yes\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"dangling": "/nope", "loop": "loop", "to-a-directory": "/etc", "to-a-device": "/dev/zero", "to-a-program": outside} {
		if err := os.Symlink(target, filepath.Join(h.directory, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(h.directory, "directory"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := []protocol.HookResult{{Name: "to-a-program", Output: "yes\n"}, {Name: "unreadable", Output: "yes\n"}}
	if got := h.run(1, time.Minute); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v", got)
	}
}

func TestAHookThatCannotBeStartedIsReported(t *testing.T) {
	h := newHooked(t)
	h.write("10-odd", 0o755)
	if err := os.WriteFile(filepath.Join(h.directory, "10-odd"), []byte("neither script nor program"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.write("20-fine", 0o755)
	got := h.run(1, time.Minute)
	if len(got) != 2 || got[0].ExitCode != 126 || !strings.Contains(got[0].Output, "10-odd") || got[1].ExitCode != 0 {
		t.Errorf("%+v", got)
	}
}

func TestAFileInPlaceOfTheDirectoryIsReported(t *testing.T) {
	h := newHooked(t)
	if err := os.WriteFile(h.directory, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := h.run(1, time.Minute); len(got) != 1 || got[0].Name != "restored.d" || got[0].ExitCode == 0 {
		t.Errorf("%+v", got)
	}
}

func TestAHookThatHangsIsKilledWithItsTreeAndTheRestAreNotStarted(t *testing.T) {
	h := newHooked(t)
	h.write("10-hangs", 0o755, "echo before", "setsid sleep 601 &", "sleep 602", "echo after")
	h.write("20-late", 0o755, "echo no")
	got := h.run(1, 300*time.Millisecond)
	if len(got) != 2 || !got[0].TimedOut || got[0].ExitCode != 137 || got[0].Output != "before\n" || !got[1].TimedOut || got[1].ExitCode != 124 {
		t.Errorf("%+v", got)
	}
	if left := descendants(); len(left) != 0 {
		t.Errorf("%d processes are left", len(left))
	}
}

func TestWhatAHookLeavesInTheBackgroundLivesOnAndHoldsNothingUp(t *testing.T) {
	h := newHooked(t)
	h.write("10-daemon", 0o755, "(while :; do echo noise; done) &", "echo started")
	got := h.run(1, time.Minute)
	if len(got) != 1 || got[0].TimedOut || got[0].ExitCode != 0 {
		t.Errorf("%+v", got)
	}
	if left := descendants(); len(left) == 0 {
		t.Error("the daemon is gone")
	}
}

func TestOfMuchOutputTheEndIsKept(t *testing.T) {
	h := newHooked(t)
	h.write("10-loud", 0o755, "i=0; while [ $i -lt 20000 ]; do echo äöü; i=$((i+1)); done; echo the end")
	got := h.run(1, time.Minute)
	if len(got) != 1 || len(got[0].Output) > 2048 || len(got[0].Output) < 2000 || !strings.HasSuffix(got[0].Output, "äöü\nthe end\n") {
		t.Errorf("%+v", got)
	}
}

func TestHooksRunOnceForAGeneration(t *testing.T) {
	h := newHooked(t)
	h.write("10-count", 0o755, `echo x >>"$(dirname "$0")/count"; wc -l <"$(dirname "$0")/count"`)
	for i, generation := range []int64{1, 1, 2, 2, 3} {
		want := fmt.Sprintln(generation)
		if got := h.run(generation, time.Minute); len(got) != 1 || got[0].Output != want {
			t.Errorf("%d: %+v", i, got)
		}
	}
}

func TestOfTooManyHooksTheFirstAreRun(t *testing.T) {
	h := newHooked(t)
	for i := range 70 {
		h.write(fmt.Sprintf("%02d", i), 0o755)
	}
	if got := h.run(1, time.Minute); len(got) != 64 || got[63].Name != "63" {
		t.Errorf("%d: %+v", len(got), got[len(got)-1])
	}
}
