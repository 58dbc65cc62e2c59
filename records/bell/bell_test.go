package bell

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/durable"
	"blockd/internal/testkit"
)

// world is a state that a test changes, and what a Bell tells of it.
type world struct {
	mu     sync.Mutex
	state  State
	fails  error
	tried  []Event
	told   []string // "degraded list_refused/ads"
	at     []time.Time
	events []Event
}

func (w *world) look() State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// be makes problems, by their names, those of now.
func (w *world) be(names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = State{Ready: true}
	for _, name := range names {
		kind, list, _ := strings.Cut(name, "/")
		w.state.Problems = append(w.state.Problems, Problem{Name: kind, List: list, Text: "something about " + name})
	}
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails = err
}

func (w *world) ring(_ context.Context, e Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tried, w.at = append(w.tried, e), append(w.at, time.Now())
	if w.fails != nil {
		return w.fails
	}
	line := e.Event
	for _, p := range e.Problems {
		line += " " + strings.TrimSuffix(p.Name+"/"+p.List, "/")
	}
	w.told, w.events = append(w.told, line), append(w.events, e)
	return nil
}

// has waits until the Bell waits; after it what it has done may be read.
func (w *world) has(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.told, want) {
		t.Fatalf("told:\n%s\nwant:\n%s", strings.Join(w.told, "\n"), strings.Join(want, "\n"))
	}
}

// run rings by w until the function that it returns is called.
func (w *world) run(t *testing.T, path string, log *testkit.Log) (b *Bell, stop func()) {
	b = New(&Target{}, path, "mx.here.example", "1.2.3", log.Logger(), prometheus.NewRegistry())
	b.ring = w.ring
	return b, testkit.Running(t, func(ctx context.Context) { b.Run(ctx, w.look) })
}

func inBubble(t *testing.T, f func(t *testing.T, w *world, path string)) {
	path := filepath.Join(t.TempDir(), "notify")
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		w.be()
		f(t, w, path)
	})
}

// What holds is told once, what is new beside it too, and its end.
func TestTellsChanges(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, path string) {
		_, stop := w.run(t, path, new(testkit.Log))
		defer stop()
		time.Sleep(time.Hour)
		w.has(t) // it is well, and was never anything else
		began := time.Now()
		w.be("list_refused/ads")
		time.Sleep(9 * time.Second)
		w.has(t) // may pass
		time.Sleep(time.Hour)
		w.has(t, "degraded list_refused/ads")
		if e := w.events[0]; e.Since.Sub(began) > 2*time.Second || e.Time.Sub(began) > 15*time.Second || e.Host != "mx.here.example" || e.Version != "1.2.3" || !e.Ready ||
			e.Text != "blockd on mx.here.example is degraded: something about list_refused/ads" {
			t.Errorf("event %+v, begun at %v", e, began)
		}
		w.be("list_refused/ads", "next_server")
		time.Sleep(time.Hour)
		w.be("list_refused/ads") // less is no news
		time.Sleep(time.Hour)
		w.be("list_refused/ads", "next_server") // but what comes back is
		time.Sleep(time.Hour)
		w.be()
		time.Sleep(time.Hour)
		w.has(t, "degraded list_refused/ads", "degraded list_refused/ads next_server", "degraded list_refused/ads next_server", "well")
		if e := w.events[3]; !e.Since.Equal(w.events[0].Since) || e.Problems == nil || len(e.Problems) > 0 {
			t.Errorf("well: %+v, want since %v and no problems", e, w.events[0].Since)
		}
	})
}

// A text with a number in it may change: that is not news.
func TestTextsMayChange(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, path string) {
		_, stop := w.run(t, path, new(testkit.Log))
		defer stop()
		w.be("quarantine")
		time.Sleep(time.Minute)
		w.mu.Lock()
		w.state.Problems = []Problem{{Name: Quarantine, Text: "82 % full"}}
		w.mu.Unlock()
		time.Sleep(time.Hour)
		w.has(t, "degraded quarantine")
	})
}

// What flaps faster than it holds is never told; what flaps slowly, once a minute at most.
func TestFlapping(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, path string) {
		_, stop := w.run(t, path, new(testkit.Log))
		defer stop()
		flap := func(each, whole time.Duration) {
			for began := time.Now(); time.Since(began) < whole; {
				w.be("next_server")
				time.Sleep(each)
				w.be()
				time.Sleep(each)
			}
		}
		flap(4*time.Second, time.Hour)
		w.has(t)
		flap(15*time.Second, time.Hour)
		synctest.Wait()
		if n := len(w.told); n == 0 || n > 60 {
			t.Errorf("%d events in an hour", n)
		}
		for i := 1; i < len(w.at); i++ {
			testkit.AtLeast(t, "between two events", w.at[i].Sub(w.at[i-1]), time.Minute)
		}
		for i := range w.told {
			if want := [...]string{"degraded next_server", "well"}[i%2]; w.told[i] != want {
				t.Fatalf("event %d is %q, want %q", i, w.told[i], want)
			}
		}
	})
}

// A target that fails is tried again with rests that grow, by one id, and then given up; the next change is told again.
func TestTriesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, path string) {
		log := new(testkit.Log)
		b, stop := w.run(t, path, log)
		defer stop()
		w.fail(errors.New("hooks.here.example answers 500"))
		w.be("history")
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		testkit.Equal(t, "blockd_notify_undelivered before a delivery", b.undelivered.Load(), true)
		w.fail(nil)
		time.Sleep(15 * time.Minute)
		w.has(t, "degraded history")
		testkit.Equal(t, "blockd_notify_undelivered after a delivery", b.undelivered.Load(), false)
		rest := time.Duration(0)
		for i := 1; i < len(w.at); i++ {
			gap := w.at[i].Sub(w.at[i-1]).Round(time.Second)
			if gap < rest || w.tried[i].ID != w.tried[0].ID {
				t.Errorf("try %d after %v, the one before after %v; id %s, the first %s", i, gap, rest, w.tried[i].ID, w.tried[0].ID)
			}
			rest = gap
		}
		testkit.Equal(t, "lines of the fault in the log", strings.Count(log.String(), "level=ERROR"), 1)
		w.fail(errors.New("away"))
		w.be()
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		tries := len(w.tried)
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		testkit.Equal(t, "tries after the end", len(w.tried), tries)
		testkit.AtMost(t, "tries in a day", tries, 120)
		w.fail(nil)
		w.be("audit")
		time.Sleep(time.Hour)
		w.has(t, "degraded history", "degraded audit")
	})
}

// What has passed before it could be told is not told.
func TestPassesUntold(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, path string) {
		_, stop := w.run(t, path, new(testkit.Log))
		defer stop()
		w.fail(errors.New("away"))
		w.be("next_server")
		time.Sleep(time.Minute)
		w.be()
		time.Sleep(time.Minute)
		w.fail(nil)
		time.Sleep(time.Hour)
		w.has(t)
	})
}

// A restart tells nothing again, and the end of what was told before it.
func TestRestart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, path string) {
		_, stop := w.run(t, path, new(testkit.Log))
		w.be("list_refused/ads")
		time.Sleep(time.Minute)
		stop()
		_, stop = w.run(t, path, new(testkit.Log))
		time.Sleep(time.Hour)
		w.has(t, "degraded list_refused/ads")
		stop()
		w.be()
		_, stop = w.run(t, path, new(testkit.Log))
		time.Sleep(time.Hour)
		stop()
		w.has(t, "degraded list_refused/ads", "well")
		if !w.events[1].Since.Equal(w.events[0].Since) {
			t.Errorf("since %v after restarts, want %v", w.events[1].Since, w.events[0].Since)
		}
		testkit.Must(t, os.WriteFile(path, []byte("{"), 0o600))
		log := new(testkit.Log)
		w.be("audit")
		_, stop = w.run(t, path, log)
		defer stop()
		time.Sleep(time.Minute)
		w.has(t, "degraded list_refused/ads", "well", "degraded audit")
		testkit.Has(t, log.String(), "what notify.url was told is forgotten")
	})
}

// A target that hangs holds up neither the looks nor the end.
func TestHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, path string) {
		b := New(&Target{}, path, "h", "v", new(testkit.Log).Logger(), prometheus.NewRegistry())
		begun := make(chan struct{}, 10)
		b.ring = func(ctx context.Context, _ Event) error {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		looks := 0
		w.be("audit")
		go func() {
			defer close(done)
			b.Run(ctx, func() State { looks++; return w.look() })
		}()
		time.Sleep(time.Hour)
		synctest.Wait()
		testkit.Equal(t, "tries at one time", len(begun), 1)
		cancel()
		<-done
		testkit.AtLeast(t, "looks in an hour", looks, 3000)
	})
}

// Texts of strangers are lines of bounded length.
func TestTextsAreBounded(t *testing.T) {
	s := State{}
	for range 3 * mostProblems {
		s.Problems = append(s.Problems, Problem{Name: Lists, Text: "a\r\nb\u202e\x1b[31m\xff" + strings.Repeat("é", 10_000)})
	}
	s = bounded(s)
	var w watch
	noon := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	w.look(noon, s)
	w.look(noon.Add(time.Minute), s)
	testkit.Equal(t, "problems", len(w.wants.Problems), mostProblems)
	for _, text := range []string{w.wants.Problems[0].Text, textOf(*w.wants)} {
		if len(text) > 2*maxText || strings.ContainsAny(text, "\r\n\u202e\x1b") {
			t.Errorf("%d octets: %.60q", len(text), text)
		}
	}
}

// A clock that was set back since the last event neither silences the bell nor makes an event begin after it was sent.
// While the bell runs, it goes by the monotonic clock.
func TestClockWasSetBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, path string) {
		testkit.Write(t, path, `{"event":"degraded","since":"2099-01-01T00:00:00Z","time":"2099-01-01T00:00:10Z","problems":["list_refused ads"]}`)
		w.be("list_refused/ads")
		_, stop := w.run(t, path, new(testkit.Log))
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
		if err := durable.Save(path, told, 0o600); err != nil {
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
