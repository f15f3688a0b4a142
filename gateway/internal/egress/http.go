package egress

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fuse/gateway/internal/policy"
)

const (
	// With net/http's own 4 KB. Many short lines take eight times their length, and a guest may have a thousand requests begun.
	maxRequestHeader  = 16 << 10
	maxResponseHeader = 256 << 10
	headerLimit       = 30 * time.Second
	betweenRequests   = 10 * time.Minute
	headBuffer        = 2 << 10
	halfClosedLimit   = time.Minute
)

// carryHTTP answers the guest as a proxy: each request is parsed, its host is judged, and what goes on is written anew from what was parsed. So there is one
// reading of where a request ends and whom it names. opened is a connection to the other side that is there already, or nil.
func (c *connection) carryHTTP(opened *net.TCPConn) *refusal {
	if !c.vm.proxied.take(1, maxProxies) {
		return refuse(policy.TooMany, "too many HTTP connections at a time")
	}
	defer c.vm.proxied.give(1)
	p := &httpProxy{connection: c, opened: opened, heads: heads{vm: c.vm}}
	c.forgetFirst() // what is pending is counted with the first request
	defer p.heads.end()
	transport := &http.Transport{
		DialContext:            p.dial,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    1,
		MaxResponseHeaderBytes: maxResponseHeader,
		IdleConnTimeout:        betweenRequests,
		ExpectContinueTimeout:  2 * time.Second,
		ReadBufferSize:         headBuffer,
		WriteBufferSize:        headBuffer,
	}
	defer transport.CloseIdleConnections()
	silent := log.New(io.Discard, "", 0)
	reverse := &httputil.ReverseProxy{Rewrite: p.rewrite, Transport: transport, FlushInterval: -1, ModifyResponse: p.answered, ErrorHandler: p.failed, ErrorLog: silent, BufferPool: copyBuffers{c.vm}}
	guest := &guestConn{TCPConn: c.guest, proxy: p, closed: make(chan struct{})}
	server := &http.Server{
		Handler:                      p.judge(reverse),
		MaxHeaderBytes:               maxRequestHeader,
		ReadHeaderTimeout:            headerLimit,
		IdleTimeout:                  betweenRequests,
		ErrorLog:                     silent,
		BaseContext:                  func(net.Listener) context.Context { return c.ctx },
		DisableGeneralOptionsHandler: true,
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateActive:
				p.read.Add(1)
			case http.StateIdle:
				p.heads.next()
			default:
			}
		},
	}
	_ = server.Serve(&oneConn{conn: guest})
	<-guest.closed
	return p.verdict()
}

type httpProxy struct {
	connection *connection
	// Requests that net/http has read or tried to, and those of them that came as far as the handler.
	read, judged atomic.Int64
	heads        heads

	mutex   sync.Mutex
	opened  *net.TCPConn
	refusal *refusal
}

// stop resets the guest's connection; the first reason stays.
func (p *httpProxy) stop(r *refusal) {
	p.mutex.Lock()
	if p.refusal == nil {
		p.refusal = r
	}
	p.mutex.Unlock()
	reset(p.connection.guest)
}

func (p *httpProxy) verdict() *refusal {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.refusal
}

func (p *httpProxy) judge(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.judged.Add(1)
		p.heads.pass(&p.heads.judged)
		if r.Method == http.MethodConnect {
			p.stop(refuse(policy.UnknownProtocol, "CONNECT"))
			panic(http.ErrAbortHandler)
		}
		if !plainHost(r.Host) {
			p.stop(refuse(policy.UnknownProtocol, "malformed Host"))
			panic(http.ErrAbortHandler)
		}
		if refused := p.connection.checkName(hostOf(r.Host)); refused != nil {
			p.stop(refused)
			panic(http.ErrAbortHandler)
		}
		ctx, cancel := context.WithCancel(p.connection.ctx)
		defer cancel()
		defer p.outlive(ctx, cancel, r)()
		// What the server does not say of its answer net/http does not make up.
		w.Header()["Content-Type"], w.Header()["Date"] = nil, nil
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// outlive gives a request whose client has ended its half time for its answer: net/http takes that for the client's leaving, which looks the same.
func (*httpProxy) outlive(ctx context.Context, cancel context.CancelFunc, r *http.Request) (stop func() bool) {
	return context.AfterFunc(r.Context(), func() {
		select {
		case <-time.After(halfClosedLimit):
			cancel()
		case <-ctx.Done():
		}
	})
}

// hostOf takes the port off.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

// plainHost: nothing that a server might read as another host, such as what follows a comma where a port should be.
func plainHost(host string) bool {
	return !strings.ContainsFunc(host, func(c rune) bool {
		return !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.ContainsRune("-._:[]", c))
	})
}

func (p *httpProxy) rewrite(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme = "http"
	// Only the key of the connection: where it goes the dialer knows.
	r.Out.URL.Host = net.JoinHostPort("target.invalid", strconv.Itoa(int(p.connection.target.port)))
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	if r.Out.Host = r.In.Host; r.Out.Host == "" {
		r.Out.Host = p.connection.target.host()
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = values
		}
	}
	// HTTP/2 in clear could name other hosts where nobody looks; a WebSocket stays with its server.
	if !strings.EqualFold(r.In.Header.Get("Upgrade"), "websocket") {
		r.Out.Header.Del("Upgrade")
		r.Out.Header.Del("Connection")
		r.Out.Header.Del("Http2-Settings")
	}
}

func (p *httpProxy) dial(context.Context, string, string) (net.Conn, error) {
	c := p.connection
	p.mutex.Lock()
	upstream := p.opened
	p.opened = nil
	p.mutex.Unlock()
	upstream, r := c.connected(upstream)
	if r != nil {
		return nil, r
	}
	c.passes(look{taken: true, conforms: true})
	return &countedConn{TCPConn: upstream, connection: c, proxy: p}, nil
}

func (p *httpProxy) answered(*http.Response) error {
	p.heads.pass(&p.heads.answered)
	return nil
}

// failed is called when a request got no answer, or not all of it.
func (p *httpProxy) failed(_ http.ResponseWriter, _ *http.Request, err error) {
	var refused *refusal
	if !errors.As(err, &refused) {
		refused = ended
	}
	p.stop(refused)
	panic(http.ErrAbortHandler)
}

// countedConn is the side towards the server.
type countedConn struct {
	*net.TCPConn
	connection *connection
	proxy      *httpProxy
	closing    sync.Once
}

func (u *countedConn) Read(b []byte) (int, error) {
	n, err := u.TCPConn.Read(b)
	u.connection.entry.Received(n)
	if !u.proxy.heads.told(b[:n]) {
		u.proxy.stop(tooManyHeads)
		return 0, tooManyHeads
	}
	if n > 0 {
		if turnErr := u.connection.waitTurn(n); turnErr != nil {
			return n, turnErr
		}
	}
	return n, err
}

func (u *countedConn) Write(b []byte) (int, error) {
	if err := u.connection.waitTurn(len(b)); err != nil {
		return 0, err
	}
	n, err := u.TCPConn.Write(b)
	u.connection.entry.Sent(n)
	return n, err
}

// ReadFrom would pass by Write.
func (u *countedConn) ReadFrom(r io.Reader) (int64, error) {
	return u.connection.copy(u, r)
}

// WriteTo would pass by Read.
func (u *countedConn) WriteTo(w io.Writer) (int64, error) {
	return u.connection.copy(w, u)
}

func (u *countedConn) Close() error {
	u.closing.Do(func() { u.connection.disown(u.TCPConn) })
	return u.TCPConn.Close()
}

// guestConn is the side towards the guest, with what was read ahead.
type guestConn struct {
	*net.TCPConn
	proxy   *httpProxy
	closing sync.Once
	closed  chan struct{}
}

func (g *guestConn) Read(b []byte) (int, error) {
	n, err := g.proxy.connection.Read(b)
	if !g.proxy.heads.asked(b[:n]) {
		g.proxy.stop(tooManyHeads)
		return 0, tooManyHeads
	}
	return n, err
}

// Write is also where net/http itself refuses what it cannot parse, before the handler.
func (g *guestConn) Write(b []byte) (int, error) {
	if g.proxy.read.Load() > g.proxy.judged.Load() && !isContinue(b) {
		if strings.Contains(string(b), "missing required Host header") {
			g.proxy.stop(refuse(policy.NoName, ""))
		} else {
			g.proxy.stop(refuse(policy.UnknownProtocol, "malformed HTTP"))
		}
		return 0, net.ErrClosed
	}
	return g.TCPConn.Write(b)
}

func isContinue(b []byte) bool { return strings.HasPrefix(string(b[:min(len(b), 12)]), "HTTP/1.1 100") }

func (g *guestConn) ReadFrom(r io.Reader) (int64, error) {
	return g.proxy.connection.copy(g, r)
}

func (g *guestConn) WriteTo(w io.Writer) (int64, error) {
	return g.proxy.connection.copy(w, g)
}

func (g *guestConn) Close() error {
	err := g.TCPConn.Close()
	g.closing.Do(func() { close(g.closed) })
	return err
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn net.Conn
	once sync.Once
}

func (l *oneConn) Accept() (net.Conn, error) {
	var conn net.Conn
	l.once.Do(func() { conn = l.conn })
	if conn == nil {
		return nil, io.EOF
	}
	return conn, nil
}

func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }

// copyBuffers are smaller than those of relay: an answer that is slow to come holds one.
type copyBuffers struct{ vm *VM }

const copyBytes = 16 << 10

var copies = newBufferPool(copyBytes)

func (c copyBuffers) Get() []byte  { return *copies.get(c.vm) }
func (c copyBuffers) Put(b []byte) { copies.put(c.vm, &b) }

// copy is io.Copy with a buffer of ours, and by Read and Write alone.
func (c *connection) copy(to io.Writer, from io.Reader) (int64, error) {
	buffer := copies.get(c.vm)
	defer copies.put(c.vm, buffer)
	return io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, *buffer)
}
