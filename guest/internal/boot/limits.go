package boot

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/cgroup"
)

const (
	// Left free beyond what kernel and agent hold at the start. With less of it the kernel spends seconds on squeezing out its last pages
	// before it kills a process that takes all memory.
	reserveMinBytes = 20 << 20
	reservePercent  = 3
	pidsPercent     = 75
	openFiles       = 65_536
	openFilesHard   = 1_048_576
)

// Memory is what the kernel has to give, in bytes.
type Memory struct{ Total, Available int64 }

func ReadMemory() (Memory, error) {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return Memory{}, err
	}
	defer file.Close()
	var memory Memory
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "MemTotal:":
			memory.Total = kib << 10
		case "MemAvailable:":
			memory.Available = kib << 10
		}
	}
	if memory.Total == 0 || memory.Available == 0 {
		return Memory{}, errors.New("no totals in /proc/meminfo")
	}
	return memory, nil
}

// ExecLimits leaves the kernel and the agent a reserve of memory and of processes.
func ExecLimits(memory Memory) (cgroup.Limits, error) {
	threads, err := readNumber("/proc/sys/kernel/threads-max")
	if err != nil {
		return cgroup.Limits{}, err
	}
	pids, err := readNumber("/proc/sys/kernel/pid_max")
	if err != nil {
		return cgroup.Limits{}, err
	}
	reserve := max(reserveMinBytes, memory.Total*reservePercent/100)
	return cgroup.Limits{
		MemoryMaxBytes: memory.Available - reserve,
		PidsMax:        min(threads, pids) * pidsPercent / 100,
	}, nil
}

// RaiseOpenFiles sets the limit that the agent and, by inheritance, its children have.
func RaiseOpenFiles() error {
	return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: openFiles, Max: openFilesHard})
}

func readNumber(name string) (int64, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}
