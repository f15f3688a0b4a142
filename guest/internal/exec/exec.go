// Package exec runs commands for the host. An exec is one command with its whole process tree in a cgroup of its own; its output is a
// stream of frames that is kept until the host acknowledges it, so a host that loses the channel goes on where it was.
//
//	starting ──▶ running ──(leader ends, pipes drained)──▶ ended ──(DELETE, or 1 000 newer ones)──▶ forgotten
//
// An exec ends when its leader does. Background children live on unless the spec or a timeout says otherwise; what they write from
// then on is thrown away, and a terminal is hung up.
package exec

import (
	"encoding/json"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/frames"
	"fuse/guest/internal/protocol"
	"fuse/guest/internal/pty"
	"fuse/guest/internal/reaper"
)

const (
	emptyWait = 2 * time.Second
	// How long a conversation has to take the rest of an exec that is forgotten.
	farewellWait = 10 * time.Second
	emptyDelay   = 2 * time.Millisecond
)

// Exec is one command that was started.
type Exec struct {
	id      string
	spec    protocol.ExecSpec
	pid     int
	started time.Time
	group   Group
	reaper  *reaper.Reaper
	ring    *ring
	stdin   *stdin
	// terminal is nil for an exec with pipes.
	terminal *pty.Terminal
	pumps    []*pump

	timedOut atomic.Bool
	exit     protocol.ExecExit // set before the ring is finished

	talk conversationSlot
}

func newExec(id string, spec protocol.ExecSpec, p *process, group Group, reaper *reaper.Reaper, b *budget) *Exec {
	e := &Exec{
		id: id, spec: spec, pid: p.pid, started: time.Now(), group: group, reaper: reaper,
		ring: newRing(b), terminal: p.terminal,
	}
	e.pumps = p.startPumps(e.ring)
	e.stdin = newStdin(p.stdin, p.terminal, e.expectAnswer)
	return e
}

func (e *Exec) expectAnswer() {
	for _, pump := range e.pumps {
		pump.expectAnswer()
	}
}

// supervise sees the exec through from its start to its exit frame.
func (e *Exec) supervise(ended <-chan reaper.Status) {
	status := e.awaitLeader(ended)
	duration := time.Since(e.started)
	e.stdin.close()
	if e.spec.KillOnExit || e.timedOut.Load() {
		e.killAll()
	}
	drain(e.pumps)
	e.exit = exitOf(status)
	e.exit.TimedOut = e.timedOut.Load()
	e.exit.OOMKilled = e.group.OOMKills() > 0
	e.exit.StdoutBytes, e.exit.StderrBytes = forwarded(e.pumps, frames.Stdout), forwarded(e.pumps, frames.Stderr)
	e.exit.DurationMs = duration.Milliseconds()
	payload, err := json.Marshal(e.exit)
	if err != nil {
		panic(err) // of a struct of plain fields
	}
	e.ring.finish(payload)
	e.group.Release()
}

func (e *Exec) awaitLeader(ended <-chan reaper.Status) reaper.Status {
	var expiry <-chan time.Time
	if e.spec.TimeoutMs > 0 {
		timer := time.NewTimer(time.Duration(e.spec.TimeoutMs) * time.Millisecond)
		defer timer.Stop()
		expiry = timer.C
	}
	select {
	case status := <-ended:
		return status
	case <-expiry:
	}
	select {
	case status := <-ended:
		return status
	default:
	}
	e.timedOut.Store(true)
	e.group.Kill()
	e.Signal(unix.SIGKILL, false) // a leader that left its cgroup, as root can, ends too
	return <-ended
}

// killAll kills every process of the exec and waits, within a bound, until none is left.
func (e *Exec) killAll() { killGroup(e.group) }

func killGroup(group Group) {
	group.Kill()
	for deadline := time.Now().Add(emptyWait); group.Populated() && time.Now().Before(deadline); {
		time.Sleep(emptyDelay)
	}
}

// Signal sends a signal to the leader's process group, which is let be once the leader has ended, or to all that the exec started.
func (e *Exec) Signal(signal unix.Signal, tree bool) {
	if tree {
		e.group.Signal(signal)
		return
	}
	_ = e.reaper.Signal(e.pid, signal)
}

// Resize gives the exec's terminal this size; that of an exec which has ended is let be.
func (e *Exec) Resize(size protocol.TerminalSize) error {
	if e.terminal == nil {
		return fault.New(fault.Conflict, "the exec has no terminal").With("reason", "no_terminal")
	}
	if err := checkSize(size); err != nil {
		return err
	}
	return e.terminal.Resize(pty.Size{Rows: uint16(size.Rows), Cols: uint16(size.Cols)})
}

// Ack lets go of every byte of the frame stream below offset.
func (e *Exec) Ack(offset int64) error { return ringFault(e.ring.ack(offset)) }

func (e *Exec) Status() protocol.ExecStatus {
	status := protocol.ExecStatus{ID: e.id, Pid: e.pid}
	status.StdinBytes, status.StdinClosed = e.stdin.state()
	var finished bool
	status.OffsetAcked, status.OffsetEnd, finished = e.ring.state()
	status.Running = !finished
	if finished {
		exit := e.exit
		status.Exit = &exit
	}
	return status
}

// retire lets go of the output. A conversation that goes on may still take the stream to its end, within a bound.
func (e *Exec) retire() {
	select {
	case <-e.talk.goneOf():
	case <-time.After(farewellWait):
	}
	e.ring.abandon()
}

func exitOf(status reaper.Status) protocol.ExecExit {
	if status.Signaled() {
		number := status.Signal()
		return protocol.ExecExit{ExitCode: 128 + int(number), Signal: signalName(number)}
	}
	return protocol.ExecExit{ExitCode: status.ExitStatus()}
}
