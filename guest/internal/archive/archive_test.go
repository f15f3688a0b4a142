package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"fuse/guest/internal/fault"
	"fuse/guest/internal/paths"
	"fuse/guest/internal/protocol"
)

var (
	background = context.Background()
	sizes      = []int{0, 1, 511, 512, 513, 4 << 10, 16<<10 - 1, 16 << 10, 16<<10 + 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, 1 << 20, 32<<20 - 1, 32 << 20, 32<<20 + 1}
	oddNames   = []string{
		"-rf", "a b", "new\nline", `quote"'`, "$(id)", strings.Repeat("n", 255), "e\u0301", "\u00e9", "🎉", "tab\t", "back\\slash", " ", "*", "...", "bad\xff",
		strings.Repeat("d", 200) + "/" + strings.Repeat("e", 200),
	}
	archiveOwners = Destination{UID: -1, GID: -1}
)

func sh(t *testing.T, script, dir string) string {
	t.Helper()
	command := exec.Command("sh", "-ec", script)
	command.Dir = dir
	text, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, text)
	}
	return string(text)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func pack(t *testing.T, name string) []byte {
	t.Helper()
	source, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	var out bytes.Buffer
	if err := source.Write(background, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func extract(to string, archive []byte) (protocol.TarIn, error) {
	return Extract(background, Destination{Path: to, UID: -1, GID: -1}, bytes.NewReader(archive))
}

func manifest(t *testing.T, root string) string {
	t.Helper()
	return sh(t, `find . -printf '%P %y %m %U %G %T@ %l %n %s\n' | sort; find . -type f -print0 | sort -z | xargs -0 sha256sum`, root)
}

func everything(t *testing.T, root string) {
	t.Helper()
	os.MkdirAll(root, 0o750)
	for i, name := range oddNames {
		write(t, root+"/odd/"+name, strings.Repeat("x", i*1000))
	}
	sh(t, `mkdir -p deep/er empty; echo 1 > deep/er/f; chown 5:3000000 deep/er; chmod 1777 deep
		chown 3000000:8 deep/er/f; chmod 4755 deep/er/f; ln -s deep/er/f link; ln -s nowhere dangling; ln -s ../.. deep/er/up; mkfifo pipe; chmod 611 pipe
		ln deep/er/f hard; ln -s ./link odd/-l; truncate -s 80M sparse; printf end >> sparse; printf middle | dd of=sparse conv=notrunc bs=1 seek=40000000 2>/dev/null
		truncate -s 1M holes; touch -h -d 2001-01-01T00:00:00.123456789 link deep/er/f pipe; touch -d 1950-02-02T00:00:00.25 deep empty; touch -d 2500-01-01 odd`, root)
}

func TestATreeComesBackAlikeThroughAnArchive(t *testing.T) {
	root := t.TempDir()
	everything(t, root+"/a")
	archive := pack(t, root+"/a")
	got, err := extract(root+"/b/c", archive)
	if err != nil {
		t.Fatal(err)
	}
	// directories as well as sizes of theirs are the file system's own
	if a, b := sizeless(manifest(t, root+"/a")), sizeless(manifest(t, root+"/b/c")); a != b {
		t.Errorf("%s\n---\n%s", a, b)
	}
	if len(archive) > 2<<20 {
		t.Errorf("a sparse file made %d bytes", len(archive))
	}
	if blocks := sh(t, "stat -c %b sparse", root+"/b/c"); len(blocks) > 4 {
		t.Errorf("a sparse file took %s blocks", blocks)
	}
	if got.Files != int64(len(oddNames)+4) || got.Links != 5 || got.Directories != 6 {
		t.Errorf("%+v", got)
	}
	again, err := extract(root+"/b/c", archive) // over itself
	if err != nil || again != got {
		t.Errorf("%+v, %v", again, err)
	}
	if left := sh(t, "find . -name '.fuse-*'", root); left != "" {
		t.Error(left)
	}
}

func sizeless(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.Contains(line, " d ") {
			lines[i] = line[:strings.LastIndexByte(line, ' ')]
		}
	}
	return strings.Join(lines, "\n")
}

func TestOtherProgramsReadOurArchivesAndWeTheirs(t *testing.T) {
	root := t.TempDir()
	everything(t, root+"/a")
	os.WriteFile(root+"/a.tar", pack(t, root+"/a"), 0o600)
	sh(t, "mkdir b && tar -C b -xpf a.tar --numeric-owner", root)
	want := sizeless(manifest(t, root+"/a"))
	if got := sizeless(manifest(t, root+"/b")); got != want {
		t.Errorf("%s\n---\n%s", want, got)
	}
	for _, options := range []string{"--format=gnu", "--format=pax", "--format=pax --sparse", "--format=gnu --sparse"} {
		sh(t, "rm -rf c && tar -C a "+options+" -cf theirs.tar .", root)
		text, _ := os.ReadFile(root + "/theirs.tar")
		if _, err := extract(root+"/c", text); err != nil {
			t.Errorf("%s: %v", options, err)
			continue
		}
		got := sizeless(manifest(t, root+"/c"))
		if strings.Contains(options, "gnu") { // whole seconds, and none before the epoch
			strip := `find . -printf '%P %y %m %U %G %l %n\n' | sort`
			if a, b := sh(t, strip, root+"/a"), sh(t, strip, root+"/c"); a != b {
				t.Errorf("%s: %s\n---\n%s", options, a, b)
			}
		} else if got != want {
			t.Errorf("%s: %s\n---\n%s", options, want, got)
		}
	}
	if python, err := exec.LookPath("python3"); err == nil {
		sh(t, "mkdir p && "+python+" -c \"import tarfile; tarfile.open('a.tar').extractall('p', numeric_owner=True)\"", root)
		sums := "find . -type f -print0 | sort -z | xargs -0 sha256sum"
		if a, b := sh(t, sums, root+"/a"), sh(t, sums, root+"/p"); a != b {
			t.Errorf("%s\n---\n%s", a, b)
		}
	}
}

func TestFilesOfAllSizesAndBytesComeBack(t *testing.T) {
	root := t.TempDir()
	random := make([]byte, sizes[len(sizes)-1])
	rand.Read(random)
	for i := range 256 {
		random[i] = byte(i)
	}
	for _, size := range sizes {
		os.WriteFile(fmt.Sprintf("%s/a%d", root, size), random[:size], 0o640)
		archive := pack(t, fmt.Sprintf("%s/a%d", root, size))
		got, err := extract(root+"/out", archive)
		if err != nil || got != (protocol.TarIn{Files: 1, Bytes: int64(size)}) {
			t.Fatalf("%+v, %v", got, err)
		}
		if text, err := os.ReadFile(fmt.Sprintf("%s/out/a%d", root, size)); err != nil || !bytes.Equal(text, random[:size]) {
			t.Errorf("%d: %d other bytes, %v", size, len(text), err)
		}
	}
}

func TestWhatCannotBeArchivedIsToldBefore(t *testing.T) {
	root := t.TempDir()
	fd, _ := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	defer unix.Close(fd)
	unix.Bind(fd, &unix.SockaddrUnix{Name: root + "/socket"})
	for name, code := range map[string]fault.Code{root + "/nope": fault.NotFound, "x": fault.InvalidArgument, root + "/socket": fault.Conflict} {
		if _, err := Open(name); !is(err, code) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if names := entries(t, pack(t, root)); len(names) != 1 || names[0] != "./" {
		t.Errorf("%q", names)
	}
}

func is(err error, code fault.Code) bool {
	var known *fault.Error
	return errors.As(err, &known) && known.Code == code
}

func entries(t *testing.T, archive []byte) []string {
	t.Helper()
	var names []string
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := reader.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, reader); err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

// changing runs something once the archive has begun to come.
type changing struct {
	to     io.Writer
	change func()
}

func (c *changing) Write(p []byte) (int, error) {
	if c.change != nil {
		c.change()
		c.change = nil
	}
	return c.to.Write(p)
}

func TestAFileThatChangesSizeGivesAValidArchive(t *testing.T) {
	for _, size := range []int64{0, 5<<20 + 100, 20 << 20} {
		root := t.TempDir()
		os.WriteFile(root+"/f", bytes.Repeat([]byte("x"), 10<<20), 0o600)
		source, err := Open(root)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = source.Write(background, &changing{&out, func() { os.Truncate(root+"/f", size) }})
		source.Close()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := extract(root+"/out", out.Bytes()); err != nil {
			t.Error(err)
		}
		if text, _ := os.ReadFile(root + "/out/f"); len(text) != 10<<20 || text[0] != 'x' {
			t.Errorf("%d bytes", len(text))
		}
	}
}

func TestAnArchiveEndsWithItsRequest(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/a", "x")
	source, _ := Open(root)
	defer source.Close()
	ended, cancel := context.WithCancel(background)
	cancel()
	if err := source.Write(ended, io.Discard); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Extract(ended, Destination{Path: root + "/o"}, bytes.NewReader(pack(t, root))); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestPseudoFileSystemsAreNotWalkedFromOutside(t *testing.T) {
	text := pack(t, "/proc/sys/fs/inotify")
	names := entries(t, text)
	if len(names) != 4 || names[0] != "./" {
		t.Errorf("%q", names)
	}
	var files int
	if got, err := extract(t.TempDir()+"/o", text); err != nil || got.Files != 3 || got.Bytes < 6 {
		t.Errorf("%+v, %v, %d", got, err, files)
	}
}

// tarOf makes an archive of headers, with bodies of their size.
func tarOf(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		w.Write(bytes.Repeat([]byte("x"), int(h.Size)))
	}
	w.Close()
	return out.Bytes()
}

func link(name, target string) tar.Header {
	return tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeSymlink}
}
func hard(name, target string) tar.Header {
	return tar.Header{Name: name, Linkname: target, Typeflag: tar.TypeLink}
}
func dir(name string) tar.Header  { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }
func file(name string) tar.Header { return tar.Header{Name: name, Size: 3} }

func TestArchivesThatLeaveTheDirectoryAreRefused(t *testing.T) {
	for name, archive := range map[string][]tar.Header{
		"absolute":                     {file("/etc/x")},
		"dots":                         {file("../x")},
		"dots within":                  {file("a/../../x")},
		"dots at the end":              {dir("a/..")},
		"through an absolute link":     {link("l", "/etc"), file("l/x")},
		"through a relative link":      {link("l", ".."), file("l/x")},
		"through a deep link":          {link("a/b/l", "../../.."), file("a/b/l/x")},
		"through two links":            {link("m", ".."), link("l", "m"), file("l/x")},
		"hard link, absolute":          {hard("h", "/etc/passwd")},
		"hard link, dots":              {hard("h", "../secret")},
		"hard link to nothing":         {hard("h", "nothing")},
		"hard link to a directory":     {dir("d"), hard("h", "d")},
		"empty link":                   {link("l", "")},
		"device":                       {{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"block device":                 {{Name: "d", Typeflag: tar.TypeBlock, Devmajor: 1, Devminor: 3}},
		"unknown type":                 {{Name: "d", Typeflag: 'Z'}},
		"the directory itself, a file": {file(".")},
	} {
		root := t.TempDir()
		write(t, root+"/secret", "secret")
		got, err := extract(root+"/in", tarOf(t, append([]tar.Header{file("first")}, archive...)...))
		if !is(err, fault.InvalidArgument) {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		var known *fault.Error
		if errors.As(err, &known); known.Details["files"] != "1" || known.Details["bytes"] != "3" {
			t.Errorf("%s: %v", name, known.Details)
		}
		if text, err := os.ReadFile(root + "/in/first"); err != nil || string(text) != "xxx" {
			t.Errorf("%s: what came before is gone", name)
		}
		if names := sh(t, "ls; cat secret; find in -name '.fuse-*'", root); names != "in\nsecret\nsecret" {
			t.Errorf("%s: %q", name, names)
		}
	}
}

func TestSymlinksAreMadeAsTheyStand(t *testing.T) {
	root := t.TempDir()
	archive := tarOf(t, link("python3", "/usr/bin/python3"), link("up", "../../x"), link("a/b", "c/../../d"))
	if got, err := extract(root+"/in", archive); err != nil || got.Links != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got := sh(t, "readlink in/python3 in/up in/a/b", root); got != "/usr/bin/python3\n../../x\nc/../../d\n" {
		t.Error(got)
	}
}

func TestPlantedSymlinksDoNotLeadOut(t *testing.T) {
	for name, h := range map[string]tar.Header{
		"parent": file("planted/x"), "directory": dir("planted"), "made parent": file("planted/a/b"), "hard link": hard("h", "planted/passwd"),
	} {
		root := t.TempDir()
		write(t, root+"/out/passwd", "secret")
		os.MkdirAll(root+"/in", 0o755)
		os.Symlink(root+"/out", root+"/in/planted")
		if _, err := extract(root+"/in", tarOf(t, h)); !is(err, fault.InvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
		if got := sh(t, "find . | sort", root); got != ".\n./in\n./in/planted\n./out\n./out/passwd\n" {
			t.Errorf("%s: %s", name, got)
		}
	}
	// One in the place of a file is replaced and not written through.
	root := t.TempDir()
	write(t, root+"/victim", "safe")
	os.MkdirAll(root+"/in", 0o755)
	os.Symlink("../victim", root+"/in/f")
	if _, err := extract(root+"/in", tarOf(t, file("f"))); err != nil {
		t.Error(err)
	}
	if got := sh(t, "cat victim; cat in/f", root); got != "safexxx" {
		t.Error(got)
	}
	// One that stays within leads on.
	os.MkdirAll(root+"/in/usr/lib", 0o755)
	os.Symlink("usr/lib", root+"/in/lib")
	if _, err := extract(root+"/in", tarOf(t, file("lib/so"))); err != nil {
		t.Error(err)
	}
	if got := sh(t, "cat in/usr/lib/so", root); got != "xxx" {
		t.Error(got)
	}
}

func TestOwnersAndModesAreThoseThatAreAskedFor(t *testing.T) {
	root := t.TempDir()
	archive := tarOf(t,
		tar.Header{Name: "./", Typeflag: tar.TypeDir, Mode: 0o700, Uid: 5, Gid: 6},
		tar.Header{Name: "su", Mode: 0o6755, Uid: 1000, Gid: 1001, Size: 1},
		tar.Header{Name: "p/pipe", Typeflag: tar.TypeFifo, Mode: 0o622, Uid: 7, Gid: 8},
		tar.Header{Name: "late/f", Size: 1}, tar.Header{Name: "late", Typeflag: tar.TypeDir, Mode: 0o2711, Uid: 9},
	)
	list := `find . -printf '%P %m %U %G\n' | sort`
	if _, err := extract(root+"/new", archive); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, list, root+"/new"); got != " 700 5 6\nlate 2711 9 0\nlate/f 644 0 0\np 755 0 0\np/pipe 622 7 8\nsu 6755 1000 1001\n" {
		t.Error(got)
	}
	os.Mkdir(root+"/old", 0o1777)
	os.Chmod(root+"/old", 0o777|os.ModeSticky)
	if _, err := Extract(background, Destination{Path: root + "/old", UID: 42, GID: -1}, bytes.NewReader(archive)); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, list, root+"/old"); got != " 1777 0 0\nlate 2711 42 0\nlate/f 644 42 0\np 755 42 0\np/pipe 622 42 8\nsu 6755 42 1001\n" {
		t.Error(got)
	}
}

func TestWhatIsInTheWayIsAConflict(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/in/d/x", "")
	write(t, root+"/in/f", "")
	for reason, archive := range map[string]tar.Header{paths.IsADirectory: file("d"), paths.NotADirectory: dir("f")} {
		_, err := extract(root+"/in", tarOf(t, archive))
		var known *fault.Error
		if !errors.As(err, &known) || known.Details["reason"] != reason {
			t.Errorf("%s: %v", reason, err)
		}
	}
	_, err := extract(root+"/in", tarOf(t, file("f/x")))
	var known *fault.Error
	if !errors.As(err, &known) || known.Details["reason"] != paths.NotADirectory {
		t.Error(err)
	}
	if _, err := extract(root+"/in/f", tarOf(t, file("x"))); !is(err, fault.Conflict) {
		t.Error(err)
	}
}

func TestBrokenArchivesAreRefusedAndLeaveNoPart(t *testing.T) {
	whole := tarOf(t, file("a"), tar.Header{Name: "b", Size: 2000})
	for at := range len(whole) - 1024 {
		if at%97 != 0 || at == 0 {
			continue
		}
		root := t.TempDir()
		_, err := extract(root, whole[:at])
		if !is(err, fault.InvalidArgument) {
			t.Errorf("cut at %d: %v", at, err)
		}
		if left := sh(t, "find . -name '.fuse-*'", root); left != "" {
			t.Errorf("cut at %d: %s", at, left)
		}
	}
	for _, text := range []string{"", "not a tar", strings.Repeat("x", 2000)} {
		if _, err := extract(t.TempDir(), []byte(text)); !is(err, fault.InvalidArgument) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if got, err := extract(t.TempDir()+"/n", tarOf(t)); err != nil || got != (protocol.TarIn{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestADiskThatIsFullIsToldAndNothingHalfIsLeft(t *testing.T) {
	root := t.TempDir()
	os.Mkdir(root+"/m", 0o755)
	if err := unix.Mount("tmpfs", root+"/m", "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("needs mounts: %v", err)
	}
	defer unix.Unmount(root+"/m", unix.MNT_DETACH)
	_, err := extract(root+"/m/in", tarOf(t, file("a"), tar.Header{Name: "b", Size: 3 << 20}))
	var known *fault.Error
	if !errors.As(err, &known) || known.Details["reason"] != paths.NoSpace || known.Details["files"] != "1" {
		t.Error(err)
	}
	if got := sh(t, "ls -A m/in", root); got != "a\n" {
		t.Error(got)
	}
}

func TestASparseFileOfAbsurdSizeIsRefused(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/f", "x")
	os.Truncate(root+"/f", maxSparseBytes+1)
	archive := pack(t, root+"/f")
	if len(archive) > 10_000 {
		t.Errorf("%d bytes", len(archive))
	}
	if _, err := extract(root+"/o", archive); !is(err, fault.InvalidArgument) {
		t.Error(err)
	}
}

func TestNothingIsLeftOpen(t *testing.T) {
	root := t.TempDir()
	everything(t, root+"/a")
	before := open(t)
	archive := pack(t, root+"/a")
	extract(root+"/b", archive)
	extract(root+"/b", archive[:len(archive)/2])
	extract(root+"/c", tarOf(t, dir("a/b/c"), link("a/b/c/l", "../../.."), link("l", "../x")))
	if after := open(t); after != before {
		t.Errorf("%d open files became %d", before, after)
	}
}

func open(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func FuzzExtract(f *testing.F) {
	f.Add(tarOf(f, file("a"), dir("d"), link("d/l", "../a"), hard("h", "a")))
	f.Add(tarOf(f, file("../x")))
	f.Add(tarOf(f, link("l", "a/../.."), file("l/x")))
	f.Add(tarOf(f, tar.Header{Name: strings.Repeat("n", 300), Size: 700, Format: tar.FormatGNU}))
	f.Add(tarOf(f, tar.Header{Name: "é\n", PAXRecords: map[string]string{"mtime": "-1.5"}, Format: tar.FormatPAX}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		root := t.TempDir()
		os.Mkdir(root+"/in", 0o700)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		// A sparse file of few bytes may be of any size.
		_, _ = Extract(ctx, Destination{Path: root + "/in", UID: 0, GID: 0}, io.LimitReader(bytes.NewReader(archive), 1<<16))
		list, err := os.ReadDir(root)
		if err != nil || len(list) != 1 {
			t.Fatalf("something came out beside the directory: %v, %v", list, err)
		}
		filepath.WalkDir(root, func(name string, entry os.DirEntry, err error) error {
			if strings.HasPrefix(entry.Name(), temporaryName) {
				t.Errorf("%s is left", name)
			}
			return nil
		})
	})
}

func FuzzPaxTime(f *testing.F) {
	f.Add(int64(0), uint32(0))
	f.Add(int64(-1), uint32(500_000_000))
	f.Fuzz(func(t *testing.T, seconds int64, nanos uint32) {
		at := unix.Timespec{Sec: seconds % (1 << 33), Nsec: int64(nanos % 1e9)}
		h := header{kind: typeFile, name: "f", modified: at}
		reader := tar.NewReader(bytes.NewReader(append(h.encode(), make([]byte, 1024)...)))
		got, err := reader.Next()
		if err != nil || got.ModTime.Unix() != at.Sec || int64(got.ModTime.Nanosecond()) != at.Nsec {
			t.Errorf("%+v became %v, %v", at, got, err)
		}
	})
}
