package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fuse/gateway/internal/smallnet"
)

// servers are those of the small Internet. Each says who it was taken for.
type servers struct {
	served atomic.Int64
}

func startServers(t *testing.T, n *smallnet.Net) *servers {
	t.Helper()
	s := &servers{}
	config := &tls.Config{Certificates: []tls.Certificate{certificate(t)}, CurvePreferences: []tls.CurveID{tls.CurveP384}}
	for _, address := range []string{shared, other, sixth, private, metadata} {
		for _, port := range []string{"80", "8080"} {
			plain := n.Servers.Listen(t, net.JoinHostPort(address, port))
			go func() { _ = http.Serve(plain, http.HandlerFunc(s.http)) }()
		}
		for _, port := range []string{"443", "8443"} {
			secure := n.Servers.Listen(t, net.JoinHostPort(address, port))
			go s.each(secure, func(c net.Conn) { s.tls(tls.Server(c, config)) })
		}
		go s.each(n.Servers.Listen(t, net.JoinHostPort(address, "22")), func(c net.Conn) {
			_, _ = io.WriteString(c, "SSH-2.0-first\r\n")
			_, _ = io.Copy(c, c)
		})
		go s.each(n.Servers.Listen(t, net.JoinHostPort(address, "9001")), func(c net.Conn) { _, _ = io.Copy(c, zeros{}) })
		go s.each(n.Servers.Listen(t, net.JoinHostPort(address, "9000")), func(c net.Conn) {
			data, _ := io.ReadAll(c)
			_, _ = fmt.Fprintf(c, "%d bytes", len(data))
		})
	}
	return s
}

func (s *servers) each(listener net.Listener, serve func(net.Conn)) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		s.served.Add(1)
		go func() {
			defer connection.Close()
			serve(connection)
		}()
	}
}

// tls says the name of the handshake, then echoes.
func (s *servers) tls(connection *tls.Conn) {
	defer connection.Close()
	if connection.Handshake() != nil {
		return
	}
	_, _ = fmt.Fprintf(connection, "%s\n", connection.ConnectionState().ServerName)
	_, _ = io.Copy(connection, connection)
}

func (s *servers) http(w http.ResponseWriter, r *http.Request) {
	s.served.Add(1)
	if r.Header.Get("Upgrade") == "websocket" {
		connection, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer connection.Close()
		_, _ = io.WriteString(connection, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		_, _ = io.Copy(connection, buffered)
		return
	}
	switch {
	case strings.HasPrefix(r.URL.Path, "/never"):
		<-r.Context().Done()
		return
	case r.URL.Path == "/endless":
		_, _ = io.Copy(w, zeros{})
		return
	}
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Trailer", "X-End")
	_, _ = fmt.Fprintf(w, "%s %s host=%s body=%s headers=%s", r.Method, r.RequestURI, r.Host, body, strings.Join(r.Header["X-Asked"], ","))
	w.Header().Set("X-End", "yes")
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"*.test"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }
