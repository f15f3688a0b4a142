package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"fuse/gateway/internal/smallnet"
)

const (
	shared   = "45.33.32.10" // several names are served here
	other    = "45.33.32.11"
	sixth    = "2606:4700::10"
	private  = "10.9.9.9"
	metadata = "169.254.169.254"
	resolver = "45.33.32.53:53"
	slotName = "slot-1"
	vmID     = "vm-1"
)

// rig is a gateway as the host agent starts it, with a slot, and a small Internet.
type rig struct {
	*smallnet.Net
	dns     *smallnet.DNS
	servers *servers
	api     *http.Client
	process *exec.Cmd
	socket  string
	binary  string
}

func start(t *testing.T) *rig {
	t.Helper()
	n := smallnet.New(t, shared, other, sixth, private, metadata, "45.33.32.53")
	directory := t.TempDir()
	binary := filepath.Join(t.TempDir(), "fuse-gateway")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, output)
	}
	process := n.Gateway.Command(binary, "--directory", directory, "--uid", "64999", "--gid", "64999")
	var log bytes.Buffer
	process.Stderr = &log
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Signal(syscall.SIGTERM)
		if err := process.Wait(); err != nil {
			t.Errorf("the gateway's end: %v\n%s", err, log.String())
		}
		if strings.Contains(log.String(), `"level":"ERROR"`) {
			t.Errorf("the gateway's log has errors:\n%s", log.String())
		}
	})
	r := &rig{Net: n, dns: n.StartDNS(t, resolver), process: process, socket: filepath.Join(directory, "listeners.sock"), binary: binary}
	r.api = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(directory, "control.sock"))
	}}}
	t.Cleanup(r.api.CloseIdleConnections)
	until(t, "the gateway is there", func() bool {
		response, err := r.api.Get("http://gateway/health")
		if err != nil {
			return false
		}
		return response.Body.Close() == nil
	})
	r.configure(t, nil, 40)
	n.HandOver(t, r.socket, slotName)
	r.servers = startServers(t, n)
	return r
}

func (r *rig) configure(t *testing.T, privateAllow []string, connections int) {
	t.Helper()
	r.call(t, "PUT", "/config", map[string]any{
		"resolvers": []string{resolver}, "private_allow": append([]string{}, privateAllow...), "host_addresses": []string{other}, "max_connections_per_vm": connections,
	}, http.StatusNoContent)
}

func (r *rig) call(t *testing.T, method, path string, body any, want int) []byte {
	t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequest(method, "http://gateway"+path, bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	response, err := r.api.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(response.Body)
	if response.StatusCode != want {
		t.Fatalf("%s %s: %d %s", method, path, response.StatusCode, answer)
	}
	return answer
}

type object = map[string]any

// policies is what a VM's PUT has: rules as `name:port`, `range:port`, or without a port for 80 and 443.
func allowing(rules ...string) []object {
	return []object{{"egress": "allowlist", "allow": canonical(rules), "deny": []object{}}}
}

func internet(deny ...string) []object {
	return []object{{"egress": "internet", "allow": []object{}, "deny": canonical(deny)}}
}

func canonical(rules []string) []object {
	list := []object{}
	for _, rule := range rules {
		target, port, given := strings.Cut(rule, "@")
		ports := []object{{"from": 80, "to": 80}, {"from": 443, "to": 443}}
		if given {
			ports = []object{{"from": json.Number(port), "to": json.Number(port)}}
		}
		key := "host"
		if _, err := netip.ParsePrefix(target); err == nil {
			key = "cidr"
		}
		list = append(list, object{key: target, "ports": ports})
	}
	return list
}

func (r *rig) attach(t *testing.T, policies []object) {
	t.Helper()
	r.call(t, "PUT", "/vms/"+vmID, object{"slot": slotName, "policies": policies}, http.StatusNoContent)
}

type entry struct {
	Name, Address, Protocol, Verdict, Reason, Detail string
	Port                                             *int
	Sent                                             int `json:"sent_bytes"`
	Received                                         int `json:"received_bytes"`
	Count                                            int
	Duration                                         *float64 `json:"duration_ms"`
}

type report struct {
	Sent          int `json:"sent_bytes"`
	Received      int `json:"received_bytes"`
	Allowed       int `json:"allowed_count"`
	Refused       int `json:"refused_count"`
	Open          int
	RefusedSeq    int     `json:"refused_seq"`
	LatestRefused []entry `json:"latest_refused"`
	Connections   []entry
}

func (r *rig) report(t *testing.T) report {
	t.Helper()
	var parsed report
	if err := json.Unmarshal(r.call(t, "GET", "/vms/"+vmID, nil, http.StatusOK), &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed
}

// refusedFor waits until the newest refusal is this.
func (r *rig) refusedFor(t *testing.T, name, reason string) entry {
	t.Helper()
	var last entry
	until(t, fmt.Sprintf("%s is refused: %s", name, reason), func() bool {
		latest := r.report(t).LatestRefused
		if len(latest) == 0 {
			return false
		}
		last = latest[len(latest)-1]
		return last.Reason == reason && (last.Name == name || last.Name == "" && last.Address == name)
	}, func() string { return fmt.Sprintf("%+v", last) })
	return last
}

// lookUp gives a name's address for the guest.
func (r *rig) lookUp(t *testing.T, name string) string {
	t.Helper()
	answer := r.Query(t, "udp", "9.9.9.9:53", name, dnsmessage.TypeA)
	if len(answer.Answers) != 1 {
		t.Fatalf("look-up of %s: %v", name, answer.GoString())
	}
	return netip.AddrFrom4(answer.Answers[0].Body.(*dnsmessage.AResource).A).String()
}

// reach connects the guest to a name or an address.
func (r *rig) reach(t *testing.T, name string, port int) *net.TCPConn {
	t.Helper()
	connection, err := r.try(t, name, port)
	if err != nil {
		t.Fatal(err)
	}
	return connection
}

func (r *rig) try(t *testing.T, name string, port int) (*net.TCPConn, error) {
	t.Helper()
	address := name
	if _, err := netip.ParseAddr(name); err != nil {
		address = r.lookUp(t, name)
	}
	return r.Dial(t, net.JoinHostPort(address, fmt.Sprint(port)))
}

// refuses says that the guest is reset, while it connects or at once afterwards.
func (r *rig) refuses(t *testing.T, name string, port int) {
	t.Helper()
	connection, err := r.try(t, name, port)
	if errors.Is(err, syscall.ECONNRESET) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	mustReset(t, connection)
}

// mustReset says that the connection is ended by RST, and nothing is read before.
func mustReset(t *testing.T, connection *net.TCPConn) {
	t.Helper()
	n, err := connection.Read(make([]byte, 1))
	if n > 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read %d, %v in place of a reset", n, err)
	}
}

// ask writes a request as it is, and gives the answer.
func ask(t *testing.T, connection net.Conn, request string) (*http.Response, string, error) {
	t.Helper()
	if _, err := io.WriteString(connection, request); err != nil {
		return nil, "", err
	}
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return nil, "", err
	}
	body, err := io.ReadAll(response.Body)
	return response, string(body), err
}

func until(t *testing.T, what string, is func() bool, got ...func() string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			for _, g := range got {
				what += "; got " + g()
			}
			t.Fatalf("not so: %s", what)
		}
	}
}
