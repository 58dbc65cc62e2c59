package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/index"
)

// A check as programs send it, and the end of every conversation below.
const (
	plainCheck = "GET /v1/check?sender=a@bad.example HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n"
	otherCheck = "GET /v1/check?sender=a@ok.example HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n"
	farewell   = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
)

// laneRequests are what a client may send at once, and whether it is a lane's.
var laneRequests = []struct {
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

func TestLaneTakes(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	here, there := net.Pipe()
	defer here.Close()
	for _, tt := range laneRequests {
		l := newLanes(t.Context(), f.Handler(), 1).of(there)
		if got := l.recognise([]byte(tt.text)); got != tt.taken {
			t.Errorf("%s: taken %v, want %v", tt.name, got, tt.taken)
		}
		l = newLanes(t.Context(), f.Handler(), 1).of(there)
		if !l.recognise([]byte(plainCheck)) {
			t.Fatal("a check is not taken")
		}
		if got := l.recognise([]byte(tt.text)); got != tt.taken {
			t.Errorf("%s, behind a check: taken %v, want %v", tt.name, got, tt.taken)
		}
	}
}

// FuzzLane holds the answers of a Server against those of net/http alone with the same
// handler. What a client sends at once ends with NUL; then it says farewell.
func FuzzLane(f *testing.F) {
	for _, tt := range laneRequests {
		f.Add([]byte(tt.text))
		f.Add([]byte(plainCheck + "\x00" + tt.text + "\x00" + otherCheck))
	}
	f.Add([]byte(plainCheck + "\x00" + otherCheck + "\x00" + otherCheck[:9] + "\x00" + otherCheck[9:]))
	f.Add([]byte(plainCheck + "\x00" + otherCheck + "G\x00" + otherCheck[1:]))
	fix := newFixture(f, Settings{}, "bad.example\n")
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 64<<10 {
			return
		}
		var got, want string
		fix.inBubble(t, func(p *pipes) { got = converse(p, text) })
		synctest.Test(t, func(*testing.T) {
			p, ended := newPipes(), make(chan struct{})
			ctx, stop := context.WithCancel(context.Background())
			srv := fix.server(ctx)
			go func() {
				defer close(ended)
				srv.Serve(newConnections(p, defaultConns, defaultConns, func() {}))
			}()
			want = converse(p, text)
			stop()
			srv.Close()
			<-ended
		})
		if got != want {
			t.Errorf("%q is answered\n%.4000s\nwant\n%.4000s", text, got, want)
		}
	})
}

// converse sends text to a server, and returns its answers. The bubble's clock ends a
// conversation that stands still.
func converse(p *pipes, text []byte) string {
	conn := p.dial("192.0.2.1")
	defer conn.Close()
	go func() {
		for part := range bytes.SplitSeq(text, []byte{0}) {
			conn.Write(part)
			synctest.Wait() // it is read by itself
		}
		io.WriteString(conn, farewell)
	}()
	var all strings.Builder
	for in := bufio.NewReader(conn); ; {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return all.String()
		}
		body, err := io.ReadAll(res.Body)
		res.Header.Del("Date")           // of other bubbles
		res.Header.Del("Content-Length") // net/http sends long answers in chunks
		fmt.Fprintf(&all, "%s %v %v %s %v\n", res.Status, res.Close, res.Header, body, err)
	}
}

// TestLaneHandsOver holds that whoever was served by a lane has all of net/http behind
// it: hours later, and its time for a body.
func TestLaneHandsOver(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	f.inBubble(t, func(p *pipes) {
		conn := p.dial("192.0.2.1")
		defer conn.Close()
		in := bufio.NewReader(conn)
		for range 100 {
			io.WriteString(conn, plainCheck)
			if got := status(t, in); got != http.StatusOK {
				t.Fatalf("check is %d", got)
			}
			time.Sleep(idleTimeout - requestTimeout)
		}
		const batch = `{"senders":["a@bad.example"]}`
		fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(batch))
		for i := range batch {
			io.WriteString(conn, batch[i:i+1])
			time.Sleep(requestTimeout / 2 / time.Duration(len(batch)))
		}
		if got := status(t, in); got != http.StatusOK {
			t.Errorf("batch is %d", got)
		}
	})
	f.inBubble(t, func(p *pipes) {
		conn := p.dial("192.0.2.1")
		defer conn.Close()
		in := bufio.NewReader(conn)
		for _, tt := range []struct {
			text string
			want int
		}{{plainCheck, http.StatusOK}, {"GET /v1/check HTTP/1.1\r\n\r\n", http.StatusBadRequest}} {
			io.WriteString(conn, tt.text)
			if got := status(t, in); got != tt.want {
				t.Errorf("%q is %d, want %d", tt.text, got, tt.want)
			}
			time.Sleep(requestTimeout + time.Second)
		}
	})
	f.inBubble(t, func(p *pipes) {
		conn := p.dial("192.0.2.1")
		defer conn.Close()
		io.WriteString(conn, plainCheck)
		status(t, bufio.NewReader(conn))
		io.WriteString(conn, plainCheck[:50])
		if got := lasts(conn); got > headerTimeout {
			t.Errorf("half a header lasts %v", got)
		}
	})
}

func status(t *testing.T, in *bufio.Reader) int {
	t.Helper()
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// TestLaneEndsBehindItsAnswer holds that the end of the server, which takes an old connection
// without a request for idle, leaves an answer under way alone.
func TestLaneEndsBehindItsAnswer(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	synctest.Test(t, func(t *testing.T) {
		p, ended := newPipes(), make(chan error)
		ctx, stop := context.WithCancel(context.Background())
		go func() { ended <- f.Serve(ctx, p) }()
		busy, idle := p.dial("192.0.2.1"), p.dial("192.0.2.2")
		defer busy.Close()
		defer idle.Close()
		in := bufio.NewReader(busy)
		for _, conn := range []net.Conn{idle, busy} {
			go io.WriteString(conn, plainCheck)
			if got := status(t, bufio.NewReader(conn)); got != http.StatusOK {
				t.Fatalf("check is %d", got)
			}
		}
		time.Sleep(time.Minute)
		asked, answer := make(chan struct{}), make(chan struct{})
		f.reload = func() { close(asked); <-answer }
		go io.WriteString(busy, otherCheck)
		<-asked
		f.reload = nil
		stop()
		if got := lasts(idle); got != 0 {
			t.Errorf("the idle connection lasts %v", got)
		}
		synctest.Wait()
		select {
		case <-p.closed:
		default:
			t.Error("others are still let in")
		}
		go close(answer)
		if got := status(t, in); got != http.StatusOK {
			t.Errorf("the answer under way is %d", got)
		}
		if got := lasts(busy); got != 0 {
			t.Errorf("its connection lasts %v", got)
		}
		if err := <-ended; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
}

// TestLaneAsksTheGuardEachTime holds that a header which is not parsed again is looked
// at again.
func TestLaneAsksTheGuardEachTime(t *testing.T) {
	f := newFixture(t, Settings{MaxRate: 2}, "bad.example\n")
	f.inBubble(t, func(p *pipes) {
		conn := p.dial("192.0.2.1")
		defer conn.Close()
		in := bufio.NewReader(conn)
		for i, want := range []int{200, 200, 429, 429} {
			io.WriteString(conn, plainCheck)
			if got := status(t, in); got != want {
				t.Errorf("check %d is %d, want %d", i, got, want)
			}
		}
		time.Sleep(time.Second)
		io.WriteString(conn, plainCheck)
		if got := status(t, in); got != 200 {
			t.Errorf("a second later it is %d", got)
		}
	})
}

// TestLaneAnswersFromTheGenerationOfNow is here for what a lane keeps from one request
// to the next.
func TestLaneAnswersFromTheGenerationOfNow(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	next := build(t, "ok.example\n")
	f.inBubble(t, func(p *pipes) {
		conn := p.dial("192.0.2.1")
		defer conn.Close()
		in := bufio.NewReader(conn)
		for _, tt := range []struct {
			live *index.Index
			text string
			want string
		}{
			{f.live, plainCheck, "blocked"}, {f.live, otherCheck, "clear"}, {f.live, plainCheck, "blocked"},
			{next, plainCheck, "clear"}, {next, otherCheck, "blocked"},
		} {
			f.live = tt.live
			io.WriteString(conn, tt.text)
			res, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, _ := io.ReadAll(res.Body); !strings.Contains(string(body), `"verdict":"`+tt.want+`"`) {
				t.Errorf("%.40q is %s, want %s", tt.text, body, tt.want)
			}
		}
	})
}

func TestLaneAllocates(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	here, there := net.Pipe()
	defer here.Close()
	l := newLanes(t.Context(), f.Handler(), 1).of(there)
	for text, most := range map[string]float64{plainCheck: 12, otherCheck: 8} {
		b, now := []byte(text), time.Now()
		if got := testing.AllocsPerRun(200, func() {
			l.recognise(b)
			l.all.handler.ServeHTTP(&l.reply, l.request)
			l.reply.finish(now)
		}); got > most {
			t.Errorf("%.40q: %.0f allocations, want %.0f at most", text, got, most)
		}
	}
}

// TestLaneEndsWithADefect holds that a panic in a lane costs its connection and neither its
// place nor the end of the server.
func TestLaneEndsWithADefect(t *testing.T) {
	f := newFixture(t, Settings{MaxConnections: 1}, "bad.example\n")
	f.inBubble(t, func(p *pipes) {
		for range 3 {
			conn := p.dial("192.0.2.1")
			in := bufio.NewReader(conn)
			io.WriteString(conn, plainCheck)
			if got := status(t, in); got != http.StatusOK {
				t.Fatalf("check is %d", got)
			}
			whole := f.limiter
			f.limiter = nil // a defect
			io.WriteString(conn, otherCheck)
			if text, err := io.ReadAll(in); err != nil || len(text) > 0 {
				t.Errorf("behind the defect: %q, %v", text, err)
			}
			f.limiter = whole
			conn.Close()
		}
	})
}
