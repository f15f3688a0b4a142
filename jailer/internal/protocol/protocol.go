// Package protocol is what a host agent and `fuse-jailer serve` say to each other: a JSON object a line, on stdin and stdout.
// apps/host-agent/src/vmm/spawner.ts is the other side, vmm/jail.ts says what a jail is.
package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Command is one of: a start, a kill of the child with that id, or the news that what it started is up, after which no file is opened for it any more.
type Command struct {
	Start
	Kill *int64 `json:"kill"`
	Up   *int64 `json:"up"`
}

// Start of a child. Its id is the host agent's.
type Start struct {
	ID      int64    `json:"id"`
	Program string   `json:"program"`
	Args    []string `json:"args"`
	// Of a jailed child: in the jail.
	Cwd string            `json:"cwd"`
	Env map[string]string `json:"env"`
	// A session of its own outlives us; anything else ends with us.
	Session bool `json:"session"`
	// Descriptors from 0 on.
	Stdio []Stdio `json:"stdio"`
	Jail  *Jail   `json:"jail"`
}

// Stdio is "ignore", "pipe", a file or a tap.
type Stdio struct {
	Pipe  bool
	Path  string
	Flags string
	Tap   *Tap
}

type Tap struct {
	NamespacePath string `json:"namespacePath"`
	Name          string `json:"name"`
}

func (s *Stdio) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case `"ignore"`:
		return nil
	case `"pipe"`:
		s.Pipe = true
		return nil
	}
	var object struct {
		Path  string `json:"path"`
		Flags string `json:"flags"`
		Tap   *Tap   `json:"tap"`
	}
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	if object.Tap == nil && (object.Path == "" || object.Flags != "r" && object.Flags != "a") {
		return fmt.Errorf("no stdio: %.100s", text)
	}
	s.Path, s.Flags, s.Tap = object.Path, object.Flags, object.Tap
	return nil
}

// Jail as in vmm/jail.ts.
type Jail struct {
	Root                 string   `json:"root"`
	Binds                []Bind   `json:"binds"`
	UID                  int      `json:"uid"`
	GID                  int      `json:"gid"`
	NetworkNamespacePath string   `json:"networkNamespacePath"`
	CgroupProcs          []string `json:"cgroupProcs"`
	Limits               Limits   `json:"limits"`
	Seccomp              string   `json:"seccomp"`
	ReadOnlyOpens        []string `json:"readOnlyOpens"`
}

type Bind struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	Writable bool   `json:"writable"`
	// Device nodes in it work.
	Devices bool `json:"devices"`
}

type Limits struct {
	OpenFiles     uint64 `json:"openFiles"`
	FileSizeBytes uint64 `json:"fileSizeBytes"`
	// 0: what whoever starts it has.
	LockedBytes uint64 `json:"lockedBytes"`
}

// Started, Failed and Ended are what is reported of a child: one of the first two, and after Started an Ended.
type Started struct {
	ID  int64 `json:"id"`
	PID int   `json:"pid"`
}

type Failed struct {
	ID     int64  `json:"id"`
	Failed string `json:"failed"`
}

type Ended struct {
	ID     int64   `json:"id"`
	Code   *int    `json:"code"`
	Signal *string `json:"signal"`
	Stdout string  `json:"stdout"`
	Stderr string  `json:"stderr"`
}

// Line is a report as it is sent.
func Line(report any) ([]byte, error) {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(report)
	return line.Bytes(), err
}
