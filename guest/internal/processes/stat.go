package processes

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"
)

const (
	// The kernel's unit of time in /proc, on every machine that Linux has programs for.
	ticksPerSecond = 100
	kernelThread   = 0x00200000 // PF_KTHREAD
)

// stat is what /proc/<pid>/stat says. A pid and its start name one process for ever.
type stat struct {
	pid, ppid int
	name      string
	state     string
	flags     uint64
	cpuTicks  uint64
	start     uint64 // ticks since the machine's boot
	pages     int64  // resident
}

func (s stat) isKernelThread() bool { return s.flags&kernelThread != 0 }

var errNotStat = errors.New("not the contents of a stat file")

// parseStat parses `pid (name) state ppid …`; the name may hold anything, parentheses and spaces too.
func parseStat(text []byte) (stat, error) {
	open, closing := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || closing < open {
		return stat{}, errNotStat
	}
	fields := strings.Fields(string(text[closing+1:]))
	const needed = 22
	if len(fields) < needed {
		return stat{}, errNotStat
	}
	numbers := reader{}
	s := stat{
		pid:      int(numbers.signed(strings.TrimSpace(string(text[:open])))),
		name:     string(text[open+1 : closing]),
		state:    fields[0],
		ppid:     int(numbers.signed(fields[1])),
		flags:    numbers.unsigned(fields[6]),
		cpuTicks: numbers.unsigned(fields[11]) + numbers.unsigned(fields[12]),
		start:    numbers.unsigned(fields[19]),
		pages:    max(numbers.signed(fields[21]), 0),
	}
	if numbers.err != nil || s.pid < 1 || s.ppid < 0 || len(s.state) != 1 {
		return stat{}, errNotStat
	}
	return s, nil
}

// reader parses numbers and keeps the first error.
type reader struct{ err error }

func (r *reader) signed(text string) int64 {
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil && r.err == nil {
		r.err = err
	}
	return number
}

func (r *reader) unsigned(text string) uint64 {
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil && r.err == nil {
		r.err = err
	}
	return number
}

// parseCommand splits a command line at its NULs. A process that has none, a zombie say, goes by its name.
func parseCommand(text []byte, name string) []string {
	text = bytes.TrimSuffix(text, []byte{0})
	if len(text) == 0 {
		return []string{name}
	}
	return strings.Split(string(text), "\x00")
}

// parseUser finds the effective uid in the text of /proc/<pid>/status.
func parseUser(text []byte) (uint32, error) {
	for line := range bytes.Lines(text) {
		if rest, found := bytes.CutPrefix(line, []byte("Uid:")); found {
			fields := strings.Fields(string(rest))
			if len(fields) < 2 {
				break
			}
			uid, err := strconv.ParseUint(fields[1], 10, 32)
			return uint32(uid), err
		}
	}
	return 0, errNotStat
}

// parseGroup finds the name of an exec's cgroup in the text of /proc/<pid>/cgroup; "" when the process is in none.
func parseGroup(text []byte) string {
	for line := range bytes.Lines(text) {
		if rest, found := bytes.CutPrefix(line, []byte("0::/fuse/")); found {
			name, _, _ := bytes.Cut(bytes.TrimSuffix(rest, []byte("\n")), []byte("/"))
			return string(name)
		}
	}
	return ""
}

// startedAt is the time of day of a start, told by clocks that are read at one moment. It is cut to the kernel's unit, so that it is mostly
// the same when it is asked for again.
func startedAt(now time.Time, sinceBoot time.Duration, start uint64) time.Time {
	const tick = time.Second / ticksPerSecond
	return now.Add(-sinceBoot).Round(tick).Add(time.Duration(min(start, 1<<40)) * tick)
}
