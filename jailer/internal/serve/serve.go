// Package serve starts children for a host agent and says how they end. It is a process of its own because fork copies the page tables of
// its caller, and the host agent's are large.
//
// It ends when the host agent does, however that happens: stdin ends. Sessions of their own live on, anything else is killed.
package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"fuse/jailer/internal/protocol"
)

type server struct {
	// What the host agent reads. Every child holds it until it is the program that it is to be: once it has closed, all that was started is to be seen under its own name.
	channel  *os.File
	telling  sync.Mutex
	mutex    sync.Mutex
	children map[int64]*child
}

// Run serves until the host agent is gone.
func Run() error {
	channel, err := takeChannel()
	if err != nil {
		return err
	}
	s := &server{channel: channel, children: map[int64]*child{}}
	defer s.killAllButSessions()
	commands := json.NewDecoder(os.Stdin)
	for {
		var command protocol.Command
		if err := commands.Decode(&command); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("a command that is none: %w", err)
		}
		switch {
		case command.Kill != nil:
			s.withChild(*command.Kill, (*child).kill)
		case command.Up != nil:
			s.withChild(*command.Up, (*child).up)
		default:
			go s.start(command.Start)
		}
	}
}

// takeChannel moves stdout to a descriptor that ends with exec, and puts /dev/null in its place: a child's stdout replaces descriptor 1 before it executes anything.
func takeChannel() (*os.File, error) {
	moved, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 10)
	if err != nil {
		return nil, fmt.Errorf("cannot move stdout: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	return os.NewFile(uintptr(moved), "channel"), unix.Dup3(int(null.Fd()), 1, 0)
}

func (s *server) start(start protocol.Start) {
	c, err := startChild(start, s.channel)
	if err != nil {
		s.tell(protocol.Failed{ID: start.ID, Failed: describe(err)})
		return
	}
	s.mutex.Lock()
	s.children[start.ID] = c
	s.mutex.Unlock()
	s.tell(protocol.Started{ID: start.ID, PID: c.process.Pid})
	end := c.wait()
	s.mutex.Lock()
	delete(s.children, start.ID)
	s.mutex.Unlock()
	s.tell(end)
}

func (s *server) withChild(id int64, do func(*child)) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if c, ok := s.children[id]; ok {
		do(c)
	}
}

func (s *server) killAllButSessions() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, c := range s.children {
		if !c.session {
			c.kill()
		}
	}
}

// The host agent may be gone; the end of stdin says so. One write a line: lines of several children do not mix.
func (s *server) tell(report any) {
	line, err := protocol.Line(report)
	if err != nil {
		panic(err) // every report can be written as JSON
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	_, _ = s.channel.Write(line)
}

// describe says what went wrong, with the name of the system's error: programs look for it.
func describe(err error) string {
	var number unix.Errno
	if errors.As(err, &number) {
		return fmt.Sprintf("%v (%s)", err, unix.ErrnoName(number))
	}
	return err.Error()
}
