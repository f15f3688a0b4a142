package patch

import (
	"strconv"
	"strings"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
)

const (
	maxDetailBytes = 1000
	// maxSteps bounds the comparisons of lines, of all hunks of a file.
	maxSteps = 50_000_000
)

// applyHunks gives a text with its hunks applied, and the farthest that one was from its line. Every hunk is looked for at its line, moved as the one before
// it was, and then ever farther from there, but never before the end of the one before.
func applyHunks(name, text string, hunks []hunk) (applied string, moved int, err error) {
	lines := splitLines(text)
	var out strings.Builder
	done, drift, steps := 0, 0, 0
	for _, h := range hunks {
		wanted := h.from - 1
		if len(h.old) == 0 {
			wanted = h.from // lines are added behind this one
		}
		at, found := locate(lines, h, done, wanted+drift, &steps)
		if steps > maxSteps {
			return "", 0, paths.Conflict(paths.TooLarge, name, "hunk %d of %q cannot be found with a bounded effort", h.number, name)
		}
		if !found {
			return "", 0, stale(name, lines, h, max(min(wanted+drift, len(lines)), done))
		}
		drift = at - wanted
		moved = max(moved, drift, -drift)
		for _, line := range lines[done:at] {
			out.WriteString(line)
		}
		for _, line := range h.new {
			out.WriteString(line)
		}
		done = at + len(h.old)
	}
	for _, line := range lines[done:] {
		out.WriteString(line)
	}
	return out.String(), moved, nil
}

func splitLines(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	return lines[:len(lines)-btoi(lines[len(lines)-1] == "")]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// locate finds the old lines nearest to a place, the earlier one of two as near.
func locate(lines []string, h hunk, first, wanted int, steps *int) (int, bool) {
	last := len(lines) - len(h.old)
	if len(h.old) == 0 { // there is nothing to find it by
		within := wanted >= first && wanted <= last
		return wanted, within && (wanted == 0 || strings.HasSuffix(lines[wanted-1], "\n")) && endsWell(lines, h, wanted)
	}
	for distance := 0; (wanted-distance >= first || wanted+distance <= last) && *steps <= maxSteps; distance++ {
		if at := wanted - distance; at >= first && at <= last && isAt(lines, h, at, steps) {
			return at, true
		}
		if at := wanted + distance; at >= first && at <= last && isAt(lines, h, at, steps) {
			return at, true
		}
		*steps++
	}
	return 0, false
}

// isAt compares; lines that end a file without a newline are only at its end.
func isAt(lines []string, h hunk, at int, steps *int) bool {
	for i, line := range h.old {
		*steps++
		if lines[at+i] != line {
			return false
		}
	}
	return endsWell(lines, h, at)
}

// endsWell refuses a hunk whose new last line has no newline, where more lines follow.
func endsWell(lines []string, h hunk, at int) bool {
	return len(h.new) == 0 || strings.HasSuffix(h.new[len(h.new)-1], "\n") || at+len(h.old) == len(lines)
}

// stale tells the first line that is another one at the place where the hunk should be.
func stale(name string, lines []string, h hunk, at int) error {
	i := 0
	for i < len(h.old) && at+i < len(lines) && lines[at+i] == h.old[i] {
		i++
	}
	expected, found := "the end of the file", "the end of the file"
	if i < len(h.old) {
		expected = clip(h.old[i])
	}
	if at+i < len(lines) {
		found = clip(lines[at+i])
	}
	hint := ""
	if strings.TrimRight(expected, "\r\n") == strings.TrimRight(found, "\r\n") && expected != found {
		hint = "; the two differ in how the line ends"
	}
	return paths.Conflict("stale_patch", name, "hunk %d does not apply to %q: its lines are nowhere as they should be. Line %d should be %q and is %q%s",
		h.number, name, at+i+1, expected, found, hint).
		With("hunk", strconv.Itoa(h.number)).With("line", strconv.Itoa(at+i+1)).With("expected", expected).With("found", found)
}

func clip(line string) string {
	if len(line) > maxDetailBytes {
		line = line[:maxDetailBytes]
	}
	return strings.ToValidUTF8(line, "\uFFFD")
}

func parseMode(text string) (uint32, error) {
	// git writes 100644, 100755, or 120000 for a symlink.
	if len(text) == 6 && strings.HasPrefix(text, "100") {
		if mode, err := paths.Mode(text[2:]); err == nil {
			return mode, nil
		}
	}
	return 0, fault.New(fault.InvalidArgument, "the mode %q of the patch is not that of a regular file", text).With("field", "patch")
}
