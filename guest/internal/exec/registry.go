package exec

import (
	"errors"
	"regexp"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/accounts"
	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

const (
	maxEnded   = 1000
	maxRevoked = 1000
	maxRunning = 4096
)

var validID = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,128}$`)

// Registry is every exec that the agent knows, running or ended.
type Registry struct {
	forker   *Forker
	newGroup func() (Group, error)
	users    *accounts.Directory
	budget   *budget

	mu      sync.Mutex
	entries map[string]*entry
	ended   []*entry // oldest first
	running int
	// revoked are ids that were deleted before they were started, oldest first: the request to start may still be on its way.
	revoked []string
}

// entry is an exec that is being started, or was.
type entry struct {
	id      string
	started chan struct{} // closed once exec or err is set
	exec    *Exec
	err     error
}

type Options struct {
	Forker   *Forker
	NewGroup func() (Group, error)
	Users    *accounts.Directory
	// OutputBudgetBytes bounds unacknowledged output of all execs together.
	OutputBudgetBytes int64
}

func NewRegistry(o Options) *Registry {
	r := &Registry{forker: o.Forker, newGroup: o.NewGroup, users: o.Users, entries: map[string]*entry{}}
	r.budget = &budget{limit: o.OutputBudgetBytes, reclaim: r.dropEndedOutput}
	return r
}

// Find returns the exec of this id, waiting for it while it is being started.
func (r *Registry) Find(id string) (*Exec, error) {
	r.mu.Lock()
	found := r.entries[id]
	r.mu.Unlock()
	if found == nil {
		return nil, unknown(id)
	}
	<-found.started
	if found.err != nil {
		return nil, unknown(id)
	}
	return found.exec, nil
}

func unknown(id string) error { return fault.New(fault.NotFound, "no exec %q", clip(id)) }

// Start starts the command under this id, unless there is one of that id already: nothing ever runs twice.
func (r *Registry) Start(id string, spec protocol.ExecSpec) (*Exec, error) {
	if !validID.MatchString(id) {
		return nil, fault.New(fault.InvalidArgument, "an exec id is 1 to 128 letters, digits, `_`, `.`, `:` and `-`").With("field", "id")
	}
	r.mu.Lock()
	if found := r.entries[id]; found != nil {
		r.mu.Unlock()
		<-found.started
		return found.exec, found.err
	}
	if slices.Contains(r.revoked, id) {
		r.mu.Unlock()
		return nil, fault.New(fault.NotFound, "exec %q was deleted before it was started", id)
	}
	if r.running >= maxRunning {
		r.mu.Unlock()
		return nil, fault.New(fault.Unavailable, "%d execs are running; wait until one has ended", maxRunning)
	}
	e := &entry{id: id, started: make(chan struct{})}
	r.entries[id] = e
	r.running++
	r.mu.Unlock()

	e.exec, e.err = r.launch(e, spec)
	if e.err != nil {
		r.mu.Lock()
		delete(r.entries, id)
		r.running--
		r.mu.Unlock()
	}
	close(e.started)
	return e.exec, e.err
}

func (r *Registry) launch(e *entry, spec protocol.ExecSpec) (*Exec, error) {
	p, group, err := r.fork(spec)
	if err != nil {
		return nil, err
	}
	started := newExec(e.id, spec, p, group, r.forker.Reaper, r.budget)
	go func() {
		started.supervise(p.ended)
		r.noteEnded(e)
	}()
	return started, nil
}

// fork starts the command in a group of its own.
func (r *Registry) fork(spec protocol.ExecSpec) (*process, Group, error) {
	c, err := resolve(spec, r.users)
	if err != nil {
		return nil, nil, err
	}
	group, err := r.newGroup()
	if err != nil {
		return nil, nil, err
	}
	p, err := r.forker.start(c, group)
	if errors.Is(err, unix.ENODEV) { // the guest has removed a cgroup that was made ahead
		group.Release()
		if group, err = r.newGroup(); err != nil {
			return nil, nil, err
		}
		p, err = r.forker.start(c, group)
	}
	if err != nil {
		group.Release()
		return nil, nil, startFailure(c, err)
	}
	return p, group, nil
}

// noteEnded keeps the newest ended execs and forgets the others.
func (r *Registry) noteEnded(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running--
	if r.entries[e.id] != e {
		return
	}
	r.ended = append(r.ended, e)
	if len(r.ended) > maxEnded {
		r.forget(r.ended[0])
	}
}

// dropEndedOutput lets go of what ended execs still keep: running ones need the memory to go on.
func (r *Registry) dropEndedOutput() {
	r.mu.Lock()
	ended := slices.Clone(r.ended)
	r.mu.Unlock()
	for _, e := range ended {
		if r.budget.used.Load() <= r.budget.limit/2 {
			return
		}
		e.exec.ring.drop()
	}
}

// forget needs mu.
func (r *Registry) forget(e *entry) {
	if r.entries[e.id] == e {
		delete(r.entries, e.id)
	}
	for i, each := range r.ended {
		if each == e {
			r.ended = append(r.ended[:i:i], r.ended[i+1:]...)
			break
		}
	}
	go e.exec.retire()
}

// Delete kills the exec's whole process tree and forgets it. An unknown id is no error, and is not started any more.
func (r *Registry) Delete(id string) {
	r.mu.Lock()
	found := r.entries[id]
	if found == nil && validID.MatchString(id) {
		r.revoked = append(r.revoked[max(0, len(r.revoked)-maxRevoked+1):], id)
	}
	r.mu.Unlock()
	if found == nil {
		return
	}
	<-found.started
	if found.err != nil {
		return
	}
	found.exec.killAll()
	r.mu.Lock()
	r.forget(found)
	r.mu.Unlock()
}

func (r *Registry) List() []protocol.ExecStatus {
	r.mu.Lock()
	entries := make([]*entry, 0, len(r.entries))
	for _, e := range r.entries {
		entries = append(entries, e)
	}
	r.mu.Unlock()
	list := []protocol.ExecStatus{}
	for _, e := range entries {
		<-e.started
		if e.err == nil {
			list = append(list, e.exec.Status())
		}
	}
	return list
}

func (r *Registry) Running() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}

// Groups is the exec of each cgroup, by the cgroup's name.
func (r *Registry) Groups() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	execs := make(map[string]string, len(r.entries))
	for id, e := range r.entries {
		select {
		case <-e.started:
			if e.err == nil {
				execs[e.exec.group.Name()] = id
			}
		default:
		}
	}
	return execs
}
