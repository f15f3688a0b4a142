package search

import (
	"bytes"
	"strings"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
	"fuse/guest/internal/tree"
)

const matchBytes = 128 // of a match's JSON beside its texts

func (s *search) file(file int, info *unix.Stat_t, name string) {
	text, ok := s.read(file, info)
	if !ok {
		s.result.FilesSkipped++
		return
	}
	s.result.FilesSearched++
	shown, _ := paths.Shown(name)
	s.lines(text, shown)
}

// read gives a text file's bytes, until the next file is read.
func (s *search) read(file int, info *unix.Stat_t) ([]byte, bool) {
	if info.Size > maxFileBytes && !s.inPseudo {
		return nil, false
	}
	filled := 0
	for filled <= maxFileBytes {
		if filled == len(s.buffer) {
			grown := make([]byte, min(max(2*len(s.buffer), 64<<10, int(info.Size)+1), maxFileBytes+1))
			copy(grown, s.buffer[:filled])
			s.buffer = grown
		}
		n, err := unix.Read(file, s.buffer[filled:])
		if err == unix.EINTR {
			continue
		}
		if err != nil && err != unix.EAGAIN {
			return nil, false
		}
		before := filled
		if n > 0 {
			filled += n
		}
		if before < binaryBytes && bytes.IndexByte(s.buffer[before:min(filled, binaryBytes)], 0) >= 0 {
			return nil, false
		}
		if n <= 0 {
			return s.buffer[:filled], true
		}
	}
	return nil, false
}

// lines looks at each line without its end, be it LF or CRLF.
func (s *search) lines(text []byte, name string) {
	number, at := 1, 0
	for at < len(text) && !s.stopped {
		if len(s.match.needle) > 0 { // go on at the next line that can match
			skip := bytes.Index(text[at:], s.match.needle)
			if skip < 0 {
				return
			}
			if newline := bytes.LastIndexByte(text[at:at+skip], '\n'); newline >= 0 {
				number += bytes.Count(text[at:at+newline+1], []byte{'\n'})
				at += newline + 1
			}
		}
		end := len(text)
		if newline := bytes.IndexByte(text[at:], '\n'); newline >= 0 {
			end = at + newline
		}
		if column := s.match.column(bytes.TrimSuffix(text[at:end], []byte{'\r'})); column >= 0 {
			s.found(text, at, end, protocol.SearchMatch{Path: name, Line: number, Column: column + 1})
		} else if number%1024 == 0 && s.outOfBounds() {
			return
		}
		at = end + 1
		number++
	}
}

func (s *search) found(text []byte, start, end int, match protocol.SearchMatch) {
	if len(s.result.Matches) >= s.limit || s.outOfBounds() {
		s.stop()
		return
	}
	match.Text = shownLine(text[start:end])
	for at := start; at > 0 && len(match.Before) < s.context; {
		begin := bytes.LastIndexByte(text[:at-1], '\n') + 1
		match.Before = append(match.Before, shownLine(text[begin:at-1]))
		at = begin
	}
	for i, j := 0, len(match.Before)-1; i < j; i, j = i+1, j-1 {
		match.Before[i], match.Before[j] = match.Before[j], match.Before[i]
	}
	for at := end + 1; at < len(text) && len(match.After) < s.context; {
		stop := len(text)
		if newline := bytes.IndexByte(text[at:], '\n'); newline >= 0 {
			stop = at + newline
		}
		match.After = append(match.After, shownLine(text[at:stop]))
		at = stop + 1
	}
	s.bytes += matchBytes + tree.AnswerBytes(match.Path) + tree.AnswerBytes(match.Text) + totalBytes(match.Before) + totalBytes(match.After)
	if s.bytes > maxAnswerBytes && len(s.result.Matches) > 0 {
		s.stop()
		return
	}
	s.result.Matches = append(s.result.Matches, match)
}

func totalBytes(lines []string) int {
	total := 0
	for _, line := range lines {
		total += tree.AnswerBytes(line) + 3
	}
	return total
}

// shownLine is a copy: the buffer is used again.
func shownLine(line []byte) string {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	if len(line) <= maxTextBytes {
		return strings.ToValidUTF8(string(line), "\uFFFD")
	}
	end := maxTextBytes // not in the middle of a character
	for end > maxTextBytes-4 && line[end]&0xc0 == 0x80 {
		end--
	}
	return strings.ToValidUTF8(string(line[:end]), "\uFFFD")
}
