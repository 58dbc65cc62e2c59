package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
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
	f := newFixture(t, Settings{Events: NewEvents(), First: first}, "bad.example\n")
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
	f := newFixture(t, Settings{Events: NewEvents(), First: first}, "bad.example\n")
	for range maxWatchers {
		if f.settings.Events.watch() == nil {
			t.Fatal("refused too early")
		}
	}
	w := f.ask("GET", "/v1/events", "", bearFirst)
	wantProblem(t, w, http.StatusServiceUnavailable, "watch already")
	if w.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

// Who does not read is dropped, and decisions go on without waiting.
func TestSlowWatchersAreDropped(t *testing.T) {
	e := NewEvents()
	slow, quick := e.watch(), e.watch()
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
	w := e.watch()
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
	f := newFixture(t, Settings{Events: NewEvents(), First: first}, "bad.example\n")
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
	w := e.watch()
	at := time.Date(2027, 1, 31, 13, 0, 0, 123_456_789, time.FixedZone("", 3600))
	e.Add(refusal(at, "a@bad.example"))
	testkit.Has(t, string(<-w), `"time":"2027-01-31T12:00:00.123Z"`)
}

// A decision costs those who make it no allocation while nobody watches.
func TestEventsWithoutWatchersAllocateNothing(t *testing.T) {
	e, r := NewEvents(), refusal(time.Now(), "a@bad.example")
	testkit.Equal(t, "allocations", testing.AllocsPerRun(100, func() { e.Add(r) }), 0)
}
