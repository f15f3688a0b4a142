package archive

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	blockBytes = 512
	// Largest numbers of the classic header's octal fields; larger ones are pax records.
	maxOctal7  = 1<<21 - 1
	maxOctal11 = 1<<33 - 1
	maxName    = 100
)

const (
	typeFile      = '0'
	typeHardLink  = '1'
	typeSymlink   = '2'
	typeCharacter = '3'
	typeBlock     = '4'
	typeDirectory = '5'
	typeFIFO      = '6'
	typeExtended  = 'x'
)

// header is one entry. The archive is pax: what the classic header cannot hold stands in records before it.
type header struct {
	kind     byte
	name     string
	link     string
	mode     uint32
	uid, gid uint32
	size     int64
	modified unix.Timespec
	device   uint64
	records  []byte // more pax records
}

func appendRecord(records []byte, key, value string) []byte {
	length := len(key) + len(value) + 3 // the space, = and the newline
	digits := len(strconv.Itoa(length))
	if len(strconv.Itoa(length+digits)) > digits {
		digits++
	}
	return fmt.Appendf(records, "%d %s=%s\n", length+digits, key, value)
}

// encode gives the header's blocks.
func (h *header) encode() []byte {
	records := h.records
	if !classic(h.name) {
		records = appendRecord(records, "path", h.name)
	}
	if !classic(h.link) {
		records = appendRecord(records, "linkpath", h.link)
	}
	if h.size > maxOctal11 {
		records = appendRecord(records, "size", strconv.FormatInt(h.size, 10))
	}
	if h.uid > maxOctal7 {
		records = appendRecord(records, "uid", strconv.FormatUint(uint64(h.uid), 10))
	}
	if h.gid > maxOctal7 {
		records = appendRecord(records, "gid", strconv.FormatUint(uint64(h.gid), 10))
	}
	if h.modified.Nsec != 0 || h.modified.Sec < 0 || h.modified.Sec > maxOctal11 {
		records = appendRecord(records, "mtime", paxTime(h.modified))
	}
	var blocks []byte
	if len(records) > 0 {
		extended := header{kind: typeExtended, name: "PaxHeaders/entry", mode: 0o644, size: int64(len(records))}
		blocks = append(extended.block(), records...)
		blocks = append(blocks, make([]byte, padding(int64(len(records))))...)
	}
	return append(blocks, h.block()...)
}

// classic tells whether the header's own field holds a text: short, ASCII, no control characters.
func classic(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return len(text) <= maxName
}

// paxTime is decimal seconds; what lies before the epoch has its fraction counted from below.
func paxTime(at unix.Timespec) string {
	sign, seconds, nanos := "", at.Sec, at.Nsec
	if seconds < 0 && nanos > 0 {
		seconds, nanos = seconds+1, 1_000_000_000-nanos
		if seconds == 0 {
			sign = "-"
		}
	}
	if nanos == 0 {
		return strconv.FormatInt(seconds, 10)
	}
	return fmt.Sprintf("%s%d.%09d", sign, seconds, nanos)
}

func (h *header) block() []byte {
	b := make([]byte, blockBytes)
	copy(b[0:100], h.name)
	octal(b[100:108], uint64(h.mode))
	octal(b[108:116], uint64(h.uid))
	octal(b[116:124], uint64(h.gid))
	octal(b[124:136], uint64(h.size))
	octal(b[136:148], uint64(max(h.modified.Sec, 0)))
	b[156] = h.kind
	copy(b[157:257], h.link)
	copy(b[257:265], "ustar\x0000")
	octal(b[329:337], uint64(unix.Major(h.device)))
	octal(b[337:345], uint64(unix.Minor(h.device)))
	copy(b[148:156], "        ")
	sum := uint64(0)
	for _, each := range b {
		sum += uint64(each)
	}
	octal(b[148:155], sum)
	return b
}

// octal fills a field with digits and a NUL. A number that is too large is 0 there: a record has it.
func octal(field []byte, number uint64) {
	digits := len(field) - 1
	if number >= 1<<(3*digits) {
		number = 0
	}
	for i := digits - 1; i >= 0; i-- {
		field[i] = byte('0' + number&7)
		number >>= 3
	}
	field[digits] = 0
}

func padding(size int64) int64 { return -size & (blockBytes - 1) }
