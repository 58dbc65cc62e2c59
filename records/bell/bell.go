// Package bell tells a web address (a webhook) when something is degraded, and when it is well again.
//
// It knows no rule of its own about what degraded means: whoever makes a Bell gives it the problems that /readyz has. A state
// has to hold for a moment before it is told, so that a server which flaps does not ring at every turn, and what was told is kept on
// disk, so that neither a restart nor a process that takes over tells it again. Nothing ever waits for the bell.
package bell

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"blockd/internal/durable"
)

// Problem is one reason why something is degraded. Its field names are part of blockd's interface.
type Problem struct {
	Name string `json:"name"`           // of the kind: one of the words below, which does not change from version to version
	List string `json:"list,omitempty"` // the list that it is about
	Text string `json:"text"`           // for people, as /readyz has it
}

// The names of problems.
const (
	ListRefused   = "list_refused"  // a list as it is now does not serve
	Lists         = "lists"         // the lists cannot be read or written, for a reason that is no single list's
	Source        = "source"        // the source of a list fails
	LiveEntries   = "live_entries"  // live entries are damaged, or cannot be written
	Pauses        = "pauses"        // which lists are paused cannot be read
	Aliases       = "aliases"       // the aliases of recipients cannot be read
	Filter        = "filter"        // a filter for other programs cannot be written, or looked at
	Disk          = "disk"          // there is no room for changes
	History       = "history"       // decisions cannot be written
	Audit         = "audit"         // the audit journal cannot be written
	Configuration = "configuration" // a changed configuration was not taken up
	Fleet         = "fleet"         // no snapshot of the fleet is taken: what the store has is not trusted, or cannot be used
	Publish       = "publish"       // no snapshot can be published
	Upgrade       = "upgrade"       // another process could not take over
	Quarantine    = "quarantine"    // the quarantine is nearly full
	NextServer    = "next_server"   // the next server is away, or not safe to serve
	NotReady      = "not_ready"     // /readyz answers 503 for a reason that is none of those above
)

// key is what makes a problem another one: its text may have a number that changes.
func (p Problem) key() string { return p.Name + " " + p.List }

// State is how everything is now: well if it has no Problems.
type State struct {
	Ready    bool
	Problems []Problem
}

// The events.
const (
	Degraded = "degraded"
	Well     = "well"
	Test     = "test"
)

// Event is what is told. Its field names are part of blockd's interface.
type Event struct {
	Event    string    `json:"event"`
	ID       string    `json:"id"`    // the same for each try to tell it
	Time     time.Time `json:"time"`  // of this try
	Since    time.Time `json:"since"` // when the state began that Event is the beginning, or the end, of
	Host     string    `json:"host"`
	Version  string    `json:"version"` // of blockd
	Ready    bool      `json:"ready"`   // mail can be decided about, degraded or not
	Problems []Problem `json:"problems"`
	Text     string    `json:"text"` // the whole for people, in a line
}

// The times of a Bell.
const (
	hold         = 10 * time.Second // how long a state lasts before it is told
	apart        = time.Minute      // between two events, at least
	firstRest    = 5 * time.Second  // after a try that failed; each later one is twice as long
	longestRest  = 15 * time.Minute
	tryFor       = 24 * time.Hour // then an event is given up, and the next change is told
	lookEvery    = time.Second
	mostProblems = 100 // of an Event
	maxText      = 500 // octets of a problem's text
)

// Bell tells of changes. Run rings it; everything else may be called at any time from any goroutine.
type Bell struct {
	ring    func(context.Context, Event) error // one try, of bounded time
	path    string                             // of what was told
	host    string
	version string
	log     *slog.Logger

	undelivered atomic.Bool
	events      *prometheus.CounterVec
}

// New returns a Bell that rings at t, and keeps what was told in the file at path. host is the name of this machine in events.
func New(t *Target, path, host, version string, log *slog.Logger, reg prometheus.Registerer) *Bell {
	b := &Bell{ring: func(ctx context.Context, e Event) error {
		_, err := t.Ring(ctx, e)
		return err
	}, path: path, host: host, version: version, log: log}
	auto := promauto.With(reg)
	b.events = auto.NewCounterVec(prometheus.CounterOpts{Name: "blockd_notify_events_total",
		Help: "Events told to notify.url, by result: delivered, failed (one try, another follows), given_up."}, []string{"result"})
	for _, result := range []string{"delivered", "failed", "given_up"} {
		b.events.WithLabelValues(result)
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_notify_undelivered",
		Help: "1 while notify.url could not be told of a change yet."}, func() float64 {
		if b.undelivered.Load() {
			return 1
		}
		return 0
	})
	return b
}

// watch is what a Bell has seen and told. It knows time only by what it is told.
type watch struct {
	told told

	seen  string    // the keys of the last look
	from  time.Time // when it was first seen
	since time.Time // when the first problem of now began; zero: all is well

	wants    *Event    // that is to be told; nil: none
	first    time.Time // its first try, zero: it was not tried
	next     time.Time // its next try, or that of a later event
	failures int
}

// look takes up a state. The event in w.wants is then of now.
func (w *watch) look(now time.Time, s State) {
	keys := keysOf(s.Problems)
	switch text := join(keys); {
	case w.from.IsZero() || text != w.seen:
		w.seen, w.from = text, now
	}
	switch {
	case len(keys) == 0:
		w.since = time.Time{}
	case w.since.IsZero():
		w.since = now
		if len(w.told.Keys) > 0 && !w.told.Since.IsZero() && w.told.Since.Before(now) {
			w.since = w.told.Since // it was degraded before this process began, or for less than anybody was told of
		}
	}
	if now.Sub(w.from) < hold {
		return
	}
	news := slices.ContainsFunc(keys, func(k string) bool { return !slices.Contains(w.told.Keys, k) })
	switch {
	case len(keys) == 0 && len(w.told.Keys) > 0:
		w.want(Event{Event: Well, Since: w.told.Since, Ready: s.Ready, Problems: []Problem{}})
	case news:
		w.want(Event{Event: Degraded, Since: w.since, Ready: s.Ready, Problems: s.Problems[:min(len(s.Problems), mostProblems)]})
	default:
		w.wants, w.first, w.failures = nil, time.Time{}, 0 // what could not be told has passed
		if len(keys) < len(w.told.Keys) && len(keys) > 0 {
			w.told.Keys = keys // what comes back is news again
		}
	}
}

// want makes e the event to be told. One that replaces another goes on with its rests.
func (w *watch) want(e Event) {
	if w.wants != nil && w.wants.Event == e.Event && join(keysOf(w.wants.Problems)) == join(keysOf(e.Problems)) {
		e.ID = w.wants.ID
	} else {
		e.ID, w.first = rand.Text(), time.Time{}
	}
	w.wants = &e
}

// due reports whether the event is to be tried now.
func (w *watch) due(now time.Time) bool { return w.wants != nil && !now.Before(w.next) }

// failed notes a try that failed, and reports whether the event is given up.
func (w *watch) failed(now time.Time, e Event) (givenUp bool) {
	if w.first.IsZero() {
		w.first = now
	}
	if now.Sub(w.first) >= tryFor {
		w.done(now, e)
		return true
	}
	w.next = now.Add(min(firstRest<<min(w.failures, 20), longestRest))
	w.failures++
	return false
}

// done notes that an event was told, or given up.
func (w *watch) done(now time.Time, e Event) {
	w.told = told{Event: e.Event, Since: e.Since, Time: e.Time, Keys: keysOf(e.Problems)}
	w.wants, w.first, w.failures, w.next = nil, time.Time{}, 0, now.Add(apart)
}

// keysOf are the keys of problems, each once, in their order.
func keysOf(all []Problem) (keys []string) {
	for _, p := range all {
		keys = append(keys, p.key())
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Run looks once a second and tells what is to be told, one event at a time, until ctx ends. A try that is under way then is
// cut off, and the next process tells the event again.
func (b *Bell) Run(ctx context.Context, look func() State) error {
	var w watch
	var err error
	if w.told, err = readTold(b.path); err != nil {
		b.log.Error("what notify.url was told is forgotten", slog.Any("error", err))
	}
	if now := time.Now(); w.told.Since.After(now) {
		w.told.Since = now.Round(0) // the clock was set back
	}
	kept := w.told
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	type tried struct {
		event Event
		err   error
	}
	results := make(chan tried, 1)
	trying, failing, unkept := false, false, false
	for {
		select {
		case <-ctx.Done():
			if trying {
				if r := <-results; r.err == nil { // it ends at once, by ctx, unless it has just ended well
					w.done(time.Now(), r.event)
					b.keep(w.told, &unkept)
				}
			}
			return nil
		case r := <-results:
			trying = false
			now := time.Now()
			switch {
			case r.err == nil:
				failing = false
				b.events.WithLabelValues("delivered").Inc()
				b.log.Info("notify.url told", slog.String("event", r.event.Event))
				w.done(now, r.event)
			case w.wants == nil: // it has passed meanwhile
				b.events.WithLabelValues("failed").Inc()
			case w.failed(now, r.event):
				b.events.WithLabelValues("given_up").Inc()
				b.log.Error("notify.url not told, given up", slog.String("event", r.event.Event), slog.Any("error", r.err))
			default:
				b.events.WithLabelValues("failed").Inc()
				if !failing {
					b.log.Error("notify.url not told, tried again", slog.String("event", r.event.Event), slog.Any("error", r.err))
				}
				failing = true
			}
		case <-tick.C:
			now := time.Now()
			w.look(now, bounded(look()))
			if !trying && w.due(now) {
				e := *w.wants
				e.Time, e.Since, e.Host, e.Version = now.UTC().Truncate(time.Second), e.Since.UTC().Truncate(time.Second), b.host, b.version
				e.Text = textOf(e)
				trying = true
				go func() { results <- tried{e, b.ring(ctx, e)} }()
			}
		}
		b.undelivered.Store(w.wants != nil && w.failures > 0)
		if !w.told.equal(kept) {
			if b.keep(w.told, &unkept) {
				kept = w.told
			}
		}
	}
}

// keep writes what was told. That it cannot is logged once: after a restart it is told again.
func (b *Bell) keep(t told, failing *bool) bool {
	err := durable.Save(b.path, t, 0o600)
	if err != nil && !*failing {
		b.log.Error("what notify.url was told is not kept for the next start", slog.Any("error", err))
	}
	*failing = err != nil
	return err == nil
}

// NewTest returns an event that means nothing.
func NewTest(host, version string, now time.Time) Event {
	now = now.UTC().Truncate(time.Second)
	e := Event{Event: Test, ID: rand.Text(), Time: now, Since: now, Host: host, Version: version, Ready: true, Problems: []Problem{}}
	e.Text = textOf(e)
	return e
}

// textOf is an event for people.
func textOf(e Event) string {
	switch e.Event {
	case Test:
		return "blockd on " + e.Host + ": a test"
	case Well:
		return "blockd on " + e.Host + " is well again"
	}
	what := " is degraded: "
	if !e.Ready {
		what = " is not ready: "
	}
	text := "blockd on " + e.Host + what
	for i, p := range e.Problems {
		if i > 0 {
			text += "; "
		}
		text += p.Text
	}
	return cut(text, 2*maxText)
}

// bounded is a state whose texts are lines of bounded length.
func bounded(s State) State {
	s.Problems = slices.Clone(s.Problems)
	for i := range s.Problems {
		p := &s.Problems[i]
		p.Text, p.List = cut(oneLine(cmp.Or(p.Text, p.Name)), maxText), cut(oneLine(p.List), maxText)
	}
	return s
}
