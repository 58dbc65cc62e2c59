package fastpath

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
)

// A request as programs send it, and the end of every conversation below.
const (
	plainCheck = "GET /v1/check?sender=a@bad.example HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n"
	otherCheck = "GET /v1/check?sender=a@ok.example HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n"
	farewell   = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
)

// requests are what a client may send at once, and whether the fast path answers it.
var requests = []struct {
	name, text string
	taken      bool
}{
	{"a check", plainCheck, true},
	{"fields that change nothing", "GET /v1/check?sender= HTTP/1.1\r\naccept: */*\r\naccept-ENCODING: gzip\r\nAccept-Language: de\r\nConnection: keep-alive\r\nhost: localhost:8025\r\n\r\n", true},
	{"a token", "GET /v1/check?domain=x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer nobodys-token\r\n\r\n", true},
	{"a question that is none", "GET /v1/check?sender=%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", true},
	{"a name that the guard refuses", "GET /v1/check?sender=a HTTP/1.1\r\nHost: evil.example\r\n\r\n", true},
	{"a long answer", "GET /v1/check?explain=1&sender=a@" + strings.Repeat("b.", 40) + "bad.example HTTP/1.1\r\nHost: localhost\r\n\r\n", true},

	{"nothing asked", "GET /v1/check? HTTP/1.1\r\nHost: localhost\r\n\r\n", false},
	{"another resource", "GET /healthz?sender=a HTTP/1.1\r\nHost: localhost\r\n\r\n", false},
	{"a resource below", "GET /v1/check/?sender=a HTTP/1.1\r\nHost: localhost\r\n\r\n", false},
	{"HEAD", "HEAD /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\n\r\n", false},
	{"half of a request", plainCheck[:50], false},
	{"two requests", plainCheck + otherCheck, false},
	{"an octet of the next", plainCheck + "G", false},
	{"bare line feeds", strings.ReplaceAll(plainCheck, "\r", ""), true}, // net/http takes them
	{"a header that ends earlier than it seems", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\n\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", false},
	{"a body", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", false},
	{"a body to come", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n", false},
	{"chunks to come", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", false},
	{"HTTP/1.0", "GET /v1/check?sender=a HTTP/1.0\r\nHost: localhost\r\n\r\n", false},
	{"no Host", "GET /v1/check?sender=a HTTP/1.1\r\n\r\n", false},
	{"two Hosts", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", false},
	{"no Host name", "GET /v1/check?sender=a HTTP/1.1\r\nHost: a/b\r\n\r\n", false},
	{"the last request", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", false},
	{"two words for the connection", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, upgrade\r\n\r\n", false},
	{"a tag", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: *\r\n\r\n", false},
	{"a browser", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n", false},
	{"a page", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n\r\n", false},
	{"an expectation", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\r\n", false},
	{"an expectation that nobody knows", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\nExpect: more\r\nContent-Length: 400\r\n\r\n", false},
	{"a field twice", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\nAccept: a\r\nAccept: b\r\n\r\n", false},
	{"a folded field", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\nAccept: a\r\n b\r\n\r\n", true},
	{"a field that no text is", "GET /v1/check?sender=a HTTP/1.1\r\nHost: localhost\r\nAccept: \x01\r\n\r\n", false},
	{"a query that no text is", strings.Replace(plainCheck, "a@", "\x7f@", 1), false},
	{"a word too many", "GET /v1/check?sender=a b HTTP/1.1\r\nHost: localhost\r\n\r\n", false},
	{"the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false},
	{"no request", "\x16\x03\x01", false},
}

// echo answers with all that a handler can see of a request. The query asks for another
// status, or for a long answer.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	local := r.Context().Value(http.LocalAddrContextKey)
	_, served := r.Context().Value(http.ServerContextKey).(*http.Server)
	text := fmt.Sprintf("%s %q %+v %s %q %v %s %d %v %v %v %q %v %v %v %v\n", r.Method, r.RequestURI, *r.URL, r.Proto, r.Host, r.Header, r.RemoteAddr,
		r.ContentLength, r.TransferEncoding, r.Close, r.Trailer, body, err, local, served, r.Context().Value(connKey{}))
	if strings.Contains(r.URL.RawQuery, "explain=1") {
		text += strings.Repeat("x", 20<<10)
	}
	if len(text) > 2<<10 { // else net/http says it
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	}
	w.Header().Set("Content-Type", "text/plain")
	if strings.Contains(r.URL.RawQuery, "domain=") {
		w.WriteHeader(http.StatusNotFound)
	}
	io.WriteString(w, text)
}

type connKey struct{}

func newServer(handler http.HandlerFunc) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c.RemoteAddr())
		}}
}

// serve runs test with a server on pipes in a synctest bubble, with the fast path or without.
func serve(t *testing.T, fast bool, handler http.HandlerFunc, test func(p *testkit.Pipes, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		p, srv, ended := testkit.NewPipes(), newServer(handler), make(chan struct{})
		l := NewListener(ctx, p, srv, "/v1/check", handler, 4)
		go func() {
			defer close(ended)
			if fast {
				srv.Serve(l)
			} else {
				srv.Serve(p)
			}
		}()
		test(p, cancel)
		cancel()
		l.Drain(context.Background())
		srv.Close()
		<-ended
	})
}

func newExchange(t *testing.T, handler http.HandlerFunc) *exchange {
	client, server := net.Pipe()
	t.Cleanup(func() { client.Close() })
	return &exchange{listener: NewListener(t.Context(), nil, newServer(handler), "/v1/check", handler, 1), conn: server}
}

func TestRecognise(t *testing.T) {
	for _, tt := range requests {
		e := newExchange(t, echo)
		testkit.Equal(t, fmt.Sprintf("%s: taken", tt.name), e.recognise([]byte(tt.text)), tt.taken)
		e = newExchange(t, echo)
		if !e.recognise([]byte(plainCheck)) {
			t.Fatal("a check is not taken")
		}
		testkit.Equal(t, fmt.Sprintf("%s, after a check: taken", tt.name), e.recognise([]byte(tt.text)), tt.taken)
	}
}

// FuzzListener compares the answers of a server with and without the fast path, octet for
// octet. What a client sends at once ends with NUL; then it says farewell.
func FuzzListener(f *testing.F) {
	for _, tt := range requests {
		f.Add([]byte(tt.text))
		f.Add([]byte(plainCheck + "\x00" + tt.text + "\x00" + otherCheck))
	}
	f.Add([]byte(plainCheck + "\x00" + otherCheck + "\x00" + otherCheck[:9] + "\x00" + otherCheck[9:]))
	f.Add([]byte(plainCheck + "\x00" + otherCheck + "G\x00" + otherCheck[1:]))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 64<<10 {
			return
		}
		var got, want string
		serve(t, true, echo, func(p *testkit.Pipes, _ func()) { got = converse(p, text) })
		serve(t, false, echo, func(p *testkit.Pipes, _ func()) { want = converse(p, text) })
		testkit.Equal(t, "the answers", got, want)
	})
}

// converse sends text to a server, and returns its answers as they came. The bubble's clock
// ends a conversation that stands still.
func converse(p *testkit.Pipes, text []byte) string {
	conn := p.Dial("192.0.2.1")
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Hour)) // the server waits for a body without end
	go func() {
		for part := range bytes.SplitSeq(text, []byte{0}) {
			conn.Write(part)
			synctest.Wait() // it is read by itself
		}
		io.WriteString(conn, farewell)
	}()
	all, _ := io.ReadAll(conn)
	return string(all)
}

// TestDrain holds that an answer in progress is written, after which its connection ends,
// and that another one ends at once.
func TestDrain(t *testing.T) {
	var reply chan struct{} // of the bubble
	wait := func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.RawQuery, "ok.example") {
			<-reply
		}
	}
	serve(t, true, wait, func(p *testkit.Pipes, stop func()) {
		reply = make(chan struct{})
		busy, idle := p.Dial("192.0.2.1"), p.Dial("192.0.2.2")
		go io.WriteString(idle, plainCheck)
		go io.WriteString(busy, otherCheck)
		synctest.Wait() // both are asked
		stop()
		if text, _ := io.ReadAll(idle); !strings.HasPrefix(string(text), "HTTP/1.1 200 OK\r\n") {
			t.Errorf("the idle connection: %q", text)
		}
		close(reply)
		if text, _ := io.ReadAll(busy); !strings.HasPrefix(string(text), "HTTP/1.1 200 OK\r\n") {
			t.Errorf("the busy connection: %q", text)
		}
	})
}

func TestAllocations(t *testing.T) {
	e := newExchange(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	b, now := []byte(plainCheck), time.Now()
	if got := testing.AllocsPerRun(200, func() {
		e.recognise(b)
		e.listener.handler.ServeHTTP(&e.answer, e.request)
		e.answer.finish(now)
	}); got > 1 { // the query
		t.Errorf("%.0f allocations, want 1", got)
	}
}
