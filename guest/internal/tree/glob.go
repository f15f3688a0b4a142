package tree

import (
	"context"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/glob"
	"fuse/guest/internal/protocol"
)

const maxGlobPatterns = 64

// Glob finds regular files by patterns as outputs are found, and tells about each.
func (t *Tree) Glob(ctx context.Context, request protocol.FileGlobRequest) (protocol.Listing, error) {
	none := protocol.Listing{}
	limit, err := bounded("limit", request.Limit, MaxEntries, MaxEntries)
	if err != nil {
		return none, err
	}
	if len(request.Patterns) < 1 || len(request.Patterns) > maxGlobPatterns {
		return none, fault.New(fault.InvalidArgument, "1 to %d patterns are taken", maxGlobPatterns).With("field", "patterns")
	}
	cwd := request.Cwd
	if cwd == "" {
		cwd = "/"
	}
	found, err := glob.Find(ctx, protocol.GlobRequest{Cwd: cwd, Patterns: request.Patterns, MaxFiles: limit})
	if err != nil {
		return none, err
	}
	listing := protocol.Listing{
		Entries:   []protocol.FileInfo{},
		Truncated: slices.ContainsFunc(found.Skipped, func(s protocol.GlobSkipped) bool { return s.Reason == glob.TooMany }),
	}
	slices.SortFunc(found.Files, func(a, b protocol.GlobFile) int { return strings.Compare(a.AbsolutePath, b.AbsolutePath) })
	names, bytes := t.Users.Names(), 0
	for _, file := range found.Files {
		info, err := statAt(unix.AT_FDCWD, file.AbsolutePath)
		if err != nil {
			continue // gone meanwhile
		}
		if bytes += 2*AnswerBytes(file.AbsolutePath) + entryBytes; bytes > maxAnswerBytes {
			listing.Truncated = true
			break
		}
		listing.Entries = append(listing.Entries, describe(unix.AT_FDCWD, file.AbsolutePath, path.Clean(file.AbsolutePath), &info, names))
	}
	return listing, nil
}
