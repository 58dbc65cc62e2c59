package bell

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/testkit"
)

// receiver is a real HTTP server, reached by connections in memory, so that it can be waited for in a bubble.
type receiver struct {
	mu      sync.Mutex
	away    bool // connections are refused
	answers int
	events  []Event // that were taken
	wrong   []string
	dials   int

	conns chan net.Conn
}

var receiverSecret = []byte("0123456789abcdef0123456789abcdef")

func (r *receiver) be(away bool, answers int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away, r.answers = away, answers
}

func (r *receiver) Accept() (net.Conn, error) {
	if c, ok := <-r.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (r *receiver) Close() error   { return nil }
func (r *receiver) Addr() net.Addr { return &net.TCPAddr{} }

func (r *receiver) dial(context.Context, string, string) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dials++; r.away {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	r.conns <- theirs
	return ours, nil
}

// ServeHTTP checks each request as docs/report.md tells receivers to.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	at, signature, _ := strings.Cut(strings.TrimPrefix(q.Header.Get("X-Blockd-Signature"), "t="), ",v1=")
	seconds, _ := strconv.ParseInt(at, 10, 64)
	mac := hmac.New(sha256.New, receiverSecret)
	fmt.Fprintf(mac, "%s.%s", at, body)
	var e Event
	r.mu.Lock()
	defer r.mu.Unlock()
	switch age := time.Since(time.Unix(seconds, 0)); {
	case err != nil || q.Method != "POST" || q.URL.Path != "/hook" || q.Header.Get("Content-Type") != "application/json":
		r.wrong = append(r.wrong, fmt.Sprint(q.Method, q.URL, q.Header, err))
	case signature != hex.EncodeToString(mac.Sum(nil)) || age < 0 || age > 5*time.Minute:
		r.wrong = append(r.wrong, fmt.Sprintf("%s of %s, %v old", q.Header.Get("X-Blockd-Signature"), body, age))
	case json.Unmarshal(body, &e) != nil:
		r.wrong = append(r.wrong, string(body))
	case r.answers/100 == 2:
		r.events = append(r.events, e)
	}
	w.WriteHeader(r.answers)
}

// TestReceiver has a receiver that is away for hours while one thing after another breaks, then answers 503, and then is
// well: it hears once of what is wrong then, signed, and once that all is well.
func TestReceiver(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, path string) {
		r := &receiver{away: true, conns: make(chan net.Conn)}
		server := http.Server{Handler: r}
		go server.Serve(r)
		defer close(r.conns)
		to, err := NewTarget(Settings{URL: "https://hooks.here.example/hook", Secret: receiverSecret, Version: "1.2.3"})
		testkit.Must(t, err)
		to.settings.URL = "http://hooks.here.example/hook" // TLS is of another test
		to.transport.DialContext, to.transport.Proxy = r.dial, nil
		var log testkit.Log
		b := New(to, path, "mx.here.example", "1.2.3", log.Logger(), prometheus.NewRegistry())
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); b.Run(ctx, w.look) }()
		defer func() { cancel(); <-done }()

		for i := range 1000 { // a queue of all these would be long
			w.be(fmt.Sprintf("list_refused/l%d", i))
			time.Sleep(20 * time.Second)
		}
		w.be("next_server", "list_refused/last")
		r.be(false, 503)
		time.Sleep(30 * time.Minute)
		if !b.undelivered.Load() {
			t.Error("blockd_notify_undelivered is 0")
		}
		r.be(false, 204)
		time.Sleep(30 * time.Minute)
		w.be()
		time.Sleep(5 * time.Minute)
		synctest.Wait()

		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.wrong) > 0 {
			t.Errorf("%d wrong requests, the first: %s", len(r.wrong), r.wrong[0])
		}
		if len(r.events) != 2 || r.events[0].Event != Degraded || len(r.events[0].Problems) != 2 || r.events[1].Event != Well || r.events[0].Since.IsZero() ||
			!r.events[1].Since.Equal(r.events[0].Since) {
			t.Errorf("taken: %+v", r.events)
		}
		if r.dials < 5 || r.dials > 1000 {
			t.Errorf("%d tries in six hours", r.dials)
		}
		if b.undelivered.Load() {
			t.Error("blockd_notify_undelivered is 1 after a delivery")
		}
	})
}

// A clock that was set back since the last event neither silences the bell nor makes an event begin after it was sent.
// While the bell runs, it goes by the monotonic clock.
func TestClockWasSetBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, path string) {
		testkit.Write(t, path, `{"event":"degraded","since":"2099-01-01T00:00:00Z","time":"2099-01-01T00:00:10Z","problems":["list_refused ads"]}`)
		w.be("list_refused/ads")
		_, stop := w.run(path, new(testkit.Log))
		defer stop()
		time.Sleep(time.Hour)
		w.has(t) // it was told
		w.be("list_refused/ads", "audit")
		time.Sleep(time.Hour)
		w.be()
		time.Sleep(time.Hour)
		w.has(t, "degraded list_refused/ads audit", "well")
		for _, e := range w.events {
			if e.Since.After(e.Time) {
				t.Errorf("%s of %v since %v", e.Event, e.Time, e.Since)
			}
		}
	})
}

// FuzzTold reads whatever is in the file of what was told: an error, or a state that is written and read again as it is, and
// that a bell goes on from.
func FuzzTold(f *testing.F) {
	for _, text := range []string{`{"event":"degraded","since":"2026-11-24T03:12:33Z","time":"2026-11-24T03:12:44Z","problems":["list_refused ads"]}`, "{", "[]", `{"problems":[""]}`, "null"} {
		f.Add([]byte(text))
	}
	path := f.TempDir() + "/notify"
	noon := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, text []byte) {
		testkit.Must(t, os.WriteFile(path, text, 0o600))
		told, err := readTold(path)
		if err != nil {
			return
		}
		if err := told.write(path); err != nil {
			return // a year that RFC 3339 has no digits for
		}
		if again, err := readTold(path); err != nil || !again.equal(told) {
			t.Fatalf("%q: %+v, then %+v, %v", text, told, again, err)
		}
		w := watch{told: told}
		s := State{Problems: []Problem{{Name: Audit, Text: "broken"}}}
		w.look(noon, s)
		w.look(noon.Add(time.Minute), s)
		if w.wants == nil == !slices.Contains(told.Keys, "audit ") {
			t.Fatalf("%q: wants %+v", text, w.wants)
		}
	})
}
