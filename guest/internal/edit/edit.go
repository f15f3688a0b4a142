// Package edit changes text files in place: exact strings for others, all edits of a request or none. A file is replaced by a rename in its own directory;
// mode, owner and the attributes of programs stay.
package edit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

const (
	// MaxFileBytes of a file that is edited or patched.
	MaxFileBytes  = 16 << 20
	maxEdits      = 100
	maxTextBytes  = 4 << 20
	maxLinesNamed = 20
)

// Apply edits a file. Edits that come while another is at work wait: none of them is lost.
func Apply(request protocol.EditRequest) (protocol.EditResult, error) {
	name, err := paths.Clean("path", request.Path)
	if err != nil {
		return protocol.EditResult{}, err
	}
	if err := check(request.Edits); err != nil {
		return protocol.EditResult{}, err
	}
	defer lock()()
	file, err := Open(name)
	if err != nil {
		return protocol.EditResult{}, err
	}
	defer file.Close()
	if sum := digest(file.Text); request.ExpectSHA256 != "" && request.ExpectSHA256 != sum {
		return protocol.EditResult{}, paths.Conflict(paths.Changed, name, "%q has sha256 %s by now", name, sum).With("sha256", sum)
	}
	if !utf8.Valid(file.Text) {
		return protocol.EditResult{}, paths.Conflict("not_text", name, "%q is not UTF-8 text", name)
	}
	text, replacements, err := replaceAll(name, file.Text, request.Edits)
	if err != nil {
		return protocol.EditResult{}, err
	}
	if !bytes.Equal(text, file.Text) {
		if err := file.Replace(text); err != nil {
			return protocol.EditResult{}, paths.Fault(name, err)
		}
	}
	return protocol.EditResult{Replacements: replacements, SHA256: digest(text), SizeBytes: int64(len(text))}, nil
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

func check(edits []protocol.TextEdit) error {
	if len(edits) < 1 || len(edits) > maxEdits {
		return fault.New(fault.InvalidArgument, "1 to %d edits are taken", maxEdits).With("field", "edits")
	}
	for i, each := range edits {
		if each.OldText == "" || len(each.OldText) > maxTextBytes || len(each.NewText) > maxTextBytes {
			return fault.New(fault.InvalidArgument, "old_text of edit %d is empty, or a text of it too long", i+1).With("field", "edits")
		}
	}
	return nil
}

func replaceAll(name string, text []byte, edits []protocol.TextEdit) (edited []byte, replacements int, err error) {
	for i, each := range edits {
		old := []byte(each.OldText)
		found := bytes.Count(text, old)
		number := strconv.Itoa(i + 1)
		switch {
		case found == 0:
			return nil, 0, paths.Conflict("no_match", name, "old_text of edit %s is not in %q%s", number, name, hint(text, old)).With("edit", number)
		case found > 1 && !each.ReplaceAll:
			return nil, 0, paths.Conflict("ambiguous", name, "old_text of edit %s is in %q %d times, in lines %s: make it longer, or use replace_all",
				number, name, found, linesOf(text, old)).With("edit", number).With("matches", strconv.Itoa(found)).With("lines", linesOf(text, old))
		}
		if len(text)+found*(len(each.NewText)-len(old)) > MaxFileBytes {
			return nil, 0, tooLarge(name)
		}
		text = bytes.ReplaceAll(text, old, []byte(each.NewText))
		replacements += found
	}
	return text, replacements, nil
}

func tooLarge(name string) error {
	return paths.Conflict(paths.TooLarge, name, "%q is, or would be, over %d bytes", name, MaxFileBytes)
}

// linesOf names the first lines where a text begins.
func linesOf(text, old []byte) string {
	var lines []string
	number, from := 1, 0
	for at := bytes.Index(text, old); at >= 0 && len(lines) < maxLinesNamed; {
		number += bytes.Count(text[from:at], []byte{'\n'})
		if line := strconv.Itoa(number); len(lines) == 0 || lines[len(lines)-1] != line {
			lines = append(lines, line)
		}
		from = at
		next := bytes.Index(text[at+len(old):], old)
		if next < 0 {
			break
		}
		at += len(old) + next
	}
	return strings.Join(lines, ", ")
}

// hint says what is near: the same text with other line ends, or with other spaces, or its first line.
func hint(text, old []byte) string {
	crlf := bytes.ReplaceAll(old, []byte("\n"), []byte("\r\n"))
	if !bytes.Equal(crlf, old) && bytes.Contains(text, crlf) {
		return "; it is there with CRLF line ends"
	}
	if at := looselyAt(text, old); at > 0 {
		return "; line " + strconv.Itoa(at) + " begins what differs only in spaces"
	}
	first, _, more := bytes.Cut(bytes.TrimSpace(old), []byte{'\n'})
	if first = bytes.TrimSpace(first); more && len(first) > 0 {
		if at := bytes.Index(text, first); at >= 0 {
			return "; its first line is there, in line " + strconv.Itoa(1+bytes.Count(text[:at], []byte{'\n'})) + ", but not what follows"
		}
	}
	return ""
}

// looselyAt finds the line from which on all of old's lines are the same but for spaces around them; 0 is nowhere.
func looselyAt(text, old []byte) int {
	wanted := bytes.Split(bytes.TrimSpace(old), []byte{'\n'})
	for i := range wanted {
		wanted[i] = bytes.TrimSpace(wanted[i])
	}
	if len(wanted[0]) == 0 || len(wanted) > 1_000 {
		return 0
	}
	lines := bytes.Split(text, []byte{'\n'})
	for at := range len(lines) - len(wanted) + 1 {
		same := 0
		for same < len(wanted) && bytes.Equal(bytes.TrimSpace(lines[at+same]), wanted[same]) {
			same++
		}
		if same == len(wanted) {
			return at + 1
		}
	}
	return 0
}
