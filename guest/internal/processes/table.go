// Package processes reads the kernel's table of processes and sends them signals. Names, arguments and owners are the guest's: they are
// bounded, and lines that do not parse are passed over.
package processes

import (
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/accounts"
	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

const (
	maxRows         = 4096
	maxCommandBytes = 4 << 10
	// Of all rows together; what is over it goes by its name. In JSON a byte may take six.
	maxCommandsBytes = 1 << 20
	maxFileBytes     = 4 << 10
)

// Table is the machine's processes.
type Table struct {
	proc  int // a directory
	users *accounts.Directory
	execs func() map[string]string
}

// NewTable reads from this directory of procfs; execs names the exec of each cgroup.
func NewTable(proc int, users *accounts.Directory, execs func() map[string]string) *Table {
	return &Table{proc: proc, users: users, execs: execs}
}

// List is every process but the kernel's own, in the order of their pids.
func (t *Table) List() (protocol.ProcessList, error) {
	pids, err := t.pids()
	if err != nil {
		return protocol.ProcessList{}, err
	}
	list := protocol.ProcessList{Processes: []protocol.Process{}}
	execs, names := t.execs(), t.users.Names()
	commands := maxCommandsBytes
	now, sinceBoot, err := clocks()
	if err != nil {
		return protocol.ProcessList{}, err
	}
	for _, pid := range pids {
		s, err := t.stat(pid)
		if err != nil || s.isKernelThread() {
			continue
		}
		if len(list.Processes) == maxRows {
			list.Truncated = true
			break
		}
		line := t.read(pid, "cmdline", min(maxCommandBytes, commands))
		commands -= len(line)
		list.Processes = append(list.Processes, protocol.Process{
			Pid: s.pid, Ppid: s.ppid, Command: parseCommand(line, s.name), User: t.user(pid, names), State: s.state,
			StartedAt:   startedAt(now, sinceBoot, s.start).UTC().Format(time.RFC3339Nano),
			CPUSeconds:  float64(s.cpuTicks) / ticksPerSecond,
			MemoryBytes: s.pages * int64(os.Getpagesize()),
			ExecID:      execs[parseGroup(t.read(pid, "cgroup", maxFileBytes))],
		})
	}
	return list, nil
}

// Signal sends a signal to a process, or to it and all its descendants. The agent and the kernel's own take none.
func (t *Table) Signal(pid int, signal unix.Signal, tree bool) error {
	gone := fault.New(fault.NotFound, "no process %d", pid)
	if pid < 1 {
		return gone
	}
	if pid == 1 || pid == os.Getpid() {
		return fault.New(fault.Conflict, "process %d is the guest agent", pid).With("reason", "agent")
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return gone
	}
	defer unix.Close(fd)
	root, err := t.stat(pid)
	if err != nil || unix.PidfdSendSignal(fd, 0, nil, 0) != nil { // the second: what was read is of the process that is held
		return gone
	}
	if root.isKernelThread() {
		return fault.New(fault.Conflict, "process %d is the kernel's", pid).With("reason", "kernel_thread")
	}
	if tree {
		t.signalTree(root, signal)
		return nil
	}
	if err := unix.PidfdSendSignal(fd, signal, nil, 0); err == unix.ESRCH {
		return gone
	} else if err != nil {
		return err
	}
	return nil
}

// signalTree stops a tree before it is killed: one that stands still does not grow.
func (t *Table) signalTree(root stat, signal unix.Signal) {
	if signal == unix.SIGKILL {
		SignalAll(t.descent(root), unix.SIGSTOP)
	}
	SignalAll(t.descent(root), signal)
}

// descent returns a function that finds the process and its descendants of the moment; the descendants of those found before count as well
// when what is between has ended.
func (t *Table) descent(root stat) func() []int {
	members := map[int]uint64{root.pid: root.start}
	return func() []int {
		pids, err := t.pids()
		if err != nil {
			return nil
		}
		children := map[int][]stat{}
		var found []int
		var visit func(stat)
		visit = func(s stat) {
			members[s.pid] = s.start
			found = append(found, s.pid)
			for _, child := range children[s.pid] {
				if start, known := members[child.pid]; !known || start != child.start {
					visit(child)
				}
			}
		}
		var known []stat
		for _, pid := range pids {
			s, err := t.stat(pid)
			if err != nil || s.isKernelThread() || s.pid == 1 {
				continue
			}
			children[s.ppid] = append(children[s.ppid], s)
			if start, is := members[s.pid]; is && start == s.start {
				known = append(known, s)
			}
		}
		for _, s := range known {
			visit(s)
		}
		return found
	}
}

func (t *Table) user(pid int, names *accounts.Names) string {
	uid, err := parseUser(t.read(pid, "status", maxFileBytes))
	if err != nil {
		return "?"
	}
	if name := names.User(uid); name != "" {
		return name
	}
	return strconv.FormatUint(uint64(uid), 10)
}

func (t *Table) stat(pid int) (stat, error) { return parseStat(t.read(pid, "stat", maxFileBytes)) }

// pids is every process of the moment, ascending.
func (t *Table) pids() ([]int, error) {
	fd, err := unix.Openat(t.proc, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	directory := os.NewFile(uintptr(fd), "proc")
	defer directory.Close()
	names, err := directory.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// read returns the first bytes of a file of a process, nothing once it has ended.
func (t *Table) read(pid int, name string, most int) []byte {
	fd, err := unix.Openat(t.proc, strconv.Itoa(pid)+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	text := make([]byte, most)
	n, err := unix.Read(fd, text)
	if err != nil || n < 0 {
		return nil
	}
	return text[:n]
}

func clocks() (now time.Time, sinceBoot time.Duration, err error) {
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return time.Time{}, 0, err
	}
	return time.Now(), time.Duration(boot.Nano()), nil
}
