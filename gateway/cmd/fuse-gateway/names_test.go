package main

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// handshake gives the name that the server took, or the handshake's error.
func handshake(connection net.Conn, serverName string, change ...func(*tls.Config)) (string, error) {
	config := &tls.Config{ServerName: serverName, InsecureSkipVerify: true}
	for _, c := range change {
		c(config)
	}
	secure := tls.Client(connection, config)
	if err := secure.Handshake(); err != nil {
		return "", err
	}
	return bufio.NewReader(secure).ReadString('\n')
}

func tlsNames(t *testing.T, r *rig) {
	r.attach(t, allowing("good.test", "good.test@8443", "*.wild.test", "six.test"))
	for name, port := range map[string]int{"good.test": 443, "one.wild.test": 443, "six.test": 443} {
		if got, err := handshake(r.reach(t, name, port), strings.ToUpper(name)); err != nil || !strings.EqualFold(got, name+"\n") {
			t.Fatalf("%s: %q, %v", name, got, err)
		}
	}
	// The server wants another curve, so this is with a second ClientHello too; on a port of its own with a hesitant client.
	slow := r.reach(t, "good.test", 8443)
	time.Sleep(2 * 200 * time.Millisecond)
	if got, err := handshake(slow, "good.test"); err != nil || got != "good.test\n" {
		t.Fatalf("a hesitant client: %q, %v", got, err)
	}

	for _, port := range []int{443, 8443} {
		for _, hesitation := range []time.Duration{0, 400 * time.Millisecond} {
			connection := r.reach(t, "good.test", port)
			time.Sleep(hesitation)
			if got, err := handshake(connection, "evil.test"); err == nil {
				t.Fatalf("port %d: evil.test answered: %s", port, got)
			}
			if e := r.refusedFor(t, "good.test", "name_mismatch"); e.Protocol != "tls" || !strings.Contains(e.Detail, "evil.test") {
				t.Fatalf("%+v", e)
			}
			if got, err := handshake(r.reach(t, "good.test", port), ""); err == nil {
				t.Fatalf("no name: %s", got)
			}
			r.refusedFor(t, "good.test", "no_name")
		}
	}
	if _, err := handshake(r.reach(t, "good.test", 443), "good.test", func(c *tls.Config) {
		c.EncryptedClientHelloConfigList = echConfigList(t, "good.test")
		c.MinVersion = tls.VersionTLS13
	}); err == nil {
		t.Fatal("a name was hidden")
	}
	if e := r.refusedFor(t, "good.test", "no_name"); !strings.Contains(e.Detail, "Encrypted ClientHello") {
		t.Fatalf("%+v", e)
	}
	secondHello(t, r)
}

// secondHello names the allowed host first and another one when the server asks again.
func secondHello(t *testing.T, r *rig) {
	connection := r.reach(t, "good.test", 443)
	first := recordedHello("good.test")
	second := recordedHello("evil.test")
	if _, err := connection.Write(first); err != nil {
		t.Fatal(err)
	}
	if n, err := connection.Read(make([]byte, 4096)); n == 0 {
		t.Fatalf("no HelloRetryRequest: %v", err)
	}
	if _, err := connection.Write(append([]byte{20, 3, 3, 0, 1, 1}, second...)); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, connection)
	if err == nil {
		t.Fatal("not reset")
	}
	if e := r.refusedFor(t, "good.test", "name_mismatch"); !strings.Contains(e.Detail, "evil.test") {
		t.Fatalf("%+v", e)
	}
}

// recordedHello is a ClientHello without the curve that the servers want, so that they ask for another.
func recordedHello(serverName string) []byte {
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		_ = tls.Client(there, &tls.Config{ServerName: serverName, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}).Handshake()
		_ = there.Close()
	}()
	hello := make([]byte, 4096)
	n, _ := here.Read(hello)
	return hello[:n]
}

func httpNames(t *testing.T, r *rig) {
	r.attach(t, allowing("good.test", "good.test@8080"))
	response, body, err := ask(t, r.reach(t, "good.test", 80), "POST /a%2Fb?x=1;y HTTP/1.1\r\nHost: GOOD.test:80\r\nX-Asked: yes\r\nContent-Length: 4\r\n\r\nbody")
	if err != nil || body != "POST /a%2Fb?x=1;y host=GOOD.test:80 body=body headers=yes" || response.Trailer.Get("X-End") != "yes" {
		t.Fatalf("%q %v %v", body, response, err)
	}
	_, body, err = ask(t, r.reach(t, "good.test", 80), "GET http://good.test/abs HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	if err != nil || body != "GET /abs host=good.test body= headers=" {
		t.Fatalf("absolute form: %q %v", body, err)
	}
	_, body, err = ask(t, r.reach(t, "good.test", 80), "\r\n\r\nGET / HTTP/1.0\r\nHost: good.test\r\n\r\n")
	if err == nil && body != "GET / host=good.test body= headers=" {
		t.Fatalf("HTTP/1.0: %q %v", body, err)
	}
	_, body, err = ask(t, r.reach(t, "good.test", 80),
		"POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab\r\nc\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: good.test\r\n\r\n")
	if err != nil || body != "POST / host=good.test body=ab\r\nc headers=" {
		t.Fatalf("two lengths: %q %v", body, err)
	}

	for what, attempt := range map[string]struct{ request, reason string }{
		"another host":        {"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n", "name_mismatch"},
		"an address as host":  {"GET / HTTP/1.1\r\nHost: 45.33.32.10\r\n\r\n", "name_mismatch"},
		"absolute form":       {"GET http://evil.test/ HTTP/1.1\r\nHost: good.test\r\n\r\n", "name_mismatch"},
		"a longer host":       {"GET / HTTP/1.1\r\nHost: good.test.evil.test\r\n\r\n", "name_mismatch"},
		"no host":             {"GET / HTTP/1.1\r\nX: y\r\n\r\n", "no_name"},
		"no host, 1.0":        {"GET / HTTP/1.0\r\n\r\n", "no_name"},
		"two hosts":           {"GET / HTTP/1.1\r\nHost: good.test\r\nHost: evil.test\r\n\r\n", "unknown_protocol"},
		"a space before :":    {"GET / HTTP/1.1\r\nHost : evil.test\r\nHost: good.test\r\n\r\n", "unknown_protocol"},
		"lengths that differ": {"POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "unknown_protocol"},
		"an odd encoding":     {"POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "unknown_protocol"},
		"CONNECT":             {"CONNECT good.test:80 HTTP/1.1\r\nHost: good.test\r\n\r\n", "unknown_protocol"},
		"HTTP/2 in clear":     {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "unknown_protocol"},
		"another protocol":    {"\x00\x01\x02\x03 hello", "unknown_protocol"},
		"a line of text":      {"HELO there\r\n", "unknown_protocol"},
	} {
		t.Run(what, func(t *testing.T) {
			before := r.report(t).Refused
			connection := r.reach(t, "good.test", 80)
			if _, err := io.WriteString(connection, attempt.request); err != nil {
				t.Fatal(err)
			}
			mustReset(t, connection)
			until(t, "it is noted", func() bool { return r.report(t).Refused > before })
			r.refusedFor(t, "good.test", attempt.reason)
			if after := r.report(t).Refused; after != before+1 {
				t.Fatalf("%d refusals", after-before)
			}
		})
	}

	// On a port of another kind too, however late the client speaks.
	for host, reason := range map[string]string{"good.test": "", "evil.test": "name_mismatch"} {
		late := r.reach(t, "good.test", 8080)
		time.Sleep(400 * time.Millisecond)
		_, body, err := ask(t, late, "GET /late HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		if (err == nil) != (reason == "") {
			t.Fatalf("%s: %q %v", host, body, err)
		}
		if reason != "" {
			r.refusedFor(t, "good.test", reason)
		}
	}

	// A client that ends its half gets its answer; one that asks whether to go on is told.
	half := r.reach(t, "good.test", 80)
	_, _ = io.WriteString(half, "GET /half HTTP/1.1\r\nHost: good.test\r\n\r\n")
	_ = half.CloseWrite()
	if answer, err := io.ReadAll(half); err != nil || !strings.Contains(string(answer), "GET /half") {
		t.Fatalf("%q %v", answer, err)
	}
	asking := r.reach(t, "good.test", 80)
	response, _, err = ask(t, asking, "POST /asked HTTP/1.1\r\nHost: good.test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
	if err != nil || response.StatusCode != http.StatusContinue {
		t.Fatalf("%v %v", response, err)
	}
	_, _ = io.WriteString(asking, "ok")
	for answers := bufio.NewReader(asking); ; { // the server may have said so as well
		if response, err = http.ReadResponse(answers, nil); err != nil || response.StatusCode != http.StatusContinue {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "POST /asked host=good.test body=ok headers=" {
		t.Fatalf("%q %v", body, err)
	}

	// Each request of a connection is judged.
	connection := r.reach(t, "good.test", 80)
	for range 3 {
		if _, body, err := ask(t, connection, "GET /first HTTP/1.1\r\nHost: good.test\r\n\r\n"); err != nil || body != "GET /first host=good.test body= headers=" {
			t.Fatalf("%q %v", body, err)
		}
	}
	if _, body, err := ask(t, connection, "GET /second HTTP/1.1\r\nHost: evil.test\r\n\r\n"); err == nil {
		t.Fatalf("second request: %s", body)
	}
	r.refusedFor(t, "good.test", "name_mismatch")

	// Also of requests that are sent together, and after a body.
	pipelined := r.reach(t, "good.test", 80)
	_, _ = io.WriteString(pipelined, "POST /1 HTTP/1.1\r\nHost: good.test\r\nContent-Length: 1\r\n\r\nxGET /2 HTTP/1.1\r\nHost: evil.test\r\n\r\n")
	if everything, _ := io.ReadAll(pipelined); strings.Contains(string(everything), "/2") {
		t.Fatalf("pipelined: %s", everything)
	}
	r.refusedFor(t, "good.test", "name_mismatch")
	webSocket(t, r)
}

func webSocket(t *testing.T, r *rig) {
	connection := r.reach(t, "good.test", 80)
	_, _ = io.WriteString(connection, "GET /ws HTTP/1.1\r\nHost: good.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
	reader := bufio.NewReader(connection)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", response, err)
	}
	_, _ = io.WriteString(connection, "frames\n")
	if line, err := reader.ReadString('\n'); line != "frames\n" {
		t.Fatalf("%q %v", line, err)
	}
	upgrade := "GET / HTTP/1.1\r\nHost: good.test\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
	if response, _, err := ask(t, r.reach(t, "good.test", 80), upgrade); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("h2c: %v %v", response, err)
	}
}
