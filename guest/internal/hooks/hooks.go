// Package hooks runs what an image or its user wants done when a machine has become a new one: the executables of a directory, one after
// the other. What they do is theirs; one that fails or hangs is reported and holds nothing up beyond the deadline.
package hooks

import (
	"context"
	"errors"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/exec"
	"fuse/guest/internal/protocol"
)

const (
	maxNames    = 1024 // of the directory that are looked at
	maxHooks    = 64   // as many as the answer may hold
	outputBytes = 2048

	exitNotStarted = 126
	exitNoTimeLeft = 124
)

type Hooks struct {
	directory string
	execs     *exec.Registry

	mu         sync.Mutex
	generation int64
	results    []protocol.HookResult
}

func New(directory string, execs *exec.Registry) *Hooks {
	return &Hooks{directory: directory, execs: execs}
}

// Run runs the hooks of a machine that has taken this identity on, once: asked again for the same generation it returns what came of it.
func (h *Hooks) Run(id protocol.Identity, deadline time.Time) []protocol.HookResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.generation == id.Generation {
		return h.results
	}
	h.generation, h.results = id.Generation, h.runAll(id, deadline)
	return h.results
}

func (h *Hooks) runAll(id protocol.Identity, deadline time.Time) []protocol.HookResult {
	names, err := executables(h.directory)
	if err != nil {
		return []protocol.HookResult{{Name: path.Base(h.directory), ExitCode: exitNotStarted, Output: end(err.Error())}}
	}
	var results []protocol.HookResult
	for _, name := range names {
		results = append(results, h.run(name, id, deadline))
	}
	return results
}

func (h *Hooks) run(name string, id protocol.Identity, deadline time.Time) protocol.HookResult {
	result := protocol.HookResult{Name: name}
	if !time.Now().Before(deadline) {
		result.ExitCode, result.TimedOut, result.Output = exitNoTimeLeft, true, "not started: no time was left"
		return result
	}
	spec := protocol.ExecSpec{
		Argv: []string{path.Join(h.directory, name)},
		Cwd:  "/",
		Env: map[string]string{
			"FUSE_GENERATION": strconv.FormatInt(id.Generation, 10), "FUSE_HOSTNAME": id.Hostname, "FUSE_REASON": id.Reason,
		},
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	ended, err := h.execs.Run(ctx, spec, outputBytes)
	if err != nil {
		result.ExitCode, result.Output = exitNotStarted, end(err.Error())
		return result
	}
	result.ExitCode, result.TimedOut, result.Output = ended.ExitCode, ended.TimedOut, ended.Output
	return result
}

// executables names the files of the directory that can be run, in order. Links are followed, as the guest's own programs would; names that
// begin with a dot, directories and what cannot be executed are passed over. A directory that is missing has none.
func executables(directory string) ([]string, error) {
	file, err := os.OpenFile(directory, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	names, err := file.Readdirnames(maxNames)
	if err != nil && len(names) == 0 { // io.EOF: it is empty
		return nil, nil
	}
	slices.Sort(names)
	names = slices.DeleteFunc(names, func(name string) bool {
		info, err := os.Stat(path.Join(directory, name))
		return name[0] == '.' || err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0
	})
	return names[:min(len(names), maxHooks)], nil
}

func end(text string) string { return text[max(0, len(text)-outputBytes):] }
