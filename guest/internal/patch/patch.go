package patch

import (
	"context"
	"path"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/edit"
	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
	"fuse/guest/internal/tree"
)

const (
	maxStrip      = 16
	defaultStrip  = 1
	maxTotalBytes = 64 << 20
	newFileMode   = 0o644
)

// Apply applies a patch below a directory. Nothing is changed unless all of it applies; when changing a file fails midway, those before are put back.
func Apply(ctx context.Context, request protocol.PatchRequest) (protocol.PatchResult, error) {
	none := protocol.PatchResult{}
	cwd, err := paths.Clean("cwd", request.Cwd)
	if err != nil {
		return none, err
	}
	strip := defaultStrip
	if request.Strip != nil {
		strip = *request.Strip
	}
	if strip < 0 || strip > maxStrip {
		return none, fault.New(fault.InvalidArgument, "strip must be 0 to %d", maxStrip).With("field", "strip")
	}
	diffs, err := parse(request.Patch, strip)
	if err != nil {
		return none, err
	}
	root, err := unix.Open(cwd, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return none, paths.Fault(cwd, err)
	}
	defer unix.Close(root)
	defer edit.Lock()()
	a := &application{ctx: ctx, root: root, cwd: cwd, files: map[string]*patched{}}
	defer a.close()
	for _, diff := range diffs {
		if err := a.plan(diff); err != nil {
			return none, err
		}
	}
	if err := a.commit(); err != nil {
		return none, err
	}
	return a.result(), nil
}

type application struct {
	ctx   context.Context
	root  int
	cwd   string
	files map[string]*patched
	order []*patched
	bytes int
}

// patched is a file as it is, and as it will be.
type patched struct {
	relative string // to the directory
	path     string
	was      *edit.File // nil: it is not there
	text     string
	exists   bool
	mode     *uint32
	hunks    int
	moved    int

	dir       int // of a file that is made; -1 otherwise
	temporary string
	backup    string
}

func (a *application) close() {
	for _, each := range a.order {
		if each.was != nil {
			each.was.Close()
		}
		if each.dir >= 0 {
			unix.Close(each.dir)
		}
	}
}

// plan works out what a file will be, from what it is or what an earlier part of the patch makes of it.
func (a *application) plan(diff fileDiff) error {
	if err := a.ctx.Err(); err != nil {
		return err
	}
	name := diff.to
	if name == "" {
		name = diff.from
	}
	file, err := a.load(path.Clean(name))
	if err != nil {
		return err
	}
	switch {
	case diff.from == "" && file.exists:
		return paths.Conflict(paths.Exists, file.path, "the patch makes %q, which is there already", file.path)
	case diff.from != "" && !file.exists:
		return paths.NotFound(file.path)
	case diff.mode != "":
		mode, err := parseMode(diff.mode)
		if err != nil {
			return err
		}
		file.mode = &mode
	}
	text, moved, err := applyHunks(file.path, file.text, diff.hunks)
	if err != nil {
		return err
	}
	if diff.to == "" && text != "" {
		first := splitLines(text)[0]
		return paths.Conflict("stale_patch", file.path, "the patch removes %q, but not all of its text: %q would be left", file.path, clip(first)).
			With("hunk", "1").With("expected", "the end of the file").With("found", clip(first))
	}
	a.bytes += len(text)
	if len(text) > edit.MaxFileBytes || a.bytes > maxTotalBytes {
		return paths.Conflict(paths.TooLarge, file.path, "%q would be over %d bytes, or all files together over %d", file.path, edit.MaxFileBytes, maxTotalBytes)
	}
	file.text, file.exists = text, diff.to != ""
	file.hunks, file.moved = file.hunks+len(diff.hunks), max(file.moved, moved)
	return nil
}

// load reads a file once. Symlinks on the way are followed as long as they stay below the directory; the file itself must be none.
func (a *application) load(relative string) (*patched, error) {
	if known, found := a.files[relative]; found {
		return known, nil
	}
	file := &patched{relative: relative, path: path.Join(a.cwd, relative), dir: -1}
	dir, err := tree.OpenBeneath(a.root, path.Dir(relative), unix.O_RDONLY|unix.O_DIRECTORY)
	if err == nil {
		file.was, err = edit.OpenIn(dir, path.Base(relative), file.path)
		if err != nil {
			unix.Close(dir)
		}
	}
	switch {
	case err == nil:
		file.text, file.exists = string(file.was.Text), true
		file.was.Text = nil
		a.bytes += len(file.text)
		if !utf8.ValidString(file.text) && len(file.text) > 0 {
			file.was.Close()
			return nil, paths.Conflict("not_text", file.path, "%q is not UTF-8 text", file.path)
		}
	case isMissing(err):
	case err == unix.EXDEV || err == unix.ELOOP:
		return nil, fault.New(fault.InvalidArgument, "%q leads out of the directory by a symlink", file.path).With("field", "patch").With("path", file.path)
	default:
		return nil, paths.Fault(file.path, err)
	}
	a.files[relative] = file
	a.order = append(a.order, file)
	return file, nil
}

func (a *application) result() protocol.PatchResult {
	result := protocol.PatchResult{Files: []protocol.PatchedFile{}}
	for _, each := range a.order {
		action := ""
		switch {
		case each.was != nil && each.exists:
			action = "modified"
		case each.was != nil:
			action = "removed"
		case each.exists:
			action = "created"
		default: // made and removed by the same patch
			continue
		}
		result.Files = append(result.Files, protocol.PatchedFile{Path: each.path, Action: action, Hunks: each.hunks, MovedLines: each.moved})
	}
	return result
}
