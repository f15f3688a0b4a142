// Package glob finds files by patterns inside the guest, without ever following a symlink.
//
// A pattern is matched part by part: `*` any run of characters, `?` one character, `[abc]`, `[a-z]` and `[!a]` one of a set, `\x` the character
// x itself. A part that is just `**` stands for any number of directories, none included; as the last part, for every file below. All of them
// match names that begin with a dot too. `..` is refused.
package glob

import (
	"path"
	"strings"
	"unicode/utf8"

	"fuse/guest/internal/fault"
)

const (
	maxPatterns     = 1000
	maxPatternBytes = 4096
)

// pattern is a list of parts below an absolute base.
type pattern struct {
	absolute bool
	parts    []part
}

type part struct {
	any     bool   // **
	literal bool   // no wildcard: text is the name itself
	text    string // in the syntax of path.Match
}

func parsePattern(text string) (pattern, error) {
	if text == "" || len(text) > maxPatternBytes || !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return pattern{}, refused(text, "must be 1 to 4096 bytes of UTF-8 without NUL")
	}
	p := pattern{absolute: path.IsAbs(text)}
	for _, name := range strings.Split(text, "/") {
		switch {
		case name == "" || name == ".":
		case name == "..":
			return pattern{}, refused(text, "must not hold a `..` part")
		case name == "**":
			if len(p.parts) == 0 || !p.parts[len(p.parts)-1].any {
				p.parts = append(p.parts, part{any: true})
			}
		default:
			parsed, err := parsePart(name)
			if err != nil {
				return pattern{}, refused(text, "has an unfinished `[` or a trailing backslash")
			}
			p.parts = append(p.parts, parsed)
		}
	}
	if len(p.parts) == 0 {
		return pattern{}, refused(text, "names no file")
	}
	return p, nil
}

func parsePart(name string) (part, error) {
	if !strings.ContainsAny(name, `*?[\`) {
		return part{literal: true, text: name}, nil
	}
	// path.Match negates a set by `^` alone.
	text := strings.ReplaceAll(name, "[!", "[^")
	for strings.Contains(text, "**") {
		text = strings.ReplaceAll(text, "**", "*")
	}
	_, err := path.Match(text, "")
	return part{text: text}, err
}

func (p part) matches(name string) bool {
	if p.any {
		return true
	}
	if p.literal {
		return p.text == name
	}
	matched, err := path.Match(p.text, name)
	return err == nil && matched
}

func refused(text, problem string) error {
	if len(text) > 128 {
		text = text[:128]
	}
	return fault.New(fault.InvalidArgument, "pattern %q %s", text, problem).With("field", "patterns")
}
