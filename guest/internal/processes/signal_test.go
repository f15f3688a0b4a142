package processes

import (
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func start(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	command := exec.Command("sh", "-c", script)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Kill()
		command.Wait()
	})
	return command
}

func endOf(command *exec.Cmd) syscall.Signal {
	command.Wait()
	return command.ProcessState.Sys().(syscall.WaitStatus).Signal()
}

func TestWhatAppearsWhileASignalIsSentGetsItToo(t *testing.T) {
	commands := []*exec.Cmd{start(t, "exec sleep 60"), start(t, "exec sleep 60"), start(t, "exec sleep 60")}
	var calls atomic.Int64
	SignalAll(func() []int {
		var pids []int
		for _, command := range commands[:min(len(commands), int(1+calls.Add(1)/2))] {
			pids = append(pids, command.Process.Pid)
		}
		return pids
	}, unix.SIGTERM)
	for i, command := range commands {
		if got := endOf(command); got != syscall.SIGTERM {
			t.Errorf("%d: %v", i, got)
		}
	}
}

func TestAProcessThatIsNoMemberAnyMoreGetsNothing(t *testing.T) {
	command := start(t, "exec sleep 60")
	first := true
	SignalAll(func() []int {
		defer func() { first = false }()
		if first {
			return []int{command.Process.Pid, os.Getpid()}
		}
		return nil
	}, unix.SIGKILL)
	command.Process.Signal(syscall.SIGTERM)
	if got := endOf(command); got != syscall.SIGTERM {
		t.Errorf("%v", got)
	}
}

func TestATreeThatGrowsWithoutEndIsGivenUpOn(t *testing.T) {
	calls := 0
	SignalAll(func() []int { calls++; return []int{1 << 29} }, unix.SIGTERM)
	if calls > 4*maxRounds {
		t.Errorf("%d calls", calls)
	}
}

func TestDescriptorsAreLetGoOf(t *testing.T) {
	count := func() int {
		entries, _ := os.ReadDir("/proc/self/fd")
		return len(entries)
	}
	command := start(t, "exec sleep 60")
	before := count()
	for range 20 {
		SignalAll(func() []int { return slices.Repeat([]int{command.Process.Pid}, 3) }, 0)
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors became %d", before, after)
	}
}
