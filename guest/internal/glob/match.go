package glob

import (
	"strings"

	"fuse/guest/internal/fault"
)

// Filter tells which names are meant by a list of patterns: one without `/` means a name anywhere, one with it the path below the top.
type Filter struct {
	names, below []pattern
}

// NewFilter parses patterns in the syntax of Find; a leading slash says that a pattern means the path from the top.
func NewFilter(field string, texts []string) (Filter, error) {
	var f Filter
	for _, text := range texts {
		p, err := parsePattern(text)
		if err != nil {
			return f, fault.New(fault.InvalidArgument, "%v", err).With("field", field)
		}
		if strings.Contains(text, "/") {
			f.below = append(f.below, p)
		} else {
			f.names = append(f.names, p)
		}
	}
	return f, nil
}

// Empty tells whether there is no pattern.
func (f Filter) Empty() bool { return len(f.names)+len(f.below) == 0 }

// Matches tells whether any pattern means the path, which is relative to the top.
func (f Filter) Matches(relative string) bool {
	name := relative[strings.LastIndexByte(relative, '/')+1:]
	for _, p := range f.names {
		if matchParts(p.parts, []string{name}) {
			return true
		}
	}
	if len(f.below) == 0 {
		return false
	}
	names := strings.Split(relative, "/")
	for _, p := range f.below {
		if matchParts(p.parts, names) {
			return true
		}
	}
	return false
}

// matchParts goes along both lists; at a `**` it remembers where to try with one name more, so that it takes at most their product of steps.
func matchParts(parts []part, names []string) bool {
	at, retryPart, retryName := 0, -1, 0
	for i := 0; i < len(names); {
		switch {
		case at < len(parts) && parts[at].any:
			retryPart, retryName = at, i
			at++
		case at < len(parts) && parts[at].matches(names[i]):
			at++
			i++
		case retryPart >= 0:
			retryName++
			at, i = retryPart+1, retryName
		default:
			return false
		}
	}
	return at == len(parts) // a last `**` has taken one name at least: it means what is below
}
