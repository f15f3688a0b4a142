package exec

import (
	"context"
	"errors"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/frames"
	"fuse/guest/internal/protocol"
)

// End is how a command ended, with the end of what it wrote to either stream.
type End struct {
	ExitCode int
	TimedOut bool
	Output   string
}

// Run runs a command of the machine's own, a hook or a check, which no host lists or follows, and returns once it has ended. When the context
// is done before, its whole process tree is killed; what it leaves in the background when it ends by itself lives on, unless the spec says
// otherwise. An error means that nothing ran.
func (r *Registry) Run(ctx context.Context, spec protocol.ExecSpec, tailBytes int) (End, error) {
	p, group, err := r.fork(spec)
	if err != nil {
		return End{}, err
	}
	defer group.Release()
	closeFD(&p.stdin)
	output := &tail{most: tailBytes}
	pumps := p.startPumps(output)
	end := End{}
	select {
	case status := <-p.ended:
		end.ExitCode = exitOf(status).ExitCode
		if spec.KillOnExit {
			killGroup(group)
		}
	case <-ctx.Done():
		end.TimedOut = errors.Is(ctx.Err(), context.DeadlineExceeded)
		group.Kill()
		_ = r.forker.Reaper.Signal(p.pid, unix.SIGKILL) // a leader that left its cgroup, as root can, ends too
		end.ExitCode = exitOf(<-p.ended).ExitCode
		killGroup(group)
	}
	drain(pumps)
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
