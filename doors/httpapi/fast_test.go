package httpapi

import (
	"bufio"
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
	"blockd/internal/testkit"
)

// A check as programs send it, and the end of every conversation below.
const (
	plainCheck = "GET /v1/check?sender=a@bad.example HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n"
	otherCheck = "GET /v1/check?sender=a@ok.example HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n"
	farewell   = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
)

// TestFastChangesNoAnswer compares the answers of a Server with and without the fast path,
// octet for octet. Each string is what a client sends at once.
func TestFastChangesNoAnswer(t *testing.T) {
	const token = "the-token-of-a-test"
	check := func(query string, fields ...string) string {
		return "GET /v1/check?" + query + " HTTP/1.1\r\nHost: localhost\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
	}
	batch := func(body string) string {
		return fmt.Sprintf("POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	long := "sender=a@" + strings.Repeat("b.", 40) + "bad.example"
	for name, dialogue := range map[string][]string{
		"checks":                {plainCheck, otherCheck, plainCheck, otherCheck},
		"every question":        {check("sender="), check("sender=a@bad.example&client=192.0.2.1"), check("ip=192.0.2.1"), check("domain=bad.example"), check("sender=nonsense")},
		"explained":             {check(long + "&explain=1"), check(long), check(long + "&explain=1"), check("ip=::1&explain=1")},
		"faults":                {check("sender=%zz"), check("ip=x"), check("x"), check("sender=a&domain=b"), plainCheck},
		"another host":          {plainCheck, strings.Replace(plainCheck, "localhost", "evil.example", 1), plainCheck},
		"tokens":                {check("domain=x", "Authorization: Bearer "+token), check("domain=x", "Authorization: Bearer wrong"), check("domain=x")},
		"entity tags":           {plainCheck, check("sender=a@bad.example", "If-None-Match: *"), plainCheck},
		"a page of another":     {plainCheck, check("domain=x", "Origin: http://evil.example"), plainCheck},
		"more than it may":      {plainCheck, plainCheck, plainCheck, plainCheck, plainCheck, plainCheck, plainCheck, plainCheck, plainCheck, plainCheck},
		"in pieces":             {plainCheck, plainCheck[:9], plainCheck[9:], otherCheck},
		"several at once":       {plainCheck + otherCheck + plainCheck, otherCheck},
		"half of the next":      {plainCheck, otherCheck + "GET /v1", "/check?domain=x HTTP/1.1\r\nHost: localhost\r\n\r\n"},
		"a batch among checks":  {plainCheck, batch(`{"senders":["a@bad.example","b@ok.example"]}`), otherCheck},
		"a batch in pieces":     {plainCheck, batch(`{"senders":[""]}`)[:90], batch(`{"senders":[""]}`)[90:], otherCheck},
		"other resources":       {plainCheck, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", "HEAD /v1/check?domain=x HTTP/1.1\r\nHost: localhost\r\n\r\n", "DELETE /v1/check HTTP/1.1\r\nHost: localhost\r\n\r\n"},
		"HTTP/1.0":              {plainCheck, "GET /v1/check?domain=x HTTP/1.0\r\n\r\n"},
		"no HTTP":               {plainCheck, "EHLO here.example\r\n"},
		"a header that is long": {plainCheck, check("domain=x", "User-Agent: "+strings.Repeat("x", 5000)), check("domain=x", "User-Agent: "+strings.Repeat("x", 30000))},
		"chunks":                {plainCheck, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n", "10\r\n\"a@bad.example\"\n\r\n0\r\n\r\n"},
	} {
		for _, s := range []Settings{{MaxRate: 8}, {Token: token}} {
			f := newFixture(t, s, "bad.example\n192.0.2.0/24\n")
			var answers [2]string
			for i, fast := range []bool{true, false} {
				f.settings.Fast, f.limiter = fast, newLimiter(s.MaxRate)
				f.inBubble(t, func(p *testkit.Pipes) { answers[i] = converse(p, dialogue) })
			}
			testkit.Equal(t, fmt.Sprintf("%s: the fast path answers", name), answers[0], answers[1])
			testkit.Begins(t, fmt.Sprintf("%s: answers", name), answers[0], "HTTP/1.1 ")
		}
	}
}

// converse sends the parts of a dialogue to a server, and returns its answers as they came.
func converse(p *testkit.Pipes, dialogue []string) string {
	conn := p.Dial("192.0.2.1")
	defer conn.Close()
	go func() {
		for _, part := range append(dialogue, farewell) {
			io.WriteString(conn, part)
			synctest.Wait() // it is read by itself
		}
	}()
	all, _ := io.ReadAll(conn)
	return string(all)
}

// TestFastHandsOver holds that a connection which leaves the fast path has all of net/http:
// hours later, and its time for a body.
func TestFastHandsOver(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	f.inBubble(t, func(p *testkit.Pipes) {
		conn := p.Dial("192.0.2.1")
		defer conn.Close()
		in := bufio.NewReader(conn)
		for range 100 {
			io.WriteString(conn, plainCheck)
			testkit.MustEqual(t, "check", status(t, in), http.StatusOK)
			time.Sleep(idleTimeout - requestTimeout)
		}
		const batch = `{"senders":["a@bad.example"]}`
		fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(batch))
		for i := range batch {
			io.WriteString(conn, batch[i:i+1])
			time.Sleep(requestTimeout / 2 / time.Duration(len(batch)))
		}
		testkit.Equal(t, "batch", status(t, in), http.StatusOK)
	})
	f.inBubble(t, func(p *testkit.Pipes) {
		conn := p.Dial("192.0.2.1")
		defer conn.Close()
		in := bufio.NewReader(conn)
		for _, tt := range []struct {
			text string
			want int
		}{{plainCheck, http.StatusOK}, {"GET /v1/check HTTP/1.1\r\n\r\n", http.StatusBadRequest}} {
			io.WriteString(conn, tt.text)
			testkit.Equal(t, tt.text, status(t, in), tt.want)
			time.Sleep(requestTimeout + time.Second)
		}
	})
	f.inBubble(t, func(p *testkit.Pipes) {
		conn := p.Dial("192.0.2.1")
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
	res := testkit.Value(http.ReadResponse(in, nil))(t)
	io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// TestFastEndsAfterItsAnswer holds that the end of the server, which takes an old connection
// without a request for idle, leaves an answer under way alone.
func TestFastEndsAfterItsAnswer(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	synctest.Test(t, func(t *testing.T) {
		p, ended := testkit.NewPipes(), make(chan error)
		ctx, stop := context.WithCancel(context.Background())
		go func() { ended <- f.Serve(ctx, p) }()
		busy, idle := p.Dial("192.0.2.1"), p.Dial("192.0.2.2")
		defer busy.Close()
		defer idle.Close()
		in := bufio.NewReader(busy)
		for _, conn := range []net.Conn{idle, busy} {
			go io.WriteString(conn, plainCheck)
			testkit.MustEqual(t, "check", status(t, bufio.NewReader(conn)), http.StatusOK)
		}
		time.Sleep(time.Minute)
		asked, answer := make(chan struct{}), make(chan struct{})
		f.reload = func() { close(asked); <-answer }
		go io.WriteString(busy, otherCheck)
		<-asked
		f.reload = nil
		stop()
		testkit.Equal(t, "the idle connection lasts", lasts(idle), 0)
		synctest.Wait()
		select {
		case <-p.Closed():
		default:
			t.Error("others are still let in")
		}
		go close(answer)
		testkit.Equal(t, "the answer under way", status(t, in), http.StatusOK)
		testkit.Equal(t, "its connection lasts", lasts(busy), 0)
		if err := <-ended; err != nil {
			t.Errorf("Serve = %v", err)
		}
	})
}

// TestFastAnswersFromTheGenerationOfNow is here for what the fast path keeps from one request
// to the next.
func TestFastAnswersFromTheGenerationOfNow(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	next := build(t, "ok.example\n")
	f.inBubble(t, func(p *testkit.Pipes) {
		conn := p.Dial("192.0.2.1")
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
			res := testkit.Value(http.ReadResponse(in, nil))(t)
			if body, _ := io.ReadAll(res.Body); !strings.Contains(string(body), `"verdict":"`+tt.want+`"`) {
				t.Errorf("%.40q is %s, want %s", tt.text, body, tt.want)
			}
		}
	})
}

// TestFastEndsWithADefect holds that a panic on the fast path costs its connection and neither its
// place nor the end of the server.
func TestFastEndsWithADefect(t *testing.T) {
	f := newFixture(t, Settings{MaxConnections: 1}, "bad.example\n")
	f.inBubble(t, func(p *testkit.Pipes) {
		for range 3 {
			conn := p.Dial("192.0.2.1")
			in := bufio.NewReader(conn)
			io.WriteString(conn, plainCheck)
			testkit.MustEqual(t, "check", status(t, in), http.StatusOK)
			whole := f.limiter
			f.limiter = nil // a defect
			io.WriteString(conn, otherCheck)
			if text, err := io.ReadAll(in); err != nil || len(text) > 0 {
				t.Errorf("after the defect: %q, %v", text, err)
			}
			f.limiter = whole
			conn.Close()
		}
	})
}
