package smallnet

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const slotRules = `table ip fuse {
  chain in {
    type filter hook prerouting priority mangle; policy accept;
    iifname "guest" udp dport 53 tproxy to :53 meta mark set 1 accept
    iifname "guest" tcp dport 53 tproxy to :53 meta mark set 1 accept
    iifname "guest" meta l4proto tcp tproxy to :15001 meta mark set 1 accept
  }
}`

// Net is guest - slot (gateway's listeners) and gateway - servers: there is no way from one to the other but the gateway.
type Net struct {
	Guest, Slot, Gateway, Servers Namespace
}

// New makes the namespaces; addresses are those that the servers have. It skips where that cannot be.
func New(t testing.TB, addresses ...string) *Net {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	for _, program := range []string{"ip", "nft"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s here", program)
		}
	}
	n := &Net{Gateway: newNamespace(t, "w"), Servers: newNamespace(t, "i")}
	n.addGuest(t, "")
	n.Gateway.ip(t, "link add wan type veth peer name lan netns "+string(n.Servers))
	n.Gateway.ip(t, "addr add 45.33.0.2/24 dev wan")
	n.Gateway.ip(t, "addr add 2600:3c00::2/64 dev wan nodad")
	n.Gateway.ip(t, "link set wan up")
	n.Servers.ip(t, "addr add 45.33.0.1/24 dev lan")
	n.Servers.ip(t, "addr add 2600:3c00::1/64 dev lan nodad")
	n.Servers.ip(t, "link set lan up")
	n.Gateway.ip(t, "route add default via 45.33.0.1")
	n.Gateway.ip(t, "-6 route add default via 2600:3c00::1")
	for _, address := range addresses {
		bits := "/32"
		if strings.Contains(address, ":") {
			bits = "/128 nodad"
		}
		n.Servers.ip(t, "addr add "+address+bits+" dev lo")
	}
	return n
}

// Neighbour is another guest, with a slot of its own.
func (n *Net) Neighbour(t testing.TB) *Net {
	t.Helper()
	neighbour := &Net{Gateway: n.Gateway, Servers: n.Servers}
	neighbour.addGuest(t, "2")
	return neighbour
}

func (n *Net) addGuest(t testing.TB, number string) {
	n.Guest, n.Slot = newNamespace(t, "g"+number), newNamespace(t, "s"+number)
	n.Slot.ip(t, "link add guest type veth peer name eth0 netns "+string(n.Guest))
	n.Slot.ip(t, "addr add 192.0.0.1/29 dev guest")
	n.Slot.ip(t, "link set guest up")
	n.Slot.ip(t, "rule add fwmark 1 lookup 100")
	n.Slot.ip(t, "route add local 0.0.0.0/0 dev lo table 100")
	rules := n.Slot.Command("nft", "-f", "-")
	rules.Stdin = strings.NewReader(slotRules)
	if output, err := rules.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, output)
	}
	n.Guest.ip(t, "addr add 192.0.0.2/29 dev eth0")
	n.Guest.ip(t, "link set eth0 up")
	n.Guest.ip(t, "route add default via 192.0.0.1")
}

// HandOver gives the slot's listeners to the gateway.
func (n *Net) HandOver(t testing.TB, socketPath, slot string) {
	t.Helper()
	tcp, err := In(t, n.Slot, func() (*net.TCPListener, error) { return listenTCP("0.0.0.0:15001", true) })
	must(t, err)
	defer tcp.Close()
	udp, err := In(t, n.Slot, func() (*net.UDPConn, error) { return listenUDP("0.0.0.0:53", true) })
	must(t, err)
	defer udp.Close()
	dnsTCP, err := In(t, n.Slot, func() (*net.TCPListener, error) { return listenTCP("0.0.0.0:53", true) })
	must(t, err)
	defer dnsTCP.Close()
	line, err := json.Marshal(map[string]string{"slot": slot})
	must(t, err)
	if answer := SendDescriptors(t, socketPath, string(line)+"\n", tcp, udp, dnsTCP); answer != "ok\n" {
		t.Fatalf("hand-over: %s", answer)
	}
}

type filer interface{ File() (*os.File, error) }

// SendDescriptors sends a line with descriptors and gives the answer.
func SendDescriptors(t testing.TB, socketPath, line string, sockets ...filer) string {
	t.Helper()
	stream, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socketPath, Net: "unix"})
	must(t, err)
	defer stream.Close()
	var fds []int
	for _, socket := range sockets {
		file, err := socket.File()
		must(t, err)
		defer file.Close()
		fds = append(fds, int(file.Fd()))
	}
	_, _, err = stream.WriteMsgUnix([]byte(line), unix.UnixRights(fds...), nil)
	must(t, err)
	_ = stream.SetReadDeadline(time.Now().Add(20 * time.Second))
	answer := make([]byte, 512)
	read, err := stream.Read(answer)
	if err != nil {
		return fmt.Sprintf("no answer: %v", err)
	}
	return string(answer[:read])
}

// Dial connects from the guest.
func (n *Net) Dial(t testing.TB, address string) (*net.TCPConn, error) {
	t.Helper()
	return In(t, n.Guest, func() (*net.TCPConn, error) {
		connection, err := (&net.Dialer{Timeout: 20 * time.Second}).Dial("tcp", address)
		if err != nil {
			return nil, err
		}
		// A test that waits for longer than this hangs.
		_ = connection.SetDeadline(time.Now().Add(30 * time.Second))
		t.Cleanup(func() { _ = connection.Close() })
		return connection.(*net.TCPConn), nil
	})
}
