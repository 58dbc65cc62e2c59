package httpapi

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/policy/verdict"
)

func TestStream(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	long := strings.Repeat("x", maxLine)
	for _, tt := range []struct{ name, body, want string }{
		{"strings", "\"a@bad.example\"\n\"a@ok.example\"\n", "a@bad.example=blocked a@ok.example=clear"},
		{"objects", `{"sender":"a@bad.example"}` + "\n" + `{"sender":""}` + "\n", "a@bad.example=blocked =clear"},
		{"mixed, CRLF, no end", "\"a@bad.example\"\r\n {\"sender\":\"b@bad.example\"} \r\n\"\"", "a@bad.example=blocked b@bad.example=blocked =clear"},
		{"blank lines are no questions", "\n \n\"a@bad.example\"\n\n", "a@bad.example=blocked"},
		{"empty", "", ""},
		{"what is no question is answered in its place", "nonsense\n\"a@bad.example\"\n1\nnull\n{}\n{\"sender\":null}\n{\"sender\":\"x\",\"y\":\"z\"}\n[\"a\"]\n\"a\"\"b\"\n\"\xff\"\n",
			"error1 a@bad.example=blocked error3 error4 error5 error6 error7 error8 error9 error10"},
		{"a long line is passed over", `"` + long + "\"\n\"a@bad.example\"\n", "error1 a@bad.example=blocked"},
		{"a long line is the last", "\"a@bad.example\"\n" + long + long, "a@bad.example=blocked error2"},
		{"a line of just the limit", `"` + strings.Repeat("x", maxLine-3) + "\"\n", strings.Repeat("x", maxLine-3) + "=unknown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := f.ask("POST", "/v1/check", tt.body, "Content-Type: "+asStream)
			testkit.MustGot(w.Code, w.Header().Get("Content-Type"))(t, "answer", http.StatusOK, asStream)
			var got []string
			for line := range strings.Lines(w.Body.String()) {
				got = append(got, streamed(t, line))
			}
			testkit.Equal(t, "answers are", strings.Join(got, " "), tt.want)
		})
	}
}

// streamed is one line of an answer in short.
func streamed(t *testing.T, line string) string {
	t.Helper()
	var a struct {
		verdict.Answer
		lineError
	}
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	if a.Error != "" {
		return fmt.Sprintf("error%d", a.lineError.Line)
	}
	return a.Input + "=" + string(a.Verdict)
}

// dialogue is a stream over a real connection, whose two sides take turns.
func dialogue(t *testing.T, url string) (say func(string), hear func() (string, error), hangUp func()) {
	t.Helper()
	r, w := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), "POST", url+"/v1/check", r)
	testkit.Must(t, err)
	req.Header.Set("Content-Type", asStream)
	type reply struct {
		res *http.Response
		err error
	}
	replies := make(chan reply, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		replies <- reply{res, err}
	}()
	var in *bufio.Reader
	hear = func() (string, error) {
		if in == nil {
			got := <-replies
			if got.err != nil {
				return "", got.err
			}
			t.Cleanup(func() { got.res.Body.Close() })
			in = bufio.NewReader(got.res.Body)
		}
		return in.ReadString('\n')
	}
	return func(s string) { io.WriteString(w, s) }, hear, func() { w.Close() }
}

func TestStreamAnswersBeforeTheNextQuestion(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	srv := httptest.NewServer(f.Handler())
	defer srv.Close()
	say, hear, hangUp := dialogue(t, srv.URL)
	for i, half := range []string{"", "\"b@bad."} { // the second time a part of the next line is there already
		say(fmt.Sprintf("\"a%d@bad.example\"\n%s", i, half))
		line := testkit.Value(hear())(t)
		testkit.MustEqual(t, "answer", streamed(t, line), fmt.Sprintf("a%d@bad.example=blocked", i))
	}
	f.live = build(t, "other.example\n") // a reload falls between two questions
	say("example\"\n")
	testkit.MustEqual(t, "after the reload", streamed(t, testkit.Value(hear())(t)), "b@bad.example=clear")
	hangUp()
	testkit.Got(hear())(t, "at the end", "", io.EOF)
}

// A stream is cut off when its token is revoked.
func TestStreamOfARevokedToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	_, token, _ := strings.Cut(newToken(t, path, "viewer", Read), ": ")
	f := newFixture(t, Settings{Tokens: path}, "bad.example\n")
	f.inBubble(t, func(p *testkit.Pipes) {
		conn := p.Dial("192.0.2.1")
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(conn, "POST /v1/check HTTP/1.1\r\nHost: a.example\r\nContent-Type: application/x-ndjson\r\nAuthorization: "+token+
			"\r\nTransfer-Encoding: chunked\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Error(err)
			return
		}
		answers := bufio.NewReader(res.Body)
		ask := func() error {
			go io.WriteString(conn, "10\r\n\"a@bad.example\"\n\r\n")
			_, err := answers.ReadString('\n')
			return err
		}
		if err := ask(); err != nil {
			t.Errorf("before: %v", err)
		}
		testkit.Got(RevokeToken(path, "viewer", nil, ""))(t, "revoke", true, nil)
		testkit.Equal(t, "goes on", ask(), io.ErrUnexpectedEOF)
	})
}

// A client that asks first whether its body is wanted is told to go on. An answer of
// 200 in its place would say that nobody needs the body.
func TestStreamIsExpected(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	f.inBubble(t, func(p *testkit.Pipes) {
		conn := p.Dial("192.0.2.1")
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(conn, "POST /v1/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"+
			"Content-Length: 16\r\nExpect: 100-continue\r\n\r\n")
		in := bufio.NewReader(conn)
		line, err := in.ReadString('\n')
		if err != nil || line != "HTTP/1.1 100 Continue\r\n" {
			t.Errorf("before the body: %q, %v", line, err)
			return
		}
		for line != "\r\n" && err == nil {
			line, err = in.ReadString('\n')
		}
		go io.WriteString(conn, "\"a@bad.example\"\n")
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Error(err)
			return
		}
		if text, err := io.ReadAll(res.Body); err != nil || streamed(t, string(text)) != "a@bad.example=blocked" {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// TestStreamWithoutEndTakesNoMemory sends far more than any buffer holds: its
// answers are 30 MB.
func TestStreamWithoutEndTakesNoMemory(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	srv := httptest.NewServer(f.Handler())
	defer srv.Close()
	const senders = 100_000
	r, w := io.Pipe()
	go func() {
		out := bufio.NewWriter(w)
		for i := range senders {
			fmt.Fprintf(out, "\"a%d@bad.example\"\n", i)
		}
		out.Flush()
		w.Close()
	}()
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, least := heap(), int64(1<<62)
	res := testkit.Value(http.Post(srv.URL+"/v1/check", asStream, r))(t)
	defer res.Body.Close()
	n, in := 0, bufio.NewScanner(res.Body)
	for in.Scan() {
		if n > senders/2 && n%5000 == 0 {
			least = min(least, heap()) // both sides go on making garbage meanwhile
		}
		if n%1000 == 0 && streamed(t, in.Text()) != fmt.Sprintf("a%d@bad.example=blocked", n) {
			t.Fatalf("answer %d is %s", n, in.Text())
		}
		n++
	}
	testkit.Got(in.Err(), n)(t, "answers", nil, senders)
	if grown := least - before; grown > 8<<20 {
		t.Errorf("%d bytes more in the second half of the stream", grown)
	}
}

func TestServeEndsGracefully(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	l := testkit.Listen(t)
	stop := f.running(t, l)
	url := "http://" + l.Addr().String()
	res := testkit.Value(http.Get(url + "/v1/check?sender=a@bad.example"))(t)
	testkit.MustEqual(t, "Get", res.StatusCode, http.StatusOK)
	res.Body.Close()

	say, hear, _ := dialogue(t, url)
	say("\"a@bad.example\"\n")
	testkit.Value(hear())(t)
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }() // while the stream waits for its client
	if line, err := hear(); err == nil || err == io.EOF {
		t.Errorf("a stream that was cut off looks whole: %q, %v", line, err)
	}
	<-stopped
	testkit.Fails(net.Dial("tcp", l.Addr().String()))(t, "behind the end", syscall.ECONNREFUSED)
}

func TestServeTellsOfABrokenListener(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	l := testkit.Listen(t)
	l.Close()
	if err := f.Serve(t.Context(), l); err == nil {
		t.Error("no error")
	}
}
