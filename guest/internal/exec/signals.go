package exec

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
)

func signalName(number unix.Signal) string {
	if name := unix.SignalName(number); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(int(number))
}

// ParseSignal takes a name with or without its SIG, or a number.
func ParseSignal(text string) (unix.Signal, error) {
	if number, err := strconv.Atoi(text); err == nil && number > 0 && number <= 64 {
		return unix.Signal(number), nil
	}
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if number := unix.SignalNum(name); number != 0 {
		return number, nil
	}
	return 0, fault.New(fault.InvalidArgument, "no signal named %q", clip(text)).With("field", "signal")
}
