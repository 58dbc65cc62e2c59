package ask

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/maypok86/otter/v2"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/sync/singleflight"

	"blockd/bloom/filter"
	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/policy/verdict"
	"blockd/sources/mirror"
)

// Defaults of Options.
const (
	DefaultTimeout  = 50 * time.Millisecond
	DefaultCache    = 65536
	DefaultPositive = 30 * time.Second
	DefaultNegative = 60 * time.Second
	DefaultFailures = 5
	DefaultPause    = 2 * time.Second
)

// maxQuestions bounds the questions of one list that wait for its store: what a store that hangs can hold.
const maxQuestions = 256

// quiet is the time after a logged fault in which further ones of the list are only counted.
const quiet = 10 * time.Second

// Options say how a list is asked. Zero values are the defaults above.
type Options struct {
	Source index.Source // the list; its Path names the store for people, without secrets
	Store  Store

	Timeout            time.Duration // of a whole question, all retries in it
	Cache              int           // answers that are kept, yes and no
	Positive, Negative time.Duration // for how long
	Failures           int           // in a row, before the store is left alone
	Pause              time.Duration // for how long
	Probes             int           // how many questions at once try it then; 0 = 1
	Defers             bool          // mail is put off if the list cannot be asked and no other decides about it

	Match verdict.Sources // the addresses that the list is asked about

	// Actions: a row of the store may have an action of its own, so that a list that blocks may hold exceptions.
	Actions bool
}

// Set is one list. It is safe for concurrent use.
type Set struct {
	Options
	info  index.ListInfo
	local atomic.Pointer[Filter]        // its own filter; nil if there is none
	other atomic.Pointer[filter.Filter] // the filter of another program, in place of its own
	cache *otter.Cache[string, []mirror.Row]
	log   *slog.Logger

	flights singleflight.Group
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	waiting chan struct{}

	counts
	status
	logNext  atomic.Int64 // Unix nanoseconds: no fault is logged before
	unlogged atomic.Uint64
}

// New returns a list without a filter: until it has one, nothing is asked.
func New(o Options, log *slog.Logger) *Set {
	o.Timeout, o.Cache = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.Cache, DefaultCache)
	o.Positive, o.Negative = cmp.Or(o.Positive, DefaultPositive), cmp.Or(o.Negative, DefaultNegative)
	o.Failures, o.Pause = cmp.Or(o.Failures, DefaultFailures), cmp.Or(o.Pause, DefaultPause)
	s := &Set{Options: o, log: log.With(slog.String("list", o.Source.List)), waiting: make(chan struct{}, maxQuestions),
		status: status{now: mirror.Status{State: mirror.Away, Since: time.Now()}},
		info:   index.ListInfo{Source: o.Source, Summary: lists.Summary{Format: "rows", Verdict: lists.Loaded}}}
	s.cache = otter.Must(&otter.Options[string, []mirror.Row]{MaximumSize: o.Cache,
		ExpiryCalculator: otter.ExpiryWritingFunc(func(e otter.Entry[string, []mirror.Row]) time.Duration {
			if len(e.Value) > 0 {
				return o.Positive
			}
			return o.Negative
		})})
	s.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: uint32(max(o.Probes, 1)), Timeout: o.Pause,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= uint32(o.Failures) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			s.paused.Store(to != gobreaker.StateClosed)
			switch {
			case from == gobreaker.StateClosed:
				s.pausedAt.Store(time.Now().UnixNano())
				s.log.Error("list is not asked for a while: its store has failed", slog.Duration("pause", o.Pause), slog.Int("failures", o.Failures))
			case to == gobreaker.StateClosed:
				s.pausedAt.Store(0)
				s.log.Info("list is asked again: its store has answered")
			}
		},
	})
	return s
}

// Close ends the list. Its store stays open.
func (s *Set) Close() { s.cache.StopAllGoroutines() }

// UseFilter makes f the list's filter. What it says "surely not" about is not asked from then on.
func (s *Set) UseFilter(f *Filter) { s.local.Store(f); s.other.Store(nil) }

// UseForeign makes the filter of another program the list's. It holds keys as `blockd export` writes them.
func (s *Set) UseForeign(f filter.Filter) { s.other.Store(&f); s.local.Store(nil) }

// Loaded reports whether the list has a filter, so that it can be asked.
func (s *Set) Loaded() bool { return s.local.Load() != nil || s.other.Load() != nil }

// perhaps returns a bit for each of at most bloom.BatchSize keys that may be in the list.
func (s *Set) perhaps(keys []addr.Key) (perhaps uint32, ok bool) {
	if f := s.local.Load(); f != nil {
		return f.perhaps(keys), true
	}
	other := s.other.Load()
	if other == nil {
		return 0, false
	}
	for i := range keys {
		if text := keys[i].Text; (*other).Has(unsafe.Slice(unsafe.StringData(text), len(text))) { // read only, and not kept
			perhaps |= 1 << i
		}
	}
	return perhaps, true
}

// mayAllow reports whether the list can hold an exception.
func (s *Set) mayAllow() bool { return s.Actions || s.Source.Settings.Action.Allows() }

// forget drops cached answers about an entry that has changed.
func (s *Set) forget(k addr.Key) {
	for _, text := range spellings(nil, k, true) {
		s.cache.Invalidate(text)
	}
	for _, text := range spellings(nil, k, false) {
		s.cache.Invalidate(text)
	}
}

// spellings appends the entries that cover a sender which has a key, as a plain list writes them: as its own
// name, or as a parent of its domain.
func spellings(dst []string, k addr.Key, own bool) []string {
	text := k.Text
	if _, simple := addr.Simple(text); !simple {
		it := lists.Item{Kind: lists.Addr, Key: k}
		switch k.Kind {
		case addr.Domain:
			it.Kind, it.Scope = lists.Domain, lists.Tree
		case addr.Local:
			it.Scope = lists.Local
		}
		if text = it.Plain(); text == "" {
			return dst // no entry can say it
		}
	}
	text = strings.Clone(text) // it lies in the sender's memory
	switch {
	case k.Kind != addr.Domain:
		return append(dst, text)
	case own:
		return append(dst, text, "="+text)
	}
	return append(dst, text, "."+text)
}

// ask asks the store for texts whose answers are not cached. All who ask for the same at once share one question.
func (s *Set) ask(texts []string) <-chan singleflight.Result {
	name := strings.Join(texts, "\n") // which no entry holds
	return s.flights.DoChan(name, func() (any, error) {
		if found := s.cachedAll(texts); found != nil { // by a question that ended a moment ago
			return found, nil
		}
		answers, err := s.question(texts)
		if err != nil {
			s.failed(err)
			return nil, err
		}
		found, outcome := make(map[string][]mirror.Row, len(answers)), outcomeNo
		for _, a := range answers {
			found[a.Text] = a.Rows
			s.cache.Set(a.Text, a.Rows)
			if len(a.Rows) > 0 {
				outcome = outcomeYes
			}
		}
		s.outcomes[outcome].Add(1)
		return found, nil
	})
}

// cachedAll is what the cache has of texts; nil if it lacks one.
func (s *Set) cachedAll(texts []string) map[string][]mirror.Row {
	found := make(map[string][]mirror.Row, len(texts))
	for _, text := range texts {
		rows, ok := s.cache.GetIfPresent(text)
		if !ok {
			return nil
		}
		found[text] = rows
	}
	return found
}

// question is one question to the store, and its judgement.
func (s *Set) question(texts []string) (answers []Answer, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.Timeout)
	defer cancel()
	if !s.place() {
		return nil, ErrBusy
	}
	defer func() { <-s.waiting }()
	done, err := s.breaker.Allow()
	if err != nil {
		return nil, ErrPaused
	}
	defer func() {
		if p := recover(); p != nil {
			answers, err = nil, fmt.Errorf("%w: panic: %v", ErrAway, p)
		}
		done(err)
	}()
	answers, err = s.Store.Ask(ctx, texts)
	switch {
	case err == nil:
		return answers, s.check(texts, answers)
	case errors.Is(err, ErrWrong):
		return nil, err
	case ctx.Err() != nil:
		return nil, ErrTimeout
	}
	return nil, fmt.Errorf("%w: %w", ErrAway, err)
}

// place waits for a place among the questions of the list, for half of its time: with less than the other half a store that is
// well could not answer, and would be blamed.
func (s *Set) place() bool {
	select {
	case s.waiting <- struct{}{}:
		return true
	default:
	}
	if s.paused.Load() { // it is soon known that nothing is asked
		return false
	}
	patience := time.NewTimer(s.Timeout / 2)
	defer patience.Stop()
	select {
	case s.waiting <- struct{}{}:
		return true
	case <-patience.C:
		return false
	}
}

// check holds the answers against the question. Each must name what was asked, and each row must be of that entry.
func (s *Set) check(texts []string, answers []Answer) error {
	if len(answers) != len(texts) {
		return fmt.Errorf("%w: %d answers to %d questions", ErrWrong, len(answers), len(texts))
	}
	for i := range answers {
		if answers[i].Text != texts[i] {
			return fmt.Errorf("%w: another text than was asked", ErrWrong)
		}
		if len(answers[i].Rows) > maxRows {
			return fmt.Errorf("%w: %d rows for one entry", ErrWrong, len(answers[i].Rows))
		}
		for j := range answers[i].Rows {
			if entry := answers[i].Rows[j].Entry; entry != texts[i] && !s.same(entry, texts[i]) {
				return fmt.Errorf("%w: a row of another entry than was asked", ErrWrong)
			}
		}
	}
	return nil
}

// maxRows bounds the rows of one entry: it has at most one for each action, and some spellings.
const maxRows = 16

// same reports whether two texts are the same entry in two spellings.
func (s *Set) same(a, b string) bool {
	unguarded := lists.Settings{Subdomains: s.Source.Settings.Subdomains}
	x, err := lists.ParseEntry(a, unguarded)
	if err != nil {
		return false
	}
	y, err := lists.ParseEntry(b, unguarded)
	return err == nil && x.Key == y.Key && x.Scope == y.Scope && x.Kind == y.Kind
}

// matches appends the entries that the rows of a text make. A row that has ended or that is no entry of the list makes none.
func (s *Set) matches(dst []index.Match, row int, rows []mirror.Row, now time.Time) []index.Match {
	for i := range rows {
		it, ok := s.entry(&rows[i])
		if !ok || it.Expires != 0 && it.Expires <= now.Unix() {
			continue
		}
		m := index.Match{Row: row, Kind: it.Kind, Key: it.Key, Scope: it.Scope, Action: it.Action, Reason: it.Reason}
		if !slices.Contains(dst, m) {
			dst = append(dst, m)
		}
	}
	return dst
}

// entry reads a row. False if it is no entry for senders, is refused by the list's guard, or has an action that the list cannot have.
func (s *Set) entry(r *mirror.Row) (lists.Item, bool) {
	settings := s.Source.Settings
	action := settings.Action
	if r.Action != "" {
		var ok bool
		if action, ok = lists.EntryAction(r.Action); !ok || settings.Action == lists.Allow && !action.Allows() {
			return lists.Item{}, false
		}
	}
	if settings.Action = lists.Block; action.Allows() {
		settings.Action = lists.Allow // so that no guard has a say
	}
	settings.Reason = cmp.Or(r.Reason, settings.Reason)
	it, err := lists.ParseEntry(r.Entry, settings)
	it.Action, it.Expires = action, r.Expires
	return it, err == nil && (it.Kind == lists.Addr || it.Kind == lists.Domain)
}

// failed logs a fault of the store, calmly.
func (s *Set) failed(err error) {
	s.count(err)
	if errors.Is(err, ErrPaused) {
		return // which was told when it began
	}
	now, next := time.Now().UnixNano(), s.logNext.Load()
	if now < next || !s.logNext.CompareAndSwap(next, now+int64(quiet)) {
		s.unlogged.Add(1)
		return
	}
	s.log.Warn("list cannot be asked", slog.Any("error", err), slog.Uint64("not_logged_before", s.unlogged.Swap(0)))
}

// resting reports whether the store is left alone now.
func (s *Set) resting() bool {
	return s.paused.Load() && s.breaker.State() == gobreaker.StateOpen
}
