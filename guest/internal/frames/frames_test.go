package frames

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"fuse/guest/internal/golden"
)

type vector struct {
	Name    string `json:"name"`
	Type    Type   `json:"type"`
	Payload string `json:"payload_hex"`
	Frame   string `json:"frame_hex"`
}

type broken struct {
	Name string `json:"name"`
	Hex  string `json:"hex"`
}

type vectors struct {
	Frames   []vector `json:"frames"`
	Reserved vector   `json:"reserved_bytes_are_ignored"`
	Refused  []broken `json:"refused"`
	Cut      []broken `json:"cut"`
}

func readVectors(t *testing.T) vectors {
	var v vectors
	golden.Read(t, "frames.json", &v)
	return v
}

func TestEveryGoldenFrameIsWrittenAndRead(t *testing.T) {
	v := readVectors(t)
	for _, each := range append(v.Frames, v.Reserved) {
		payload, frame := golden.Hex(t, each.Payload), golden.Hex(t, each.Frame)
		if each.Name != "" && !bytes.Equal(Append(nil, each.Type, payload), frame) {
			t.Errorf("%s: written differently", each.Name)
		}
		r := NewReader(bytes.NewReader(frame))
		kind, size, err := r.Next()
		if err != nil || kind != each.Type || size != len(payload) {
			t.Fatalf("%s: read as type %d of %d bytes, %v", each.Name, kind, size, err)
		}
		if got, err := r.Payload(MaxPayloadBytes); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("%s: payload %x, %v", each.Name, got, err)
		}
		if _, _, err := r.Next(); err != io.EOF {
			t.Errorf("%s: end is %v", each.Name, err)
		}
	}
}

func TestFramesAreReadWhereverTheStreamIsCutIntoPieces(t *testing.T) {
	v := readVectors(t)
	var stream []byte
	for _, each := range v.Frames {
		stream = append(stream, golden.Hex(t, each.Frame)...)
	}
	r := NewReader(iotest.OneByteReader(bytes.NewReader(stream)))
	for _, each := range v.Frames {
		kind, _, err := r.Next()
		if err != nil || kind != each.Type {
			t.Fatalf("%s: type %d, %v", each.Name, kind, err)
		}
		if each.Type == 200 {
			continue // skipped by the next one
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, golden.Hex(t, each.Payload)) {
			t.Fatalf("%s: payload %x, %v", each.Name, got, err)
		}
	}
	if _, _, err := r.Next(); err != io.EOF {
		t.Errorf("end is %v", err)
	}
}

func TestATooLongFrameIsRefusedByItsHeader(t *testing.T) {
	for _, each := range readVectors(t).Refused {
		if _, _, err := NewReader(bytes.NewReader(golden.Hex(t, each.Hex))).Next(); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", each.Name, err)
		}
	}
}

func TestACutFrameIsNotTakenForAnEnd(t *testing.T) {
	for _, each := range readVectors(t).Cut {
		r := NewReader(bytes.NewReader(golden.Hex(t, each.Hex)))
		_, _, err := r.Next()
		if err == nil {
			_, _, err = r.Next()
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", each.Name, err)
		}
	}
}

func TestAPayloadOverItsOwnBoundIsRefused(t *testing.T) {
	r := NewReader(bytes.NewReader(Append(nil, Ack, make([]byte, 9))))
	if _, _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Payload(8); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(Append(Append(nil, Stdin, []byte("ls\n")), StdinEnd, nil))
	f.Add([]byte{0, 0, 0, 0, 0, 0x10, 0, 1})
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := NewReader(bytes.NewReader(stream))
		var again []byte
		for {
			kind, size, err := r.Next()
			if err != nil {
				break
			}
			payload, err := r.Payload(MaxPayloadBytes)
			if err != nil {
				break
			}
			if len(payload) != size {
				t.Fatalf("%d bytes where %d were announced", len(payload), size)
			}
			again = Append(again, kind, payload)
		}
		if len(again) > len(stream) {
			t.Fatalf("%d bytes of frames in %d", len(again), len(stream))
		}
	})
}
