package exec

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/frames"
	"fuse/guest/internal/protocol"
)

const (
	sendChunkBytes  = 64 << 10
	stdinChunkBytes = 32 << 10
	maxControlBytes = 4 << 10
)

var (
	errTakenOver = errors.New("a newer conversation took the exec over")
	errFinished  = errors.New("the exit frame was sent")
)

// conversationSlot holds the one conversation that an exec has at a time.
type conversationSlot struct {
	mu      sync.Mutex
	current *Conversation
}

// goneOf is closed once the conversation of this moment is over; at once when there is none.
func (s *conversationSlot) goneOf() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	return s.current.gone
}

// Stream is the host's end of a conversation.
type Stream interface {
	io.Writer
	Flush() error
	// Abort makes reads and writes in progress, and all later ones, fail.
	Abort()
}

// Conversation is one host talking with one exec: frames from the host in, the frame stream out.
type Conversation struct {
	exec    *Exec
	ctx     context.Context
	cancel  context.CancelCauseFunc
	out     Stream
	stdin   []byte // a buffer, once there is some
	aborted chan struct{}
	gone    chan struct{}
}

// Converse makes this the exec's conversation from offset on; the one before is ended first. Run or Cancel must follow.
func (e *Exec) Converse(ctx context.Context, offset int64, out Stream) (*Conversation, error) {
	if err := ringFault(e.ring.check(offset)); err != nil {
		return nil, err
	}
	e.talk.mu.Lock()
	defer e.talk.mu.Unlock()
	if earlier := e.talk.current; earlier != nil {
		earlier.stop(errTakenOver)
		<-earlier.gone
	}
	c := &Conversation{exec: e, out: out, aborted: make(chan struct{}), gone: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	context.AfterFunc(c.ctx, c.abort)
	e.talk.current = c
	return c, nil
}

// Cancel stands in for Run when the host could not be answered.
func (c *Conversation) Cancel(cause error) {
	c.stop(cause)
	<-c.aborted
	c.leave()
}

// leave lets the next conversation in, and holds on to nothing of the host's request.
func (c *Conversation) leave() {
	close(c.gone) // first: who takes over waits for it with the slot's lock held
	slot := &c.exec.talk
	slot.mu.Lock()
	defer slot.mu.Unlock()
	if slot.current == c {
		slot.current = nil
	}
}

func (c *Conversation) stop(cause error) { c.cancel(cause) }

// abort unblocks both directions.
func (c *Conversation) abort() {
	defer close(c.aborted)
	if !errors.Is(context.Cause(c.ctx), errFinished) {
		c.out.Abort()
	}
}

// Run carries both directions until the exit frame is sent (nil) or the conversation is lost. In the first case reading of `in` goes on until
// its owner closes it; the exec has ended by then.
func (c *Conversation) Run(in *frames.Reader, offset int64) error {
	defer c.leave()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		if err := c.listen(in); err != nil && !errors.Is(err, io.EOF) {
			c.stop(err)
		}
	}()
	if err := c.talk(offset); err != nil {
		c.stop(err)
		<-c.aborted
		<-heard
		return err
	}
	c.stop(errFinished)
	<-c.aborted
	return nil
}

func (c *Conversation) talk(offset int64) error {
	buffer := make([]byte, ringFirstBytes)
	for {
		n, err := c.exec.ring.read(c.ctx, offset, buffer)
		if err != nil {
			return errors.Join(err, context.Cause(c.ctx))
		}
		if n == 0 {
			return nil
		}
		if _, err := c.out.Write(buffer[:n]); err != nil {
			return err
		}
		offset += int64(n)
		pending, ended := c.exec.ring.ahead(offset)
		switch {
		case ended:
			return nil // the end of the response flushes it
		case !pending:
			if err := c.out.Flush(); err != nil {
				return err
			}
		case len(buffer) < sendChunkBytes:
			buffer = make([]byte, sendChunkBytes)
		}
	}
}

// listen handles the host's frames until it sends no more of them (io.EOF) or the conversation is lost.
func (c *Conversation) listen(in *frames.Reader) error {
	for {
		kind, _, err := in.Next()
		if err != nil {
			return err
		}
		switch kind {
		case frames.Stdin:
			err = c.takeStdin(in)
		case frames.StdinEnd:
			err = c.exec.stdin.end(c.ctx, -1)
			if errors.Is(err, errStdinClosed) {
				err = nil // which is what was asked for
			}
		case frames.Ack:
			err = c.takeAck(in)
		case frames.Signal:
			err = c.takeSignal(in)
		}
		if err != nil {
			return err
		}
	}
}

func (c *Conversation) takeStdin(in *frames.Reader) error {
	if c.stdin == nil {
		c.stdin = make([]byte, stdinChunkBytes)
	}
	for {
		n, err := in.Read(c.stdin)
		if n > 0 {
			if err := c.exec.stdin.feed(c.ctx, c.stdin[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (c *Conversation) takeAck(in *frames.Reader) error {
	payload, err := in.Payload(8)
	if err != nil {
		return err
	}
	if len(payload) != 8 {
		return fault.New(fault.InvalidArgument, "an ack frame holds 8 bytes")
	}
	return c.exec.Ack(int64(binary.BigEndian.Uint64(payload)))
}

func (c *Conversation) takeSignal(in *frames.Reader) error {
	payload, err := in.Payload(maxControlBytes)
	if err != nil {
		return err
	}
	var wanted protocol.Signal
	if err := json.Unmarshal(payload, &wanted); err != nil {
		return fault.New(fault.InvalidArgument, "a signal frame holds JSON {signal, tree?}")
	}
	signal, err := ParseSignal(wanted.Signal)
	if err != nil {
		return err
	}
	c.exec.Signal(signal, wanted.Tree)
	return nil
}

func ringFault(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errAcked):
		return fault.New(fault.Conflict, "bytes below that offset were acknowledged and are gone")
	case errors.Is(err, errBeyond):
		return fault.New(fault.InvalidArgument, "the offset is beyond the end of the exec's stream").With("field", "offset")
	case errors.Is(err, errAbandoned):
		return fault.New(fault.NotFound, "the exec was deleted")
	default:
		return err
	}
}
