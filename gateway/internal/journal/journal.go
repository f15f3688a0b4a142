// Package journal keeps what became of a VM's connections: the latest one by one, all of them in sums.
package journal

import (
	"sync"
	"sync/atomic"
	"time"

	"fuse/gateway/internal/policy"
)

const (
	MaxEntries = 1_000
	maxLatest  = 16
	maxDetail  = 256
)

type Protocol string

const (
	DNS  Protocol = "dns"
	TLS  Protocol = "tls"
	HTTP Protocol = "http"
	TCP  Protocol = "tcp"
)

// Connection is NetworkConnection of the contract.
type Connection struct {
	At         string        `json:"at"`
	Name       string        `json:"name,omitempty"`
	Address    string        `json:"address,omitempty"`
	Port       *uint16       `json:"port,omitempty"`
	Protocol   Protocol      `json:"protocol"`
	Verdict    string        `json:"verdict"`
	Reason     policy.Reason `json:"reason,omitempty"`
	Detail     string        `json:"detail,omitempty"`
	Sent       uint64        `json:"sent_bytes"`
	Received   uint64        `json:"received_bytes"`
	DurationMs *float64      `json:"duration_ms,omitempty"`
	Count      int           `json:"count"`
}

type Refused struct {
	Connection
	Seq uint64 `json:"seq"`
}

type Totals struct {
	Sent          uint64    `json:"sent_bytes"`
	Received      uint64    `json:"received_bytes"`
	Allowed       uint64    `json:"allowed_count"`
	Refused       uint64    `json:"refused_count"`
	Open          int       `json:"open"`
	RefusedSeq    uint64    `json:"refused_seq"`
	LatestRefused []Refused `json:"latest_refused"`
}

// What names one connection, or a look-up (Port nil).
type Subject struct {
	Name     string
	Address  string
	Port     *uint16
	Protocol Protocol
}

// Entry is one line of the journal. Bytes are counted while it is open.
type Entry struct {
	subject  Subject
	began    time.Time
	seq      uint64
	reason   policy.Reason
	detail   string
	count    int
	duration time.Duration
	open     bool
	sent     atomic.Uint64
	received atomic.Uint64
	journal  *Journal
}

type Journal struct {
	sent     atomic.Uint64
	received atomic.Uint64

	take    func() bool
	mutex   sync.Mutex
	entries []*Entry // a ring: the oldest is at next
	next    int
	latest  []*Entry
	allowed uint64
	refused uint64
	seq     uint64
	open    int
}

// New keeps one entry more, up to its bound, each time that `take` says so; without, the oldest makes room.
func New(take func() bool) *Journal { return &Journal{take: take} }

// Refuse notes a refusal; one that equals the last counts with it.
func (j *Journal) Refuse(subject Subject, reason policy.Reason, detail string) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.refuse(subject, reason, detail, &Entry{began: time.Now()})
}

func (j *Journal) refuse(subject Subject, reason policy.Reason, detail string, entry *Entry) {
	j.refused++
	if len(detail) > maxDetail {
		detail = detail[:maxDetail]
	}
	if len(j.latest) > 0 {
		if last := j.latest[len(j.latest)-1]; last.equals(subject, reason, detail) {
			last.count++
			return
		}
	}
	j.seq++
	entry.subject, entry.reason, entry.detail, entry.count, entry.seq, entry.journal = subject, reason, detail, 1, j.seq, j
	entry.duration = time.Since(entry.began)
	j.keep(entry)
	j.latest = append(j.latest, entry)
	if len(j.latest) > maxLatest {
		j.latest = append(j.latest[:0], j.latest[1:]...)
	}
}

// Allow notes a connection that got through, and stays open until its entry is closed.
func (j *Journal) Allow(subject Subject, began time.Time) *Entry {
	entry := &Entry{subject: subject, began: began, count: 1, open: true, journal: j}
	j.mutex.Lock()
	defer j.mutex.Unlock()
	j.allowed++
	j.open++
	j.keep(entry)
	return entry
}

func (j *Journal) keep(entry *Entry) {
	inOrder := j.next == 0
	if inOrder && len(j.entries) < MaxEntries && j.take() {
		j.entries = append(j.entries, entry)
		return
	}
	if len(j.entries) == 0 {
		return
	}
	j.entries[j.next] = entry
	j.next = (j.next + 1) % len(j.entries)
}

// Sent counts bytes from the guest to the other side.
func (e *Entry) Sent(n int) {
	e.sent.Add(uint64(n))
	e.journal.sent.Add(uint64(n))
}

func (e *Entry) Received(n int) {
	e.received.Add(uint64(n))
	e.journal.received.Add(uint64(n))
}

// Close ends the entry; detail says what ended it, if that was not its two sides.
func (e *Entry) Close(detail string) {
	e.journal.mutex.Lock()
	defer e.journal.mutex.Unlock()
	if !e.open {
		return
	}
	e.open = false
	e.duration = time.Since(e.began)
	if detail != "" {
		e.detail = detail
	}
	e.journal.open--
}

// Refine tells what a connection turned out to speak.
func (e *Entry) Refine(protocol Protocol) {
	e.journal.mutex.Lock()
	defer e.journal.mutex.Unlock()
	e.subject.Protocol = protocol
}

func (j *Journal) Totals() Totals {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	totals := Totals{
		Sent: j.sent.Load(), Received: j.received.Load(), Allowed: j.allowed, Refused: j.refused, Open: j.open, RefusedSeq: j.seq,
		LatestRefused: make([]Refused, len(j.latest)),
	}
	for i, entry := range j.latest {
		totals.LatestRefused[i] = Refused{entry.shown(), entry.seq}
	}
	return totals
}

// Connections gives what is kept, newest first.
func (j *Journal) Connections() []Connection {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	shown := make([]Connection, 0, len(j.entries))
	for i := range j.entries {
		shown = append(shown, j.entries[(j.next+len(j.entries)-1-i)%len(j.entries)].shown())
	}
	return shown
}

func (e *Entry) equals(subject Subject, reason policy.Reason, detail string) bool {
	samePort := e.subject.Port == nil && subject.Port == nil ||
		e.subject.Port != nil && subject.Port != nil && *e.subject.Port == *subject.Port
	return samePort && e.subject.Name == subject.Name && e.subject.Address == subject.Address &&
		e.subject.Protocol == subject.Protocol && e.reason == reason && e.detail == detail
}

func (e *Entry) shown() Connection {
	connection := Connection{
		At:   e.began.UTC().Format("2006-01-02T15:04:05.000Z"),
		Name: e.subject.Name, Address: e.subject.Address, Port: e.subject.Port, Protocol: e.subject.Protocol,
		Verdict: "allowed", Reason: e.reason, Detail: e.detail, Count: e.count,
		Sent: e.sent.Load(), Received: e.received.Load(),
	}
	if e.reason != policy.Allowed {
		connection.Verdict = "refused"
	}
	if !e.open {
		milliseconds := float64(e.duration.Microseconds()) / 1000
		connection.DurationMs = &milliseconds
	}
	return connection
}
