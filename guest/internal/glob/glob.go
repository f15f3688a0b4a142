package glob

import (
	"context"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/protocol"
)

const (
	maxFiles       = 10_000
	maxSkipped     = 1_000
	maxVisited     = 2_000_000
	maxDepth       = 128
	maxPathBytes   = 4095
	maxResultBytes = 8 << 20
	maxDuration    = 20 * time.Second
)

// TooMany is the reason of the one entry that says that a bound ended the search.
const TooMany = "too_many"

const (
	symlink       = "symlink"
	notRegular    = "not_a_regular_file"
	unreadable    = "unreadable"
	badName       = "bad_name"
	reasonPadding = 64 // a result entry's bytes beside its paths
)

// Pseudo file systems are no place for outputs, and walking them has no end.
var notWalked = map[string]bool{"/proc": true, "/sys": true, "/dev": true}

// Find returns the regular files that match. What matches but is none, or cannot be reached without following a symlink, is told in Skipped.
// Results are ordered by pattern, then by name, each file once. When a bound is met, an entry `too_many` says that there may be more.
func Find(ctx context.Context, request protocol.GlobRequest) (protocol.GlobResult, error) {
	s := search{
		ctx: ctx, until: time.Now().Add(maxDuration), cwd: path.Clean(request.Cwd), limit: min(request.MaxFiles, maxFiles),
		seen: map[string]bool{}, result: protocol.GlobResult{Files: []protocol.GlobFile{}, Skipped: []protocol.GlobSkipped{}},
	}
	if !path.IsAbs(request.Cwd) || len(request.Cwd) > maxPathBytes || strings.ContainsRune(request.Cwd, 0) {
		return s.result, fault.New(fault.InvalidArgument, "cwd must be an absolute path").With("field", "cwd")
	}
	if request.MaxFiles <= 0 {
		return s.result, fault.New(fault.InvalidArgument, "max_files must be positive").With("field", "max_files")
	}
	if len(request.Patterns) > maxPatterns {
		return s.result, fault.New(fault.InvalidArgument, "at most %d patterns are taken", maxPatterns).With("field", "patterns")
	}
	patterns := make([]pattern, len(request.Patterns))
	for i, text := range request.Patterns {
		parsed, err := parsePattern(text)
		if err != nil {
			return s.result, err
		}
		patterns[i] = parsed
	}
	for _, p := range patterns {
		if !s.stopped {
			s.from(p)
		}
	}
	if err := ctx.Err(); err != nil {
		return s.result, err
	}
	return s.result, nil
}

type search struct {
	ctx     context.Context
	until   time.Time
	cwd     string
	limit   int
	visited int
	bytes   int
	stopped bool
	seen    map[string]bool // by absolute path
	result  protocol.GlobResult
}

func (s *search) from(p pattern) {
	base := s.cwd
	if p.absolute {
		base = "/"
	}
	dir, err := openDirectory(unix.AT_FDCWD, base, 0)
	if err != nil {
		return // nothing there, so nothing matches
	}
	defer unix.Close(dir)
	s.walk(place{dir: dir, absolute: base, top: base, relative: !p.absolute}, p.parts, 0)
}

// place is an open directory of the walk. Its name is never resolved a second time: everything below goes by the descriptor.
type place struct {
	dir      int
	absolute string
	top      string // where a relative pattern starts
	relative bool
}

func (p place) join(name string) string { return path.Join(p.absolute, name) }

// shown is the path as the result has it: below cwd for a relative pattern.
func (p place) shown(absolute string) string {
	if !p.relative {
		return absolute
	}
	return strings.TrimPrefix(strings.TrimPrefix(absolute, p.top), "/")
}

func (s *search) walk(at place, parts []part, depth int) {
	if s.stopped || notWalked[at.absolute] {
		return
	}
	if depth > maxDepth {
		s.stop()
		return
	}
	head := parts[0]
	if head.literal {
		s.visit(at, head.text, parts, depth)
		return
	}
	names, complete, err := readNames(at.dir, maxVisited-s.visited)
	if err != nil {
		s.skip(at, at.absolute, unreadable)
		return
	}
	for _, name := range names {
		s.visit(at, name, parts, depth)
	}
	if !complete {
		s.stop()
	}
}

// visit tries one name of a directory against the parts. A `**` at their head either ends here or goes on below.
func (s *search) visit(at place, name string, parts []part, depth int) {
	if s.stopped || s.outOfBounds() {
		return
	}
	if parts[0].any {
		s.descend(at, name, parts, depth)
		if len(parts) > 1 {
			if parts[1].matches(name) {
				s.visit(at, name, parts[1:], depth)
			}
			return
		}
	}
	if !parts[0].matches(name) {
		return
	}
	if len(parts) > 1 && !parts[0].any {
		s.descend(at, name, parts[1:], depth)
		return
	}
	s.take(at, name, parts[0])
}

func (s *search) outOfBounds() bool {
	s.visited++
	if s.visited > maxVisited || (s.visited%256 == 0 && (time.Now().After(s.until) || s.ctx.Err() != nil)) {
		s.stop()
	}
	return s.stopped
}

// descend walks the directory `name` with the given parts; a symlink to one is reported.
func (s *search) descend(at place, name string, parts []part, depth int) {
	absolute := at.join(name)
	if len(absolute) > maxPathBytes {
		return
	}
	dir, err := openDirectory(at.dir, name, unix.O_NOFOLLOW)
	switch err {
	case nil:
		defer unix.Close(dir)
		s.walk(place{dir: dir, absolute: absolute, top: at.top, relative: at.relative}, parts, depth+1)
	case unix.ELOOP, unix.ENOTDIR:
		if leadsToDirectory(at.dir, name) {
			s.skip(at, absolute, symlink)
		}
	case unix.ENOENT:
	default:
		s.skip(at, absolute, unreadable)
	}
}

// take reports the file `name` of a directory, which matches.
func (s *search) take(at place, name string, by part) {
	absolute := at.join(name)
	var info unix.Stat_t
	if err := unix.Fstatat(at.dir, name, &info, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if err != unix.ENOENT {
			s.skip(at, absolute, unreadable)
		}
		return
	}
	switch kind := info.Mode & unix.S_IFMT; {
	case !utf8.ValidString(name) || len(absolute) > maxPathBytes:
		s.skip(at, absolute, badName)
	case kind == unix.S_IFLNK:
		s.skip(at, absolute, symlink)
	case kind == unix.S_IFDIR && !by.literal: // wildcards mean files
	case kind != unix.S_IFREG:
		s.skip(at, absolute, notRegular)
	case s.seen[absolute]:
	case len(s.result.Files) >= s.limit:
		s.stop()
	default:
		shown := at.shown(absolute)
		if !s.afford(len(shown) + len(absolute)) {
			return
		}
		s.seen[absolute] = true
		s.result.Files = append(s.result.Files, protocol.GlobFile{
			Path: shown, AbsolutePath: absolute, SizeBytes: info.Size, Mode: info.Mode & 0o7777,
		})
	}
}

func (s *search) skip(at place, absolute, reason string) {
	key := reason + absolute
	if s.stopped || s.seen[key] || s.seen[absolute] {
		return
	}
	shown := strings.ToValidUTF8(at.shown(absolute), "\uFFFD")
	if len(shown) > maxPathBytes {
		shown = strings.ToValidUTF8(shown[:maxPathBytes], "")
	}
	if len(s.result.Skipped) >= maxSkipped {
		s.stop()
		return
	}
	if !s.afford(len(shown)) {
		return
	}
	s.seen[key] = true
	s.result.Skipped = append(s.result.Skipped, protocol.GlobSkipped{Path: shown, Reason: reason})
}

// afford bounds the size of the answer.
func (s *search) afford(pathBytes int) bool {
	s.bytes += pathBytes + reasonPadding
	if s.bytes > maxResultBytes {
		s.stop()
	}
	return !s.stopped
}

// stop ends the search: what was not found yet is not looked for.
func (s *search) stop() {
	if !s.stopped {
		s.stopped = true
		s.result.Skipped = append(s.result.Skipped, protocol.GlobSkipped{Path: s.cwd, Reason: TooMany})
	}
}
