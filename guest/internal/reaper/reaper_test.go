package reaper

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process has one reaper: it takes every child.
var reaper = sync.OnceValue(func() *Reaper {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	return Start()
})

func shell(t *testing.T, script string) (int, <-chan Status) {
	t.Helper()
	pid, ended, err := reaper().Fork(func() (int, error) {
		return syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
	})
	if err != nil {
		t.Fatal(err)
	}
	return pid, ended
}

func TestEveryChildsStatusReachesWhoStartedIt(t *testing.T) {
	var all sync.WaitGroup
	for code := range 50 {
		_, ended := shell(t, "exit "+string(rune('0'+code%10)))
		all.Add(1)
		go func() {
			defer all.Done()
			if status := <-ended; status.ExitStatus() != code%10 {
				t.Errorf("%d instead of %d", status.ExitStatus(), code%10)
			}
		}()
	}
	all.Wait()
}

func TestAFailedForkIsAnError(t *testing.T) {
	_, _, err := reaper().Fork(func() (int, error) {
		return syscall.ForkExec("/nope", []string{"nope"}, &syscall.ProcAttr{})
	})
	if err != unix.ENOENT {
		t.Error(err)
	}
}

func TestOrphansAreReaped(t *testing.T) {
	_, ended := shell(t, "i=0; while [ $i -lt 300 ]; do (true &); i=$((i+1)); done")
	<-ended
	for deadline := time.Now().Add(10 * time.Second); zombies(t) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d zombies are left", zombies(t))
		}
	}
}

func zombies(t *testing.T) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if fields[0] == "Z" && fields[1] == strings.TrimSpace(pid()) {
			n++
		}
	}
	return n
}

func pid() string {
	link, _ := os.Readlink("/proc/self")
	return link
}

func TestASignalReachesTheGroupAndNobodyOnceItsLeaderIsReaped(t *testing.T) {
	leader, ended := shell(t, "sleep 60 & wait")
	if err := reaper().Signal(leader, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := <-ended; status.Signal() != unix.SIGTERM {
		t.Errorf("%v", status)
	}
	if err := reaper().Signal(leader, unix.SIGTERM); err != unix.ESRCH {
		t.Errorf("%v", err)
	}
}
