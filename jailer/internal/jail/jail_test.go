package jail

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fuse/jailer/internal/protocol"
)

const testUser = 869_999

var probe string

func init() {
	runtime.LockOSThread()
}

// The second stage is this program too.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == EnterCommand {
		if Enter(os.Args[2:]) != nil {
			os.Exit(1)
		}
	}
	directory, err := os.MkdirTemp("", "fuse-jail-")
	if err != nil {
		panic(err)
	}
	probe = filepath.Join(directory, "probe")
	build := exec.Command("go", "build", "-o", probe, "./testdata/probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v: %s", err, output))
	}
	code := m.Run()
	os.RemoveAll(directory)
	os.Exit(code)
}

// found is what the probe says.
type found struct {
	Args        []string
	Environment []string
	Directory   string
	UID, GID    int
	Groups      []int
	Root        []string
	Descriptors []int
	Hostname    string
	PID         int
	Attempts    map[string]string
}

// prison is a root with the probe in it, and what is bound into it.
type prison struct {
	directory string
	start     protocol.Start
}

func newPrison(t *testing.T) *prison {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	directory := t.TempDir()
	if err := os.Chmod(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	p := &prison{directory: directory}
	root := p.path("root")
	for _, each := range []string{root, root + "/dev", root + "/readonly", root + "/writable", p.path("readonly"), p.path("writable")} {
		p.must(t, os.Mkdir(each, 0o755))
	}
	binary, err := os.ReadFile(probe)
	p.must(t, err)
	p.must(t, os.WriteFile(root+"/probe", binary, 0o755))
	p.must(t, os.WriteFile(p.path("readonly/file"), []byte("readable"), 0o666))
	p.must(t, os.Chmod(p.path("readonly/file"), 0o666))
	p.must(t, os.WriteFile(p.path("readonly/template"), []byte("template"), 0o444))
	p.must(t, os.WriteFile(p.path("readonly/secret"), []byte("secret"), 0o600))
	p.must(t, os.WriteFile(p.path("writable/program"), binary, 0o755))
	p.must(t, os.Chown(p.path("writable"), testUser, testUser))
	for _, each := range []string{root + "/dev/zero", p.path("writable/zero")} {
		p.must(t, unix.Mknod(each, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
		p.must(t, os.Chmod(each, 0o666))
	}
	p.start = protocol.Start{Program: "/probe", Args: []string{}, Cwd: "/writable", Session: true, Env: map[string]string{"SECRET": "1"}, Jail: &protocol.Jail{
		Root: root,
		Binds: []protocol.Bind{
			{Source: p.path("readonly"), Target: "/readonly"},
			{Source: p.path("writable"), Target: "/writable", Writable: true},
		},
		UID: testUser, GID: testUser, Seccomp: "qemu",
		Limits: protocol.Limits{OpenFiles: 64, FileSizeBytes: 1 << 20},
	}}
	return p
}

func (p *prison) path(name string) string { return filepath.Join(p.directory, name) }

func (p *prison) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// prisoner is a probe that waits for its end.
type prisoner struct {
	*Jailed
	stdin  *os.File
	output string
}

func (p *prison) run(t *testing.T) *prisoner {
	t.Helper()
	theirs, ours, err := os.Pipe()
	p.must(t, err)
	output, err := os.Create(p.path("output"))
	p.must(t, err)
	hold, err := os.Open(os.DevNull)
	p.must(t, err)
	defer hold.Close()
	jailed, err := Start(p.start, []*os.File{theirs, output, output}, hold)
	theirs.Close()
	output.Close()
	p.must(t, err)
	t.Cleanup(func() { ours.Close(); _ = jailed.Process.Kill(); _, _ = jailed.Process.Wait() })
	return &prisoner{Jailed: jailed, stdin: ours, output: p.path("output")}
}

func (p *prisoner) saying(t *testing.T, what string) string {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if said, err := os.ReadFile(p.output); err == nil && strings.Contains(string(said), what) && said[len(said)-1] == '\n' {
			return string(said)
		}
	}
	said, _ := os.ReadFile(p.output)
	t.Fatalf("it does not say %q: %s", what, said)
	return ""
}

func (p *prisoner) found(t *testing.T) found {
	t.Helper()
	said := p.saying(t, "{")
	var f found
	if err := json.Unmarshal([]byte(said[strings.Index(said, "{"):]), &f); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	return f
}

func (p *prisoner) proc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.Process.Pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (p *prisoner) end(t *testing.T) syscall.WaitStatus {
	t.Helper()
	p.stdin.Close()
	state, err := p.Process.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return state.Sys().(syscall.WaitStatus)
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func expectAttempts(t *testing.T, f found, wanted map[string]string) {
	t.Helper()
	for name, want := range wanted {
		equal(t, name, f.Attempts[name], want)
	}
}

func TestWhatAProgramFindsInItsJail(t *testing.T) {
	p := newPrison(t)
	p.start.Args = []string{"large file"}
	prisoner := p.run(t)
	f := prisoner.found(t)
	equal(t, "arguments", f.Args, []string{"/probe", "large file"})
	equal(t, "environment", f.Environment, []string{})
	equal(t, "directory", f.Directory, "/writable")
	equal(t, "user", []int{f.UID, f.GID, len(f.Groups)}, []int{testUser, testUser, 0})
	equal(t, "root", f.Root, []string{"/dev", "/probe", "/readonly", "/writable"})
	equal(t, "descriptors", f.Descriptors, []int{0, 1, 2})
	equal(t, "pid", f.PID, 1)
	equal(t, "hostname", f.Hostname, "vm")
	expectAttempts(t, f, map[string]string{
		"socket unix": "ok", "socket inet": "EAFNOSUPPORT", "socket inet6": "EAFNOSUPPORT", "socket netlink": "EAFNOSUPPORT", "socket packet": "EAFNOSUPPORT", "socket vsock": "EAFNOSUPPORT",
		"mount": "EPERM", "unshare user": "EPERM", "clone user": "EPERM", "clone3": "ENOSYS", "ptrace": "EPERM", "process_vm_readv": "EPERM", "bpf": "EPERM",
		"perf_event_open": "EPERM", "userfaultfd": "EPERM", "io_uring_setup": "EPERM", "keyctl": "EPERM", "setuid": "EPERM", "chroot": "EPERM", "mknod": "EPERM",
		"openat2": "ENOSYS", "push into a terminal": "EPERM", "rename a card": "EPERM", "keep a tap": "EPERM", "another control": "ENOTTY",
		"read the host's": "ENOENT", "read proc": "ENOENT", "read another user's": "EACCES", "read a bind": "ok", "read and write a bind": "EROFS",
		"write to a bind": "EROFS", "write to the root": "EROFS", "write to a writable one": "ok", "execute there": "EACCES", "read a device there": "EACCES",
		"write and remove": "ENOENT", "remove by another call": "ENOENT", "write and rename": "EPERM", "write without a name": "EPERM",
		"read a device": "ok", "large file": "EFBIG",
	})
	if status := prisoner.end(t); status.ExitStatus() != 0 {
		t.Errorf("it ended with %v", status)
	}
}

func TestWhatTheHostSeesOfAJail(t *testing.T) {
	p := newPrison(t)
	// Not every root may.
	if os.WriteFile("/proc/self/oom_score_adj", []byte("-100"), 0) == nil {
		defer func() { _ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0) }()
	}
	prisoner := p.run(t)
	prisoner.found(t)
	equal(t, "importance", prisoner.proc(t, "oom_score_adj"), "0\n")
	status := prisoner.proc(t, "status")
	for _, want := range []string{
		"Uid:\t869999\t869999\t869999\t869999", "Gid:\t869999\t869999\t869999\t869999", "Groups:\t \n", "NoNewPrivs:\t1", "Seccomp:\t2", "Seccomp_filters:\t1",
		"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in %s", want, status)
		}
	}
	equal(t, "command line", prisoner.proc(t, "cmdline"), "/probe\x00")
	mounts := strings.Split(strings.TrimSpace(prisoner.proc(t, "mountinfo")), "\n")
	for index, want := range []string{" / ro,nosuid", " /readonly ro,nosuid,nodev,noexec", " /writable rw,nosuid,nodev,noexec"} {
		if len(mounts) != 3 || !strings.Contains(mounts[index], want) {
			t.Fatalf("its mounts: %s", strings.Join(mounts, "\n"))
		}
	}
	for _, kind := range []string{"mnt", "pid", "ipc", "uts", "net"} {
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", prisoner.Process.Pid, kind))
		p.must(t, err)
		ours, _ := os.Readlink("/proc/self/ns/" + kind)
		if theirs == ours {
			t.Errorf("it shares our %s namespace", kind)
		}
	}
	if links := strings.Count(prisoner.proc(t, "net/dev"), ":"); links != 1 {
		t.Errorf("its network has more than lo: %s", prisoner.proc(t, "net/dev"))
	}
	limits := strings.Join(strings.Fields(prisoner.proc(t, "limits")), " ")
	for _, want := range []string{"Max core file size 0 0", "Max open files 64 64", "Max file size 1048576 1048576"} {
		if !strings.Contains(limits, want) {
			t.Errorf("no %q in %s", want, limits)
		}
	}
	var host, jailed unix.Stat_t
	p.must(t, unix.Stat(p.path("writable"), &host))
	p.must(t, unix.Stat(fmt.Sprintf("/proc/%d/cwd", prisoner.Process.Pid), &jailed))
	equal(t, "its directory", []uint64{jailed.Ino, jailed.Dev}, []uint64{host.Ino, host.Dev})
}

func TestDevicesThatAreBoundAndMemoryThatTheyReach(t *testing.T) {
	p := newPrison(t)
	p.start.Jail.Binds[1].Devices = true
	p.start.Jail.Limits.LockedBytes = 1 << 20 // not every root may raise it
	prisoner := p.run(t)
	expectAttempts(t, prisoner.found(t), map[string]string{"read a device there": "ok", "execute there": "EACCES", "write to a bind": "EROFS"})
	if limits := strings.Join(strings.Fields(prisoner.proc(t, "limits")), " "); !strings.Contains(limits, "Max locked memory 1048576 1048576") {
		t.Errorf("its limits: %s", limits)
	}
}

func TestACallByAnotherInterfaceIsItsLast(t *testing.T) {
	p := newPrison(t)
	p.start.Args = []string{"x32"}
	if status := p.run(t).end(t); !status.Signaled() || status.Signal() != unix.SIGSYS {
		t.Errorf("it ended with %v", status)
	}
}

func TestItIsInItsCgroupsAndItsNetwork(t *testing.T) {
	p := newPrison(t)
	cgroup := cgroupForTest(t)
	p.start.Jail.CgroupProcs = []string{cgroup + "/cgroup.procs"}
	holder := exec.Command("unshare", "--net", "sleep", "600")
	p.must(t, holder.Start())
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	namespace := fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid)
	waitUntil(t, func() bool {
		ours, _ := os.Readlink("/proc/self/ns/net")
		theirs, err := os.Readlink(namespace)
		return err == nil && theirs != ours
	})
	p.start.Jail.NetworkNamespacePath = namespace
	prisoner := p.run(t)
	want, _ := os.Readlink(namespace)
	got, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", prisoner.Process.Pid))
	p.must(t, err)
	equal(t, "network", got, want)
	members, err := os.ReadFile(cgroup + "/cgroup.procs")
	p.must(t, err)
	equal(t, "members of the cgroup", string(members), fmt.Sprintf("%d\n", prisoner.Process.Pid))
	prisoner.end(t)
}

func cgroupForTest(t *testing.T) string {
	t.Helper()
	for _, parent := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		cgroup := fmt.Sprintf("%s/fuse-jail-test-%d", parent, os.Getpid())
		if os.Mkdir(cgroup, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { waitUntil(t, func() bool { return os.Remove(cgroup) == nil }) })
		return cgroup
	}
	t.Skip("no cgroup can be made here")
	return ""
}

func waitUntil(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to pass")
		}
	}
}

func TestFilesThatAreOpenedForReadingOnly(t *testing.T) {
	p := newPrison(t)
	p.start.Args = []string{"read-only opens"}
	p.start.Jail.ReadOnlyOpens = []string{"/readonly/template", "/readonly/missing"}
	prisoner := p.run(t)
	prisoner.saying(t, "waiting")
	prisoner.Up()
	prisoner.Up()
	expectAttempts(t, prisoner.found(t), map[string]string{
		"open": "ok", "content": "template", "write to it": "EBADF", "map it privately": "ok", "map it shared": "EACCES",
		"open another": "EROFS", "open its own": "ok", "open one that is missing": "EACCES", "by another name": "EACCES", "with another flag": "EACCES",
		"afterwards": "ENOSYS", "its own, afterwards": "ok", "for reading, afterwards": "ok",
	})
	prisoner.end(t)
	if content, _ := os.ReadFile(p.path("readonly/template")); string(content) != "template" {
		t.Errorf("the template is now %q", content)
	}
}

func TestWhatFailsSaysWhichStepAndLeavesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*prison)
		says   string
	}{
		"no such cgroup":   {func(p *prison) { p.start.Jail.CgroupProcs = []string{"/sys/fs/cgroup/none/cgroup.procs"} }, "enter its cgroups"},
		"no such network":  {func(p *prison) { p.start.Jail.NetworkNamespacePath = "/run/netns/none" }, "enter its network"},
		"no such root":     {func(p *prison) { p.start.Jail.Root = "/none" }, "make its root"},
		"no such source":   {func(p *prison) { p.start.Jail.Binds[0].Source = "/none" }, "make its root: bind /none"},
		"no such target":   {func(p *prison) { p.start.Jail.Binds[0].Target = "/none" }, "on /none"},
		"no such place":    {func(p *prison) { p.start.Cwd = "/none" }, "go to its directory"},
		"no such program":  {func(p *prison) { p.start.Program = "/none" }, "execute /none"},
		"too many files":   {func(p *prison) { p.start.Jail.Limits.OpenFiles = 1 << 40 }, "set its limits"},
		"root as its user": {func(p *prison) { p.start.Jail.UID = 0 }, "its user is root"},
		"a target outside": {func(p *prison) { p.start.Jail.Binds[0].Target = "/../etc" }, "shortest form"},
		"another filter":   {func(p *prison) { p.start.Jail.Seccomp = "none" }, "no filter"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPrison(t)
			test.change(p)
			hold, err := os.Open(os.DevNull)
			p.must(t, err)
			defer hold.Close()
			jailed, err := Start(p.start, []*os.File{hold, hold, hold}, hold)
			if err == nil {
				_ = jailed.Process.Kill()
				t.Fatal("it was started")
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

// A link in a root, or in what is bound, leads nowhere outside.
func TestATargetThatIsALinkStaysInside(t *testing.T) {
	p := newPrison(t)
	p.must(t, os.Mkdir(p.path("outside"), 0o755))
	p.must(t, os.Symlink(p.path("outside"), p.path("root/link")))
	p.start.Jail.Binds[0].Target = "/link"
	hold, err := os.Open(os.DevNull)
	p.must(t, err)
	defer hold.Close()
	if _, err := Start(p.start, []*os.File{hold, hold, hold}, hold); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("it says %v", err)
	}
}
