package boot

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/cgroup"
)

const (
	reserveMinBytes = 32 << 20
	reservePercent  = 6
	pidsPercent     = 75
	openFiles       = 65_536
	openFilesHard   = 1_048_576
)

// MemoryBytes is the memory that the kernel has to give.
func MemoryBytes() (int64, error) {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no MemTotal in /proc/meminfo")
}

// ExecLimits leaves the kernel and the agent a reserve of memory and of processes.
func ExecLimits(memoryBytes int64) (cgroup.Limits, error) {
	threads, err := readNumber("/proc/sys/kernel/threads-max")
	if err != nil {
		return cgroup.Limits{}, err
	}
	pids, err := readNumber("/proc/sys/kernel/pid_max")
	if err != nil {
		return cgroup.Limits{}, err
	}
	reserve := max(reserveMinBytes, memoryBytes*reservePercent/100)
	return cgroup.Limits{
		MemoryMaxBytes: memoryBytes - reserve,
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
