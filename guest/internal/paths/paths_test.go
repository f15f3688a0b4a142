package paths

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
)

func TestPathsAreCleanedByTheirText(t *testing.T) {
	for text, want := range map[string]string{
		"/": "/", "//": "/", "/a/./b//c/": "/a/b/c", "/a/../b": "/b", "/../..": "/", "/-rf": "/-rf", "/new\nline $(x) '\"": "/new\nline $(x) '\"",
	} {
		if got, err := Clean("path", text); got != want || err != nil {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a", "./a", "/a\x00b", "/" + strings.Repeat("x", MaxBytes)} {
		if _, err := Clean("path", text); !is(err, fault.InvalidArgument, "") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWhatTheKernelSaysHasAReason(t *testing.T) {
	for errno, reason := range map[unix.Errno]string{
		unix.EEXIST: Exists, unix.ENOTDIR: NotADirectory, unix.EISDIR: IsADirectory, unix.ENOTEMPTY: NotEmpty, unix.ENOSPC: NoSpace,
		unix.EDQUOT: NoSpace, unix.EFBIG: TooLarge, unix.EROFS: "", unix.EBUSY: "",
	} {
		if err := Fault("/a", &os.PathError{Op: "x", Path: "/a", Err: errno}); !is(err, fault.Conflict, reason) {
			t.Errorf("%v: %v", errno, err)
		}
	}
	if err := Fault("/a", fmt.Errorf("wrapped: %w", unix.ENOENT)); !is(err, fault.NotFound, "") {
		t.Error(err)
	}
	known := Conflict(Changed, "/bad\xff", "x")
	if err := Fault("/a", known); err != error(known) || known.Details["path"] != "/bad\uFFFD" {
		t.Error(err, known.Details)
	}
	if other := errors.New("other"); Fault("/a", other) != other || Fault("/a", nil) != nil {
		t.Error("an error that is of no path became another")
	}
}

func is(err error, code fault.Code, reason string) bool {
	var known *fault.Error
	return errors.As(err, &known) && known.Code == code && known.Details["reason"] == reason
}
