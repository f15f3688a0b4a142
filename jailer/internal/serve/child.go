package serve

import (
	"io"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"fuse/jailer/internal/jail"
	"fuse/jailer/internal/protocol"
)

const (
	maxStderrBytes = 4 << 10
	maxStdoutBytes = 16 << 20
)

type child struct {
	id      int64
	session bool
	process *os.Process
	jailed  *jail.Jailed
	outputs sync.WaitGroup
	stdout  strings.Builder
	stderr  strings.Builder
}

func startChild(start protocol.Start, channel *os.File) (*child, error) {
	stdio, err := openStdio(start.Stdio)
	if err != nil {
		return nil, err
	}
	defer stdio.closeOthers()
	c := &child{id: start.ID, session: start.Session}
	if start.Jail == nil {
		c.process, err = startPlain(start, stdio.files)
	} else if c.jailed, err = jail.Start(start, stdio.files, channel); err == nil {
		c.process = c.jailed.Process
	}
	if err != nil {
		stdio.closeOurs()
		return nil, err
	}
	for descriptor, pipe := range stdio.pipes {
		c.outputs.Add(1)
		if descriptor == 1 {
			go c.readStdout(pipe)
		} else {
			go c.readStderr(pipe)
		}
	}
	return c, nil
}

func startPlain(start protocol.Start, files []*os.File) (*os.Process, error) {
	path, err := findProgram(start.Program, start.Env["PATH"])
	if err != nil {
		return nil, err
	}
	system := &syscall.SysProcAttr{Setsid: start.Session}
	if !start.Session {
		system.Pdeathsig = unix.SIGKILL // also when we are killed. Go's threads, whose death that would be too, live as long as we do
	}
	attributes := &os.ProcAttr{Dir: start.Cwd, Env: environment(start.Env), Files: files, Sys: system}
	return os.StartProcess(path, append([]string{start.Program}, start.Args...), attributes)
}

// findProgram looks for a bare name in the PATH that the child gets.
func findProgram(program, path string) (string, error) {
	if strings.Contains(program, "/") {
		return program, nil
	}
	for _, directory := range strings.Split(path, ":") {
		candidate := directory + "/" + program
		var stat unix.Stat_t
		if directory != "" && unix.Stat(candidate, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG && unix.Access(candidate, unix.X_OK) == nil {
			return candidate, nil
		}
	}
	return "", &os.PathError{Op: "start", Path: program, Err: syscall.ENOENT}
}

func environment(variables map[string]string) []string {
	list := make([]string, 0, len(variables)) // nil would be our own
	for name, value := range variables {
		list = append(list, name+"="+value)
	}
	return list
}

func (c *child) kill() {
	_ = c.process.Kill() // it may have ended
}

func (c *child) up() {
	if c.jailed != nil {
		c.jailed.Up()
	}
}

// Whoever writes more than the bound is killed.
func (c *child) readStdout(pipe *os.File) {
	defer c.outputs.Done()
	defer pipe.Close()
	if n, _ := io.Copy(&c.stdout, io.LimitReader(pipe, maxStdoutBytes)); n == maxStdoutBytes {
		c.kill()
		_, _ = io.Copy(io.Discard, pipe)
	}
}

// What is beyond the bound is read and dropped.
func (c *child) readStderr(pipe *os.File) {
	defer c.outputs.Done()
	defer pipe.Close()
	_, _ = io.Copy(&c.stderr, io.LimitReader(pipe, maxStderrBytes))
	_, _ = io.Copy(io.Discard, pipe)
}

// wait for its end and that of what it wrote.
func (c *child) wait() protocol.Ended {
	state, err := c.process.Wait()
	if c.jailed != nil {
		c.jailed.Up()
	}
	c.outputs.Wait()
	end := protocol.Ended{ID: c.id, Stdout: c.stdout.String(), Stderr: c.stderr.String()}
	if err != nil {
		return end // somebody else has reaped it: it ended, nobody knows how
	}
	status := state.Sys().(syscall.WaitStatus) // what it is on Linux
	if status.Signaled() {
		name := unix.SignalName(status.Signal())
		end.Signal = &name
	} else {
		code := status.ExitStatus()
		end.Code = &code
	}
	return end
}
