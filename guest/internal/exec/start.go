package exec

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/reaper"
)

// Group holds an exec's processes, so that all of them can be found and killed whatever they did to hide.
type Group interface {
	// FD is a cgroup directory to clone into, or negative where there are no cgroups.
	FD() int
	Kill() error
	Populated() bool
	OOMKills() int64
	// Release removes the group once it is empty; nothing else is called on it afterwards but Kill.
	Release()
}

// process is a leader that has been started, with the agent's ends of its pipes.
type process struct {
	pid            int
	ended          <-chan reaper.Status
	stdin          *os.File // nil without stdin
	stdout, stderr int      // do not block
}

// pipes are the descriptors of both sides until the fork.
type pipes struct{ child, agent [3]int }

func openPipes(withStdin bool) (pipes, error) {
	p := pipes{child: [3]int{-1, -1, -1}, agent: [3]int{-1, -1, -1}}
	for i := range p.child {
		if i == 0 && !withStdin {
			null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				p.close()
				return p, err
			}
			p.child[0] = null
			continue
		}
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			p.close()
			return p, err
		}
		if i == 0 {
			p.child[i], p.agent[i] = ends[0], ends[1]
		} else {
			p.child[i], p.agent[i] = ends[1], ends[0]
		}
	}
	return p, nil
}

func (p *pipes) close() {
	for i := range p.child {
		closeFD(&p.child[i])
		closeFD(&p.agent[i])
	}
}

func closeFD(fd *int) {
	if *fd >= 0 {
		unix.Close(*fd)
		*fd = -1
	}
}

// take gives the agent's end away as a descriptor that does not block; negative when there is none.
func (p *pipes) take(i int) (int, error) {
	fd := p.agent[i]
	if fd < 0 {
		return -1, nil
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return -1, err
	}
	p.agent[i] = -1
	return fd, nil
}

// file hands the agent's end over to the runtime's poller.
func (p *pipes) file(i int, name string) (*os.File, error) {
	fd, err := p.take(i)
	if err != nil || fd < 0 {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Forker starts children that the out-of-memory killer may take, from an agent that it may not.
type Forker struct {
	Reaper *reaper.Reaper
	// OOMScore is the agent's own oom_score_adj, opened for writing; nil leaves it alone. A child inherits the value of the moment of
	// its fork, and would keep the agent's protection if it were set afterwards and it forked before.
	OOMScore *os.File
}

// start returns the kernel's own error when there is one.
func (f *Forker) start(c command, group Group, withStdin bool) (*process, error) {
	ends, err := openPipes(withStdin)
	defer ends.close()
	if err != nil {
		return nil, err
	}
	attributes := &syscall.ProcAttr{
		Dir: c.cwd,
		Env: c.env,
		Files: []uintptr{
			uintptr(ends.child[0]), uintptr(ends.child[1]), uintptr(ends.child[2]),
		},
		Sys: &syscall.SysProcAttr{Setsid: true},
	}
	if os.Geteuid() == 0 {
		attributes.Sys.Credential = &syscall.Credential{Uid: c.account.UID, Gid: c.account.GID, Groups: c.account.Groups}
	}
	if fd := group.FD(); fd >= 0 {
		attributes.Sys.UseCgroupFD, attributes.Sys.CgroupFD = true, fd
	}
	p := &process{stdout: -1, stderr: -1}
	if p.stdin, err = ends.file(0, "stdin"); err != nil {
		return nil, err
	}
	if p.stdout, err = ends.take(1); err != nil {
		p.closeFiles()
		return nil, err
	}
	if p.stderr, err = ends.take(2); err != nil {
		p.closeFiles()
		return nil, err
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

func (p *process) closeFiles() {
	if p.stdin != nil {
		p.stdin.Close()
	}
	closeFD(&p.stdout)
	closeFD(&p.stderr)
}
