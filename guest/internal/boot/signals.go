package boot

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// IgnoreSignals keeps PID 1 alive when the guest signals it. The signals are caught, not ignored: children would inherit the ignoring.
func IgnoreSignals() {
	caught := make(chan os.Signal, 1)
	for number := unix.Signal(1); number < 32; number++ {
		switch number {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG: // the last is the Go scheduler's own
		default:
			signal.Notify(caught, number)
		}
	}
	go func() {
		for range caught {
		}
	}()
}
