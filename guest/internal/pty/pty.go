// Package pty opens pseudo-terminals and keeps the agent's side of them. The agent holds the slave open too for as long as the command lives,
// so that the master does not end when a command closes its terminal for a while; once the command has ended and the slave is released, the
// master gives what is left and then its end. Closing the master hangs the terminal up for whoever still has it.
package pty

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// QueueBytes is more than the kernel keeps of a terminal's output that nobody has read.
const QueueBytes = 64 << 10

// Size of a terminal in characters.
type Size struct{ Rows, Cols uint16 }

// Terminal is one pseudo-terminal.
type Terminal struct {
	mu     sync.Mutex
	master int // does not block; negative once closed
	slave  int
}

// OpenDirectory opens the mount of devpts, so that no change of the guest's directories takes it away.
func OpenDirectory(name string) (int, error) {
	return unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// Open makes a terminal of this size in the devpts that directory is, with the user as owner of the slave.
func Open(directory int, size Size, uid uint32) (*Terminal, error) {
	master, err := unix.Openat(directory, "ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	t := &Terminal{master: master, slave: -1}
	if err := t.prepare(size, uid); err != nil {
		t.Close()
		return nil, fmt.Errorf("prepare a terminal: %w", err)
	}
	return t, nil
}

func (t *Terminal) prepare(size Size, uid uint32) error {
	if err := unix.IoctlSetPointerInt(t.master, unix.TIOCSPTLCK, 0); err != nil {
		return err
	}
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	slave, _, number := unix.Syscall(unix.SYS_IOCTL, uintptr(t.master), unix.TIOCGPTPEER, flags)
	if number != 0 {
		return number
	}
	t.slave = int(slave)
	if err := unix.Fchown(t.slave, int(uid), -1); err != nil {
		return err
	}
	settings, err := unix.IoctlGetTermios(t.slave, unix.TCGETS)
	if err != nil {
		return err
	}
	settings.Iflag |= unix.IUTF8 // one backspace takes a whole character
	if err := unix.IoctlSetTermios(t.slave, unix.TCSETS, settings); err != nil {
		return err
	}
	return t.Resize(size)
}

// Master is the descriptor to read from. It stays open until Close, which its reader alone calls.
func (t *Terminal) Master() int { return t.master }

// Slave is the descriptor that becomes the command's.
func (t *Terminal) Slave() int { return t.slave }

// Writer returns one more descriptor of the master, for the one who writes, to be closed by it.
func (t *Terminal) Writer() (int, error) {
	return unix.FcntlInt(uintptr(t.master), unix.F_DUPFD_CLOEXEC, 0)
}

// Resize sets the size; the kernel tells the processes in the foreground when it has changed. A closed terminal is let be.
func (t *Terminal) Resize(size Size) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.master < 0 {
		return nil
	}
	return unix.IoctlSetWinsize(t.master, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
}

// EndOfFile is what to type for an end of file behind `last`: the character that ends it, twice when it would only end an unfinished line.
func (t *Terminal) EndOfFile(last byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	const usual = 4
	end := byte(usual)
	if t.master < 0 {
		return []byte{end}
	}
	settings, err := unix.IoctlGetTermios(t.master, unix.TCGETS)
	if err != nil || settings.Lflag&unix.ICANON == 0 {
		return []byte{end}
	}
	end = settings.Cc[unix.VEOF]
	if last == 0 || last == '\n' || last == '\r' || last == end {
		return []byte{end}
	}
	return []byte{end, end}
}

// ReleaseSlave lets the terminal end with the last process that has it.
func (t *Terminal) ReleaseSlave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slave >= 0 {
		unix.Close(t.slave)
		t.slave = -1
	}
}

// Close hangs the terminal up.
func (t *Terminal) Close() {
	t.ReleaseSlave()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.master >= 0 {
		unix.Close(t.master)
		t.master = -1
	}
}
