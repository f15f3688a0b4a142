package netns

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// With a persistent tap `tap0` in it.
func namespaceWithTap(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	holder := exec.Command("unshare", "--net", "sh", "-c", "ip tuntap add dev tap0 mode tap vnet_hdr && ip link set tap0 up && echo ready && exec sleep 600")
	output, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	if _, err := io.ReadFull(output, make([]byte, 6)); err != nil {
		t.Skip("no tap can be made here")
	}
	return fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid)
}

func TestATapOfAnotherNamespaceIsOpenedFromHere(t *testing.T) {
	path := namespaceWithTap(t)
	before, _ := os.Readlink("/proc/thread-self/ns/net")
	tap, err := OpenTap(path, "tap0")
	if err != nil {
		t.Fatal(err)
	}
	defer tap.Close()
	request, _ := unix.NewIfreq("")
	if err := unix.IoctlIfreq(int(tap.Fd()), unix.TUNGETIFF, request); err != nil {
		t.Fatal(err)
	}
	if want := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR); request.Name() != "tap0" || request.Uint16()&want != want {
		t.Errorf("it is %s with %x", request.Name(), request.Uint16())
	}
	if after, _ := os.Readlink("/proc/thread-self/ns/net"); after != before {
		t.Errorf("we are in %s, and were in %s", after, before)
	}
	// One queue: it is taken.
	if second, err := OpenTap(path, "tap0"); err == nil {
		second.Close()
		t.Error("it is opened twice")
	}
}

func TestATapThatIsNotThereIsNotMade(t *testing.T) {
	path := namespaceWithTap(t)
	for range 2 {
		if _, err := OpenTap(path, "tap1"); err == nil || !strings.Contains(err.Error(), "no such device") {
			t.Errorf("it says %v", err)
		}
	}
	if _, err := OpenTap("/none", "tap0"); err == nil || !strings.Contains(err.Error(), "network namespace /none") {
		t.Errorf("it says %v", err)
	}
	if _, err := OpenTap(path, "a-name-that-is-too-long"); err == nil {
		t.Error("it has a name that is too long")
	}
}
