// Package patch applies unified diffs: all hunks of all files, or nothing.
package patch

import (
	"strconv"
	"strings"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
)

const (
	maxPatchBytes = 1 << 20
	maxFiles      = 1000
	maxHunks      = 10_000
	devNull       = "/dev/null"
)

// fileDiff is what a patch wants of one file. An empty name is /dev/null: the file is made, or removed.
type fileDiff struct {
	from, to string
	mode     string // of a file that is made, or its new one
	hunks    []hunk
}

// hunk replaces old lines by new ones. Lines have their ends, but for a last one without.
type hunk struct {
	number   int // within its file, from 1
	from     int // line of the old file, from 1; 0 for a file that is not there
	old, new []string
}

// parser goes through a patch line by line.
type parser struct {
	lines  []string // with their ends
	at     int
	strip  int
	hunks  int
	result []fileDiff
}

func parse(text string, strip int) ([]fileDiff, error) {
	if text == "" || len(text) > maxPatchBytes {
		return nil, fault.New(fault.InvalidArgument, "patch must be 1 to %d bytes", maxPatchBytes).With("field", "patch")
	}
	p := &parser{lines: strings.SplitAfter(text, "\n"), strip: strip}
	if last := len(p.lines) - 1; p.lines[last] == "" {
		p.lines = p.lines[:last]
	}
	for p.at < len(p.lines) {
		if err := p.step(); err != nil {
			return nil, err
		}
	}
	if len(p.result) == 0 {
		return nil, fault.New(fault.InvalidArgument, "patch holds no unified diff: no `--- ` line is followed by a `+++ ` line").With("field", "patch")
	}
	return p.result, nil
}

func (p *parser) bad(format string, args ...any) error {
	message := fault.New(fault.InvalidArgument, format, args...).Message
	line := strconv.Itoa(p.at + 1)
	return fault.New(fault.InvalidArgument, "line %s of the patch: %s", line, message).With("field", "patch").With("line", line)
}

// peek is a line without its end; "" behind the last.
func (p *parser) peek(ahead int) string {
	if p.at+ahead >= len(p.lines) {
		return ""
	}
	return strings.TrimRight(p.lines[p.at+ahead], "\r\n")
}

// step takes a whole file of the patch, or a line between files, which is not looked at.
func (p *parser) step() error {
	line := p.peek(0)
	switch {
	case strings.HasPrefix(line, "diff --git "):
		return p.git()
	case strings.HasPrefix(line, "--- ") && strings.HasPrefix(p.peek(1), "+++ "):
		return p.file(fileDiff{})
	case strings.HasPrefix(line, "@@ -"):
		return p.bad("a hunk without `---` and `+++` lines before it")
	case strings.HasPrefix(line, "GIT binary patch"):
		return p.bad("binary patches are not taken")
	}
	p.at++
	return nil
}

// git takes git's lines before `---`, and a file without any text of which there are only these.
func (p *parser) git() error {
	header := strings.TrimPrefix(p.peek(0), "diff --git ")
	made, removed, f := false, false, fileDiff{}
	for p.at++; p.at < len(p.lines); p.at++ {
		line := p.peek(0)
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(line, "new file mode "):
			made, f.mode = true, strings.TrimPrefix(line, "new file mode ")
		case strings.HasPrefix(line, "deleted file mode "):
			removed = true
		case strings.HasPrefix(line, "new mode "):
			f.mode = strings.TrimPrefix(line, "new mode ")
		case word == "rename" || word == "copy":
			return p.bad("renames and copies are not taken")
		case strings.HasPrefix(line, "Binary files ") || line == "GIT binary patch":
			return p.bad("binary patches are not taken")
		case word == "index" || word == "similarity" || word == "dissimilarity" || strings.HasPrefix(line, "old mode "):
			_ = rest
		case strings.HasPrefix(line, "--- ") && strings.HasPrefix(p.peek(1), "+++ "):
			return p.file(f)
		default:
			return p.gitAlone(header, made, removed, f)
		}
	}
	return p.gitAlone(header, made, removed, f)
}

func (p *parser) gitAlone(header string, made, removed bool, f fileDiff) error {
	if !made && !removed {
		if f.mode == "" {
			return nil // nothing is changed
		}
		return p.bad("a change of mode alone is not taken; use chmod")
	}
	// `a/name b/name`: both are as long, if there is no prefix they are the same.
	half := len(header) / 2
	if len(header)%2 == 0 || header[half] != ' ' {
		return p.bad("the file's name cannot be told from `diff --git %s`", header)
	}
	name, err := p.name(header[half+1:])
	if err != nil {
		return err
	}
	if from, err := p.name(header[:half]); err != nil || from != name {
		return p.bad("the file's name cannot be told from `diff --git %s`", header)
	}
	if made {
		f.to = name
	} else {
		f.from = name
	}
	return p.add(f)
}

func (p *parser) add(f fileDiff) error {
	if len(p.result) >= maxFiles {
		return p.bad("more than %d files", maxFiles)
	}
	p.result = append(p.result, f)
	return nil
}

// file takes the `---` and `+++` lines and the hunks behind them.
func (p *parser) file(f fileDiff) error {
	var err error
	if f.from, err = p.name(strings.TrimPrefix(p.peek(0), "--- ")); err != nil {
		return err
	}
	p.at++
	if f.to, err = p.name(strings.TrimPrefix(p.peek(0), "+++ ")); err != nil {
		return err
	}
	if f.from == "" && f.to == "" {
		return p.bad("both sides are /dev/null")
	}
	p.at++
	for strings.HasPrefix(p.peek(0), "@@ ") {
		h, err := p.hunk(len(f.hunks) + 1)
		if err != nil {
			return err
		}
		f.hunks = append(f.hunks, h)
	}
	if len(f.hunks) == 0 {
		return p.bad("no hunk where one must be")
	}
	return p.add(f)
}

// name takes the leading parts off; "" is /dev/null.
func (p *parser) name(text string) (string, error) {
	if strings.HasPrefix(text, `"`) { // git writes odd names as C strings
		unquoted, err := unquote(text)
		if err != nil {
			return "", p.bad("the name %s is not quoted as git does", text)
		}
		text = unquoted
	} else {
		text, _, _ = strings.Cut(text, "\t") // a time stamp
	}
	if text == devNull {
		return "", nil
	}
	rest := text
	for range p.strip {
		_, behind, found := strings.Cut(rest, "/")
		if !found {
			return "", p.bad("%q has fewer than %d parts to take off", text, p.strip)
		}
		rest = strings.TrimLeft(behind, "/")
	}
	if rest == "" || strings.HasPrefix(rest, "/") || strings.HasSuffix(rest, "/") || strings.ContainsRune(rest, 0) || len(rest) > paths.MaxBytes {
		return "", p.bad("%q does not name a file below the directory", text)
	}
	for part := range strings.SplitSeq(rest, "/") {
		if part == ".." {
			return "", p.bad("%q holds `..`", text)
		}
	}
	return rest, nil
}

func unquote(text string) (string, error) {
	end := strings.LastIndexByte(text, '"')
	if end == 0 {
		return "", strconv.ErrSyntax
	}
	return strconv.Unquote(text[:end+1])
}

// hunk takes `@@ -from,count +to,count @@` and as many lines as it says.
func (p *parser) hunk(number int) (hunk, error) {
	if p.hunks++; p.hunks > maxHunks {
		return hunk{}, p.bad("more than %d hunks", maxHunks)
	}
	from, oldCount, newCount, ok := ranges(p.peek(0))
	if !ok {
		return hunk{}, p.bad("not a hunk's `@@ -line,count +line,count @@`")
	}
	h := hunk{number: number, from: from}
	p.at++
	for len(h.old) < oldCount || len(h.new) < newCount {
		if p.at >= len(p.lines) {
			return hunk{}, p.bad("the patch ends within a hunk: it says %d old and %d new lines, there are %d and %d",
				oldCount, newCount, len(h.old), len(h.new))
		}
		line := p.lines[p.at]
		if line == "\n" || line == "\r\n" { // an empty line of context whose space was taken for needless
			line = " " + line
		}
		switch line[0] {
		case ' ':
			h.old, h.new = append(h.old, line[1:]), append(h.new, line[1:])
		case '-':
			h.old = append(h.old, line[1:])
		case '+':
			h.new = append(h.new, line[1:])
		case '\\':
			if err := p.noNewline(&h); err != nil {
				return hunk{}, err
			}
		default:
			return hunk{}, p.bad("a line of a hunk begins with a space, - or +: it says %d old and %d new lines, there are %d and %d",
				oldCount, newCount, len(h.old), len(h.new))
		}
		if len(h.old) > oldCount || len(h.new) > newCount {
			return hunk{}, p.bad("the hunk has more lines than its %d old and %d new", oldCount, newCount)
		}
		p.at++
	}
	if strings.HasPrefix(p.peek(0), `\`) {
		if err := p.noNewline(&h); err != nil {
			return hunk{}, err
		}
		p.at++
	}
	p.end(h.old)
	p.end(h.new)
	return h, nil
}

// noNewline takes the end off the line before `\ No newline at end of file`.
func (p *parser) noNewline(h *hunk) error {
	before := p.lines[p.at-1]
	chop := func(lines []string) {
		if len(lines) > 0 {
			lines[len(lines)-1] = strings.TrimSuffix(strings.TrimSuffix(lines[len(lines)-1], "\n"), "\r")
		}
	}
	switch before[0] {
	case ' ', '\n', '\r':
		chop(h.old)
		chop(h.new)
	case '-':
		chop(h.old)
	case '+':
		chop(h.new)
	default:
		return p.bad("`\\` says something about no line")
	}
	return nil
}

// end gives the last line of a patch whose own newline was lost its end back.
func (p *parser) end(lines []string) {
	if p.at == len(p.lines) && len(lines) > 0 {
		if last := p.lines[len(p.lines)-1]; !strings.HasSuffix(last, "\n") && !strings.HasPrefix(last, `\`) && last[1:] == lines[len(lines)-1] {
			lines[len(lines)-1] += "\n"
		}
	}
}

func ranges(line string) (from, oldCount, newCount int, ok bool) {
	parts := strings.SplitN(line, " ", 5)
	if len(parts) < 4 || parts[0] != "@@" || !strings.HasPrefix(parts[3], "@@") || !strings.HasPrefix(parts[1], "-") || !strings.HasPrefix(parts[2], "+") {
		return 0, 0, 0, false
	}
	from, oldCount, oldOK := span(parts[1][1:])
	_, newCount, newOK := span(parts[2][1:])
	return from, oldCount, newCount, oldOK && newOK && oldCount+newCount > 0
}

func span(text string) (line, count int, ok bool) {
	first, second, both := strings.Cut(text, ",")
	line64, err := strconv.ParseUint(first, 10, 31)
	if err != nil {
		return 0, 0, false
	}
	if !both {
		return int(line64), 1, true
	}
	count64, err := strconv.ParseUint(second, 10, 31)
	return int(line64), int(count64), err == nil
}
