// Package health watches what runs in the machine by a check of its user's. It reports and does nothing else.
//
//	starting ──(a pass)──▶ passing ◀──(a pass)── failing
//	   └──(retries failures in a row, none of them in the start period)──▶ failing ◀── passing, likewise
//
// The start period ends for good with the first pass. All waiting goes by the monotonic clock, which stands still with the machine.
package health

import (
	"context"
	"sync"
	"time"

	"fuse/guest/internal/exec"
	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

const (
	starting = "starting"
	passing  = "passing"
	failing  = "failing"

	// Until the first pass it is looked this often whether it passes yet. Failures count at the check's own pace only.
	firstLooks = time.Second
)

// Checker has one check at a time, or none.
type Checker struct {
	execs *exec.Registry

	mu      sync.Mutex
	current *watch
}

func New(execs *exec.Registry) *Checker { return &Checker{execs: execs} }

// Put replaces the check; the first verdict of the new one is still to come.
func (c *Checker) Put(check protocol.Healthcheck) error {
	plan, err := parse(check)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	next := &watch{plan: plan, execs: c.execs, cancel: cancel, begun: time.Now(), state: starting, since: time.Now()}
	c.replace(next)
	go next.run(ctx)
	return nil
}

// Delete ends the check, if there is one.
func (c *Checker) Delete() { c.replace(nil) }

func (c *Checker) replace(next *watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		c.current.cancel()
	}
	c.current = next
}

// Get is the state of the check.
func (c *Checker) Get() (protocol.HealthcheckState, error) {
	c.mu.Lock()
	current := c.current
	c.mu.Unlock()
	if current == nil {
		return protocol.HealthcheckState{}, fault.New(fault.NotFound, "there is no healthcheck")
	}
	return current.report(), nil
}

// watch is one check that goes on.
type watch struct {
	plan   plan
	execs  *exec.Registry
	cancel context.CancelFunc
	begun  time.Time

	mu       sync.Mutex
	state    string
	since    time.Time
	passed   bool // ever
	failures int  // in a row
	message  string
}

func (w *watch) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := w.begun
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		inStartPeriod := time.Since(w.begun) < w.plan.startPeriod
		isDue := !time.Now().Before(due)
		problem := w.try(ctx)
		if ctx.Err() != nil {
			return
		}
		if isDue {
			due = time.Now().Add(w.plan.interval)
		}
		if isDue || problem == "" {
			w.judge(problem, inStartPeriod)
		}
		if w.isNew() {
			timer.Reset(min(firstLooks, time.Until(due)))
		} else {
			timer.Reset(time.Until(due))
		}
	}
}

// isNew says whether there is no verdict yet.
func (w *watch) isNew() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state == starting
}

// judge takes the outcome of one try; "" is a pass.
func (w *watch) judge(problem string, inStartPeriod bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.message = problem
	if problem == "" {
		w.failures, w.passed = 0, true
		w.become(passing)
		return
	}
	if inStartPeriod && !w.passed {
		return
	}
	w.failures++
	if w.failures >= w.plan.retries {
		w.become(failing)
	}
}

func (w *watch) become(state string) {
	if w.state != state {
		w.state, w.since = state, time.Now()
	}
}

func (w *watch) report() protocol.HealthcheckState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return protocol.HealthcheckState{
		State: w.state, SinceMsAgo: time.Since(w.since).Milliseconds(), Failures: w.failures, Message: w.message,
	}
}
