package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
	"blockd/policy/verdict"
	"blockd/records/history"
)

// refusal is a decision on a listed sender.
func refusal(at time.Time, sender string) history.Record {
	return history.Record{Time: at, Door: "smtp", Outcome: "refuse", Verdict: "blocked", Sender: sender, Ref: "0123456789", List: "bad"}
}

// nextDecision reads the next decision of a stream.
func nextDecision(t *testing.T, in *bufio.Reader) (r history.Record) {
	t.Helper()
	for {
		name := testkit.Value(in.ReadString('\n'))(t)
		data := testkit.Value(in.ReadString('\n'))(t)
		testkit.MustEqual(t, "an event ends with", testkit.Value(in.ReadString('\n'))(t), "\n")
		if name == "event: decision\n" {
			testkit.Must(t, json.Unmarshal([]byte(strings.TrimPrefix(data, "data: ")), &r))
			return r
		}
	}
}

func TestEventsOverARealConnection(t *testing.T) {
	f := newFixture(t, Settings{Events: NewEvents(), First: firstFile(t)}, "bad.example\n")
	before := runtime.NumGoroutine()
	srv := httptest.NewServer(f.Handler())
	ctx, leave := context.WithCancel(t.Context())
	req := testkit.Value(http.NewRequestWithContext(ctx, http.MethodGet, srv.URL+"/v1/events", nil))(t)
	req.Header.Set("Authorization", "Bearer "+first)
	res := testkit.Value(srv.Client().Do(req))(t)
	got := res.Header.Get("Content-Type")
	testkit.MustGot(res.StatusCode, got)(t, "the stream", http.StatusOK, "text/event-stream")
	in := bufio.NewReader(res.Body)
	hostile := "\"a\n\ndata: {}\"@bad.example"
	f.settings.Events.Add(refusal(time.Now(), hostile))
	r := nextDecision(t, in)
	testkit.Got(r.Sender, r.List)(t, "decision", hostile, "bad")
	leave()
	res.Body.Close()
	srv.Close() // waits for requests under way
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines, and %d before", after, before)
	}
	testkit.Equal(t, "watchers are left", len(f.settings.Events.watchers), 0)
}

func TestWatchersAreBounded(t *testing.T) {
	f := newFixture(t, Settings{Events: NewEvents(), First: firstFile(t)}, "bad.example\n")
	for range maxWatchers {
		if f.settings.Events.watchAs("") == nil {
			t.Fatal("refused too early")
		}
	}
	w := f.ask("GET", "/v1/events", "", bearFirst)
	wantProblem(t, w, http.StatusServiceUnavailable, "watch already")
	if w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// A token that holds all places gives one to each other that comes, until they have the same.
func TestPlacesOfWatchersAreShared(t *testing.T) {
	e := NewEvents()
	var first []chan []byte
	for range maxWatchers {
		first = append(first, e.watchAs("viewer"))
	}
	if e.watchAs("viewer") != nil {
		t.Error("one place more than there are")
	}
	others := 0
	for e.watchAs("other") != nil {
		others++
	}
	testkit.Got(others, len(e.watchers))(t, "places of another one, and all", maxWatchers/2, maxWatchers)
	if e.watchAs("third") == nil {
		t.Error("no place for a third one")
	}
	dropped := 0
	for _, w := range first {
		select {
		case <-w:
			dropped++
		default:
		}
		e.leave(w)
	}
	testkit.AtLeast(t, "dropped", dropped, maxWatchers/2)
}

// Who does not read is dropped, and decisions go on without waiting.
func TestSlowWatchersAreDropped(t *testing.T) {
	e := NewEvents()
	slow, quick := e.watchAs(""), e.watchAs("")
	now := time.Unix(1e9, 0)
	for i := range maxWaiting + 1 {
		e.Add(refusal(now.Add(time.Duration(i)*time.Second), "a@bad.example"))
		<-quick
	}
	n := 0
	for range slow {
		n++
	}
	testkit.Got(n, len(e.watchers))(t, "the slow one got", maxWaiting, 1)
	e.leave(slow) // again: harmless
	e.leave(quick)
}

// Mail of no list leaves room for what somebody looks for.
func TestManyDecisionsOfASecond(t *testing.T) {
	e, now := NewEvents(), time.Unix(1e9, 0)
	w := e.watchAs("")
	for i := range 1000 {
		r := refusal(now, fmt.Sprintf("a%d@bad.example", i))
		e.Add(history.Record{Time: now, Verdict: "clear", Sender: "a@clear.example"})
		e.Add(r)
	}
	e.leave(w)
	clear, all := 0, 0
	for text := range w {
		all++
		if strings.Contains(string(text), "clear.example") {
			clear++
		}
	}
	testkit.Got(all, clear)(t, "shown, and clear ones of them", perSecond, clearSecond)
}

func TestTrafficOfAnHour(t *testing.T) {
	e, start := NewEvents(), time.Unix(16666666*60, 0)
	for i := range 90 {
		at := start.Add(time.Duration(i) * time.Minute)
		e.Add(refusal(at, "a@bad.example"))
		e.Add(history.Record{Time: at.Add(59 * time.Second), Verdict: "clear"})
		e.Add(history.Record{Time: at, Verdict: "allowed"})
		e.Add(history.Record{Time: at, Verdict: "unknown"})
	}
	hour := e.traffic(start.Add(89*time.Minute + 30*time.Second))
	if len(hour) != 60 || hour[0] != (TrafficMinute{At: start.Unix() + 30*60, Blocked: 1, Allowed: 1, Clear: 1, Unknown: 1}) {
		t.Errorf("%d minutes, the first %+v", len(hour), hour[0])
	}
	testkit.Equal(t, "after an hour of nothing", len(e.traffic(start.Add(3*time.Hour))), 0)
}

// recorder is a ResponseWriter that streams can be written to.
type recorder struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *recorder) Header() http.Header { return http.Header{} }
func (r *recorder) WriteHeader(int)     {}
func (r *recorder) Flush()              {}
func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(b)
}

// A stream ends when its token is revoked or may no longer see it, and when the server does.
func TestEventsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	viewer := newToken(t, path, "viewer", Read)
	f := newFixture(t, Settings{Events: NewEvents(), Tokens: path}, "bad.example\n")
	t.Run("the server's end", func(t *testing.T) { watchUntil(t, f, viewer, func(stop context.CancelFunc) { stop() }) })
	t.Run("a revoked token", func(t *testing.T) {
		watchUntil(t, f, viewer, func(context.CancelFunc) {
			testkit.Got(RevokeToken(path, "viewer", nil, ""))(t, "revoke", true, nil)
		})
	})
	for as, row := range map[string]string{"a token that reports": "viewer report %s\n", "a token that is bound": "viewer read %s ann@here.example\n"} {
		t.Run(as, func(t *testing.T) {
			os.Remove(path)
			viewer := newToken(t, path, "viewer", Read)
			watchUntil(t, f, viewer, func(context.CancelFunc) {
				all := testkit.Value(ReadTokens(path))(t)
				text := fmt.Sprintf(row, fmt.Sprintf("sha256:%x %s", all[0].hash, all[0].Made))
				testkit.Must(t, os.WriteFile(path, []byte(text), 0o600))
			})
		})
	}
}

func watchUntil(t *testing.T, f *fixture, token string, end func(context.CancelFunc)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r := httptest.NewRequest(http.MethodGet, "/v1/events", nil).WithContext(ctx)
		name, value, _ := strings.Cut(token, ": ")
		r.Header.Set(name, value)
		w, ended := &recorder{}, false
		go func() {
			f.Handler().ServeHTTP(w, r)
			ended = true
		}()
		time.Sleep(10 * trafficEvery)
		synctest.Wait()
		if ended {
			t.Fatal("ended by itself")
		}
		if n := strings.Count(w.text.String(), "event: traffic\n"); n < 10 {
			t.Errorf("%d signs of life", n)
		}
		end(stop)
		time.Sleep(trafficEvery)
		synctest.Wait()
		if !ended {
			t.Error("goes on")
		}
	})
}

// Who announces a body and does not send it is no watcher that could stay for ever.
func TestWatcherWhoseBodyNeverComes(t *testing.T) {
	f := newFixture(t, Settings{Events: NewEvents(), First: firstFile(t)}, "bad.example\n")
	f.inBubble(t, func(p *testkit.Pipes) {
		conn := p.Dial("192.0.2.1")
		io.WriteString(conn, "GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n"+bearFirst+"\r\nContent-Length: 1000\r\n\r\n")
		conn.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("still there: %v", err)
		}
		f.settings.Events.mu.Lock()
		defer f.settings.Events.mu.Unlock()
		testkit.Equal(t, "watchers are left", len(f.settings.Events.watchers), 0)
	})
}

// The stream shows of a decision what the history has of it.
func TestEventsHaveTheTimeOfTheHistory(t *testing.T) {
	e := NewEvents()
	w := e.watchAs("")
	at := time.Date(2027, 1, 31, 13, 0, 0, 123_456_789, time.FixedZone("", 3600))
	e.Add(refusal(at, "a@bad.example"))
	testkit.Has(t, string(<-w), `"time":"2027-01-31T12:00:00.123Z"`)
}

// A decision costs those who make it no allocation while nobody watches.
func TestEventsWithoutWatchersAllocateNothing(t *testing.T) {
	e, r := NewEvents(), refusal(time.Now(), "a@bad.example")
	testkit.Equal(t, "allocations", testing.AllocsPerRun(100, func() { e.Add(r) }), 0)
}

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

func TestParseDecisionQuery(t *testing.T) {
	for _, tt := range []struct {
		query, fault string
		want         history.Query
	}{
		{"", "", history.Query{Limit: 100}},
		{"sender=X@Sub.Example&recipient=You@here.example&limit=7", "", history.Query{Sender: "x@sub.example", Recipient: "You@here.example", Limit: 7}},
		{"sender=%3CX@Sub.Example%3E", "", history.Query{Sender: "x@sub.example", Limit: 100}},
		{"sender=B%C3%BCcher.Example", "", history.Query{Sender: "xn--bcher-kva.example", Limit: 100}},
		{"sender=%3C%3E", "", history.Query{Sender: "<>", Limit: 100}},
		{"sender=no%20sender%09", "", history.Query{Sender: "no sender\t", Limit: 100}},
		{"client=192.0.2.7", "", history.Query{Client: netip.MustParsePrefix("192.0.2.7/32"), Limit: 100}},
		{"client=::ffff:192.0.2.7", "", history.Query{Client: netip.MustParsePrefix("192.0.2.7/32"), Limit: 100}},
		{"client=::ffff:192.0.2.0/120", "", history.Query{Client: netip.MustParsePrefix("192.0.2.0/24"), Limit: 100}},
		{"client=2001:db8::/32", "", history.Query{Client: netip.MustParsePrefix("2001:db8::/32"), Limit: 100}},
		{"since=2027-01-31T12:00:00Z&verdict=blocked&outcome=tag&list=own&ref=k1", "", history.Query{
			Since: time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC), Verdict: "blocked", Outcome: "tag", List: "own", Ref: "k1", Limit: 100}},
		{"client=nobody", `client: want an IP address or a network, have "nobody"`, history.Query{}},
		{"since=7d", `since: want a time such as 2027-01-31T12:00:00Z, have "7d"`, history.Query{}},
		{"limit=0", `limit: want 1 to 1000, have "0"`, history.Query{}},
		{"limit=1001", `limit: want 1 to 1000, have "1001"`, history.Query{}},
		{"verdict=no", `verdict: want blocked, allowed, clear or unknown, have "no"`, history.Query{}},
		{"outcome=no", `outcome: want accept, refuse, defer, quarantine, tag, discard, listed or mail, have "no"`, history.Query{}},
		{"ref=a&ref=b", "ref: want it once", history.Query{}},
		{"colour=red", "colour: no such parameter", history.Query{}},
	} {
		v := testkit.Value(url.ParseQuery(tt.query))(t)
		got, err := ParseDecisionQuery(v)
		if tt.fault != "" && (err == nil || err.Error() != tt.fault) || tt.fault == "" && (err != nil || !reflect.DeepEqual(got, tt.want)) {
			t.Errorf("%s: %+v, %v, want %+v, %s", tt.query, got, err, tt.want, tt.fault)
		}
	}
}

// A plus is a plus here too, in an address and in a time.
func TestDecisionsOfAnAddressWithAPlus(t *testing.T) {
	past := newHistory(t)
	past.Add(refusal(time.Now(), "promo+x@bad.example"))
	f := newFixture(t, Settings{History: past, First: firstFile(t)}, "bad.example\n")
	for _, query := range []string{"sender=promo+x@bad.example", "sender=promo%2Bx@bad.example", "since=2020-01-31T12:00:00+01:00", "&"} {
		found := decoded[DecisionList](t, f.ask("GET", "/v1/decisions?"+query, "", bearFirst), http.StatusOK, asJSON)
		testkit.Got(len(found.Decisions), testkit.At(found.Decisions, 0).Sender)(t, fmt.Sprintf("%s: %+v", query, found), 1, "promo+x@bad.example")
	}
	wantProblem(t, f.ask("GET", "/v1/decisions?sender=%", "", bearFirst), http.StatusBadRequest, "query: invalid URL escape")
}
