package boot

import (
	"os"
	"runtime"
	"slices"
	"strconv"
)

const (
	maxProcessors = 2
	// How late the Go scheduler's watching thread may wake.
	watchSlackNs = 4_000_000
)

// CalmScheduler makes the Go runtime cheap on a machine where a context switch is dear, an emulated one above all. While anything runs the
// runtime has a thread that looks at the others every 20 µs, to free the processor of one that blocks in a system call; nothing here blocks
// for long, so it may look every few milliseconds. That is a third of the cost of starting a command under emulation.
func CalmScheduler() {
	runtime.GOMAXPROCS(min(runtime.NumCPU(), maxProcessors))
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	var ids []int
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil && id != os.Getpid() {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 { // the runtime starts it before any other
		_ = os.WriteFile("/proc/"+strconv.Itoa(slices.Min(ids))+"/timerslack_ns", []byte(strconv.Itoa(watchSlackNs)), 0)
	}
}
