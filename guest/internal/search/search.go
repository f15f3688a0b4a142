// Package search finds lines in text files.
package search

import (
	"bytes"
	"context"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/glob"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
	"fuse/guest/internal/tree"
)

const (
	maxMatches      = 10_000
	maxPatternBytes = 4096
	maxFilters      = 64
	maxContext      = 20
	maxFileBytes    = 16 << 20
	maxTextBytes    = 2000
	maxAnswerBytes  = 4 << 20
	maxDepth        = 512
	maxDuration     = 60 * time.Second
	// A NUL within these is what tells a binary file.
	binaryBytes = 8 << 10
)

// Find searches a file, or every regular file below a directory, and gives one match for each line, ordered by path and line. Symlinks below are not
// followed, and /proc, /sys and the like not entered from outside. What a bound (matches, bytes of the answer, a minute) ends is `truncated`.
func Find(ctx context.Context, request protocol.SearchRequest) (protocol.SearchResult, error) {
	s, err := parse(request)
	if err != nil {
		return protocol.SearchResult{}, err
	}
	s.ctx, s.until = ctx, time.Now().Add(maxDuration)
	if err := s.start(); err != nil {
		return protocol.SearchResult{}, paths.Fault(s.top, err)
	}
	if err := ctx.Err(); err != nil {
		return protocol.SearchResult{}, err
	}
	slices.SortFunc(s.result.Matches, func(a, b protocol.SearchMatch) int {
		if order := strings.Compare(a.Path, b.Path); order != 0 {
			return order
		}
		return a.Line - b.Line
	})
	return s.result, nil
}

type search struct {
	ctx              context.Context
	until            time.Time
	top              string
	include, exclude glob.Filter
	match            matcher
	context, limit   int
	reader           tree.Reader
	buffer           []byte
	bytes            int
	stopped          bool
	inPseudo         bool
	result           protocol.SearchResult
}

func parse(request protocol.SearchRequest) (*search, error) {
	top, err := paths.Clean("path", request.Path)
	if err != nil {
		return nil, err
	}
	s := &search{top: top, context: request.Context, limit: maxMatches, result: protocol.SearchResult{Matches: []protocol.SearchMatch{}}}
	if request.Limit != nil {
		s.limit = *request.Limit
	}
	switch {
	case s.limit < 1 || s.limit > maxMatches:
		return nil, fault.New(fault.InvalidArgument, "limit must be 1 to %d", maxMatches).With("field", "limit")
	case s.context < 0 || s.context > maxContext:
		return nil, fault.New(fault.InvalidArgument, "context must be 0 to %d", maxContext).With("field", "context")
	case len(request.Include) > maxFilters || len(request.Exclude) > maxFilters:
		return nil, fault.New(fault.InvalidArgument, "at most %d patterns are taken", maxFilters).With("field", "include")
	}
	if s.include, err = glob.NewFilter("include", request.Include); err != nil {
		return nil, err
	}
	if s.exclude, err = glob.NewFilter("exclude", request.Exclude); err != nil {
		return nil, err
	}
	s.match, err = newMatcher(request)
	return s, err
}

// matcher finds the first match of a line. `needle` is what every match begins with: lines without it are passed over quickly.
type matcher struct {
	expression *regexp.Regexp
	needle     []byte
	whole      bool // the needle is all there is to match
}

func newMatcher(request protocol.SearchRequest) (matcher, error) {
	if request.Pattern == "" || len(request.Pattern) > maxPatternBytes {
		return matcher{}, fault.New(fault.InvalidArgument, "pattern must be 1 to %d bytes", maxPatternBytes).With("field", "pattern")
	}
	if request.Literal && strings.ContainsAny(request.Pattern, "\n") {
		return matcher{}, fault.New(fault.InvalidArgument, "a literal pattern is looked for within lines: it must hold no newline").With("field", "pattern")
	}
	if request.Literal && !request.IgnoreCase {
		return matcher{needle: []byte(request.Pattern), whole: true}, nil
	}
	text := request.Pattern
	if request.Literal {
		text = regexp.QuoteMeta(text)
	}
	if request.IgnoreCase {
		text = "(?i)" + text
	}
	expression, err := regexp.Compile(text)
	if err != nil {
		return matcher{}, fault.New(fault.InvalidArgument, "pattern is no RE2 expression: %v", err).With("field", "pattern")
	}
	prefix, _ := expression.LiteralPrefix() // of an anchored expression too: it is not all there is to match
	return matcher{expression: expression, needle: []byte(prefix)}, nil
}

func (m matcher) column(line []byte) int {
	if m.whole {
		return bytes.Index(line, m.needle)
	}
	if found := m.expression.FindIndex(line); found != nil {
		return found[0]
	}
	return -1
}

func (s *search) start() error {
	file, err := unix.Open(s.top, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == unix.ENXIO {
		return paths.Conflict(paths.NotRegularFile, s.top, "%q is no file or directory to search", s.top)
	}
	if err != nil {
		return err
	}
	defer unix.Close(file)
	var info unix.Stat_t
	if err := unix.Fstat(file, &info); err != nil {
		return err
	}
	s.inPseudo = paths.Pseudo(file)
	switch info.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		s.file(file, &info, s.top)
		return nil
	case unix.S_IFDIR:
		return s.directory(file, "", 0)
	default:
		return paths.Conflict(paths.NotRegularFile, s.top, "%q is no file or directory to search", s.top)
	}
}

// directory searches below an open directory; relative is its path below the top.
func (s *search) directory(dir int, relative string, depth int) error {
	if depth > maxDepth {
		s.stop()
		return nil
	}
	for !s.stopped {
		entries, err := s.reader.Next(dir)
		if err != nil || len(entries) == 0 {
			return err
		}
		for _, entry := range entries {
			if s.outOfBounds() {
				return nil
			}
			s.entry(dir, path.Join(relative, entry.Name), entry, depth)
		}
	}
	return nil
}

// entry searches what a name stands for. What cannot be read is counted and passed over, as are symlinks, FIFOs and devices, uncounted.
func (s *search) entry(dir int, relative string, entry tree.Entry, depth int) {
	if !s.exclude.Empty() && s.exclude.Matches(relative) {
		return
	}
	kind := entry.Kind
	if kind == 0 {
		var info unix.Stat_t
		if unix.Fstatat(dir, entry.Name, &info, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return
		}
		kind = info.Mode & unix.S_IFMT
	}
	switch {
	case kind == unix.S_IFDIR:
		child, err := tree.OpenChild(dir, entry.Name)
		if err != nil {
			return
		}
		defer unix.Close(child)
		if s.inPseudo || !paths.Pseudo(child) {
			_ = s.directory(child, relative, depth+1) // removed, or not to be read: there is nothing in it to find
		}
	case kind == unix.S_IFREG && (s.include.Empty() || s.include.Matches(relative)):
		file, err := unix.Openat(dir, entry.Name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			s.result.FilesSkipped++
			return
		}
		defer unix.Close(file)
		var info unix.Stat_t
		if unix.Fstat(file, &info) == nil && info.Mode&unix.S_IFMT == unix.S_IFREG {
			s.file(file, &info, path.Join(s.top, relative))
		}
	}
}

func (s *search) outOfBounds() bool {
	if s.ctx.Err() != nil || time.Now().After(s.until) {
		s.stop()
	}
	return s.stopped
}

func (s *search) stop() { s.stopped, s.result.Truncated = true, true }
