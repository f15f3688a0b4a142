package exec

import (
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/frames"
	"fuse/guest/internal/protocol"
)

// HookEnd is how a hook ended, with the end of what it wrote to either stream.
type HookEnd struct {
	ExitCode int
	TimedOut bool
	Output   string
}

// RunHook runs a command of the machine's own, which no host lists or follows, and returns once it has ended. At the deadline its whole
// process tree is killed; what it leaves in the background when it ends by itself lives on. An error means that nothing ran.
func (r *Registry) RunHook(spec protocol.ExecSpec, deadline time.Time, tailBytes int) (HookEnd, error) {
	p, group, err := r.fork(spec)
	if err != nil {
		return HookEnd{}, err
	}
	defer group.Release()
	output := &tail{most: tailBytes}
	pumps := [2]*pump{startPump(frames.Stdout, p.stdout, output), startPump(frames.Stderr, p.stderr, output)}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	end := HookEnd{}
	select {
	case status := <-p.ended:
		end.ExitCode = exitOf(status).ExitCode
	case <-timer.C:
		end.TimedOut = true
		group.Kill()
		_ = r.forker.Reaper.Signal(p.pid, unix.SIGKILL) // a leader that left its cgroup, as root can, ends too
		end.ExitCode = exitOf(<-p.ended).ExitCode
		killGroup(group)
	}
	for _, pump := range pumps {
		pump.finish()
	}
	for _, pump := range pumps {
		<-pump.drained
	}
	end.Output = output.text()
	return end, nil
}

// tail keeps the end of what is written and lets go of the rest.
type tail struct {
	most int

	mu   sync.Mutex
	kept []byte
}

func (t *tail) reserve(most int) (int, error) { return most, nil }

func (t *tail) commit(_ int, _ frames.Type, payload []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, payload...)
	if over := len(t.kept) - t.most; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
}

// text is what is kept as a text of at most so many bytes: what is not UTF-8, a character cut at its beginning say, becomes "?".
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.kept), "?")
}
