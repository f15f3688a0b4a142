package exec

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/frames"
	"fuse/guest/internal/pty"
	"fuse/guest/internal/reaper"
)

// Group holds an exec's processes, so that all of them can be found and killed whatever they did to hide.
type Group interface {
	// Name is the last part of the cgroup's path.
	Name() string
	// FD is a cgroup directory to clone into, or negative where there are no cgroups.
	FD() int
	Kill() error
	// Signal reaches every process that is in the group once it returns.
	Signal(unix.Signal)
	Populated() bool
	OOMKills() int64
	// Release removes the group once it is empty; nothing else is called on it afterwards but Kill, Signal and Name.
	Release()
}

// process is a leader that has been started, with the agent's ends of its pipes or terminal. None of the descriptors blocks; the absent ones
// are negative.
type process struct {
	pid                   int
	ended                 <-chan reaper.Status
	stdin, stdout, stderr int
	// terminal stands for stdout and stderr.
	terminal *pty.Terminal
}

// startPumps takes the output over.
func (p *process) startPumps(to sink) []*pump {
	if p.terminal != nil {
		return []*pump{startTerminalPump(p.terminal, to)}
	}
	return []*pump{startPump(frames.Stdout, p.stdout, to), startPump(frames.Stderr, p.stderr, to)}
}

func (p *process) closeFiles() {
	closeFD(&p.stdin)
	closeFD(&p.stdout)
	closeFD(&p.stderr)
	if p.terminal != nil {
		p.terminal.Close()
	}
}

// files are the child's standard streams until the fork.
type files [3]int

func (f *files) close() {
	for i := range f {
		closeFD(&f[i])
	}
}

// connect makes the streams of a command, on error none.
func (f *Forker) connect(c command) (*process, files, error) {
	p := &process{stdin: -1, stdout: -1, stderr: -1}
	child := files{-1, -1, -1}
	var err error
	if c.tty != nil {
		err = p.openTerminal(f.Terminals, c, &child)
	} else {
		err = p.openPipes(c.stdin, &child)
	}
	if err != nil {
		child.close()
		p.closeFiles()
	}
	return p, child, err
}

func (p *process) openTerminal(devpts int, c command, child *files) error {
	var err error
	p.terminal, err = pty.Open(devpts, pty.Size{Rows: uint16(c.tty.Rows), Cols: uint16(c.tty.Cols)}, c.account.UID)
	if err != nil {
		return err
	}
	if p.stdin, err = p.terminal.Writer(); err != nil {
		return err
	}
	child[0], err = unix.FcntlInt(uintptr(p.terminal.Slave()), unix.F_DUPFD_CLOEXEC, 0)
	return err
}

func (p *process) openPipes(withStdin bool, child *files) error {
	var err error
	if withStdin {
		child[0], p.stdin, err = openPipe(false)
	} else {
		child[0], err = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return err
	}
	if p.stdout, child[1], err = openPipe(true); err != nil {
		return err
	}
	p.stderr, child[2], err = openPipe(true)
	return err
}

// openPipe opens a pipe of which the agent reads or writes; that end does not block.
func openPipe(agentReads bool) (reading, writing int, err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, err
	}
	ours := ends[1]
	if agentReads {
		ours = ends[0]
	}
	if err := unix.SetNonblock(ours, true); err != nil {
		unix.Close(ends[0])
		unix.Close(ends[1])
		return -1, -1, err
	}
	return ends[0], ends[1], nil
}

func closeFD(fd *int) {
	if *fd >= 0 {
		unix.Close(*fd)
		*fd = -1
	}
}

// Forker starts children that the out-of-memory killer may take, from an agent that it may not.
type Forker struct {
	Reaper *reaper.Reaper
	// OOMScore is the agent's own oom_score_adj, opened for writing; nil leaves it alone. A child inherits the value of the moment of
	// its fork, and would keep the agent's protection if it were set afterwards and it forked before.
	OOMScore *os.File
	// Terminals is the directory of devpts.
	Terminals int
}

// start returns the kernel's own error when there is one.
func (f *Forker) start(c command, group Group) (*process, error) {
	p, child, err := f.connect(c)
	if err != nil {
		return nil, err
	}
	defer child.close()
	attributes := &syscall.ProcAttr{
		Dir:   c.cwd,
		Env:   c.env,
		Files: []uintptr{uintptr(child[0]), uintptr(child[1]), uintptr(child[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	if p.terminal != nil {
		attributes.Files = []uintptr{uintptr(child[0]), uintptr(child[0]), uintptr(child[0])}
		attributes.Sys.Setctty = true // the child's descriptor 0
	}
	if os.Geteuid() == 0 {
		attributes.Sys.Credential = &syscall.Credential{Uid: c.account.UID, Gid: c.account.GID, Groups: c.account.Groups}
	}
	if fd := group.FD(); fd >= 0 {
		attributes.Sys.UseCgroupFD, attributes.Sys.CgroupFD = true, fd
	}
	p.pid, p.ended, err = f.Reaper.Fork(func() (int, error) {
		f.scoreOOM("0")
		defer f.scoreOOM("-1000")
		return syscall.ForkExec(c.program, c.argv, attributes)
	})
	if err != nil {
		p.closeFiles()
		return nil, err
	}
	return p, nil
}

func (f *Forker) scoreOOM(value string) {
	if f.OOMScore != nil {
		f.OOMScore.WriteAt([]byte(value), 0)
	}
}
