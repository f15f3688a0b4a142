// Package frames is the frame format of fuse-attach/1: byte 0 the type, bytes 1-3 reserved (written 0, ignored), bytes 4-7 the
// payload's length as u32 big-endian, then the payload. A length over 1 MiB is refused before anything is allocated; unknown
// types are the reader's to skip.
package frames

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

type Type byte

const (
	Stdin    Type = 0
	Stdout   Type = 1
	Stderr   Type = 2
	Resize   Type = 3
	Exit     Type = 4
	StdinEnd Type = 5
	Ack      Type = 6
	Signal   Type = 7
	Spec     Type = 16
)

const (
	HeaderBytes     = 8
	MaxPayloadBytes = 1 << 20
)

var ErrTooLarge = errors.New("frame payload is over 1 MiB")

// Append appends one whole frame to dst. The caller keeps payloads within MaxPayloadBytes.
func Append(dst []byte, t Type, payload []byte) []byte {
	return append(AppendHeader(dst, t, len(payload)), payload...)
}

// AppendHeader appends the header of a frame whose payload of this size follows.
func AppendHeader(dst []byte, t Type, size int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, byte(t), 0, 0, 0), uint32(size))
}

// Reader reads frames off a stream without holding their payloads: after Next, the payload is taken with Read (io.EOF at its end)
// or Payload; what is left of it is skipped by the following Next.
type Reader struct {
	src    io.Reader
	left   int
	header [HeaderBytes]byte
}

func NewReader(src io.Reader) *Reader { return &Reader{src: src} }

// Next returns the type and payload size of the next frame; io.EOF at a clean end, io.ErrUnexpectedEOF inside a frame.
func (r *Reader) Next() (Type, int, error) {
	if r.left > 0 {
		if _, err := io.CopyN(io.Discard, r, int64(r.left)); err != nil {
			return 0, 0, cut(err)
		}
	}
	if _, err := io.ReadFull(r.src, r.header[:]); err != nil {
		return 0, 0, err
	}
	size := binary.BigEndian.Uint32(r.header[4:])
	if size > MaxPayloadBytes {
		return 0, 0, fmt.Errorf("%w: %d bytes", ErrTooLarge, size)
	}
	r.left = int(size)
	return Type(r.header[0]), r.left, nil
}

// Read takes payload bytes of the current frame.
func (r *Reader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	if len(p) > r.left {
		p = p[:r.left]
	}
	n, err := r.src.Read(p)
	r.left -= n
	if r.left > 0 && err != nil {
		return n, cut(err)
	}
	return n, nil
}

// Payload returns the rest of the current frame's payload, which must not be over maxBytes.
func (r *Reader) Payload(maxBytes int) ([]byte, error) {
	if r.left > maxBytes {
		return nil, fmt.Errorf("%w: %d bytes where at most %d are allowed", ErrTooLarge, r.left, maxBytes)
	}
	payload := make([]byte, r.left)
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, cut(err)
	}
	return payload, nil
}

func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
