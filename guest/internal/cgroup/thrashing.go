package cgroup

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	sampleInterval = time.Second
	// So many samples in a row are thrashing, not the last step before the kernel's out-of-memory killer.
	thrashingSamples = 4
	// Major faults between two samples: pages of programs that were thrown out and are needed at once.
	thrashingFaults = 50
	// Where more than this share of the memory is page cache, reclaim still has something to take.
	cacheShare   = 10
	victimMargin = 4 << 20
)

// usage is what memory.stat and memory.events tell at one moment.
type usage struct {
	anonBytes, fileBytes int64
	majorFaults          int64
	limitHits            int64
}

// thrashes tells whether the time since before was spent on throwing out and reading back the programs that run.
func (now usage) thrashes(before usage, limitBytes int64) bool {
	return now.limitHits > before.limitHits &&
		now.majorFaults-before.majorFaults >= thrashingFaults &&
		now.fileBytes < limitBytes/cacheShare
}

// endThrashing has the kernel kill the largest process when what runs has filled the memory but for the pages of its own programs:
// as long as those can be reclaimed and read again, the kernel's out-of-memory killer sees progress and lets that go on for minutes.
// It sleeps until the limit is hit for the first time.
func (t *Tree) endThrashing(limitBytes int64) {
	events, err := openAt(t.execs, "memory.events", unix.O_RDONLY)
	if err != nil {
		return
	}
	defer unix.Close(events)
	for {
		before, bad := t.usage(), 0
		awaitEvent(events)
		for bad < thrashingSamples {
			time.Sleep(sampleInterval)
			now := t.usage()
			if now.limitHits == before.limitHits {
				break
			}
			if now.thrashes(before, limitBytes) {
				bad++
			} else {
				bad = 0
			}
			before = now
		}
		if bad == thrashingSamples {
			t.killLargest(before.anonBytes, limitBytes)
		}
	}
}

// killLargest lowers the limit below what cannot be reclaimed, so that the kernel chooses, kills and counts a victim as it always
// does, and then sets the limit back.
func (t *Tree) killLargest(anonBytes, limitBytes int64) {
	_ = write(t.execs, "memory.max", strconv.FormatInt(max(anonBytes-victimMargin, 0), 10))
	for write(t.execs, "memory.max", strconv.FormatInt(limitBytes, 10)) != nil {
		time.Sleep(sampleInterval)
	}
}

func (t *Tree) usage() usage {
	stat, events := readFile(t.execs, "memory.stat"), readFile(t.execs, "memory.events")
	value := func(text []byte, key string) int64 {
		n, _ := eventValue(text, key) // a kernel without this figure never shows thrashing
		return n
	}
	return usage{
		anonBytes:   value(stat, "anon"),
		fileBytes:   value(stat, "file"),
		majorFaults: value(stat, "pgmajfault"),
		limitHits:   value(events, "max"),
	}
}

// awaitEvent returns when the file has changed since it was last read from this descriptor.
func awaitEvent(fd int) {
	var text [512]byte
	_, _ = unix.Pread(fd, text[:], 0)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}, -1)
		if n > 0 {
			return
		}
		if err != nil && err != unix.EINTR {
			time.Sleep(sampleInterval)
			return
		}
	}
}
