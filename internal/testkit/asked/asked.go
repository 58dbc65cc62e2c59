// Package asked gives tests lists that are asked of a store, and holds doors and stores against what a mail server counts on.
package asked

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/policy/ask"
	"blockd/sources/mirror"
)

// Name is the name of the list that is asked.
const Name = "asked"

// Excepted is a name that other lists block, and of which a store that is away may have an exception.
const Excepted = "excepted.bad.example"

// Store is a store that has listed.example, and an exception for Excepted, or is away.
type Store struct{ away atomic.Bool }

// Ask implements ask.Store.
func (s *Store) Ask(_ context.Context, texts []string) (all []ask.Answer, _ error) {
	if s.away.Load() {
		return nil, errors.New("connection refused")
	}
	for _, text := range texts {
		a := ask.Answer{Text: text}
		if text == "listed.example" {
			a.Rows = []mirror.Row{{Entry: text}}
		}
		if text == Excepted {
			a.Rows = []mirror.Row{{Entry: text, Action: "allow"}}
		}
		all = append(all, a)
	}
	return all, nil
}

// Close implements ask.Store.
func (s *Store) Close() error { return nil }

// Sets is the list of the store among others, all of them in their order. Nothing is kept of an answer.
func (s *Store) Sets(t testing.TB, lists ...string) *ask.Sets {
	t.Helper()
	return sets(t, ask.Options{Store: s, Actions: true, Timeout: time.Minute, Cache: 1, Positive: 1, Negative: 1, Source: index.Source{Exceptions: index.AllExceptions}},
		[]string{"listed.example", "clear.example", Excepted}, lists)
}

// sets is one list over a store, whose filter has some entries.
func sets(t testing.TB, o ask.Options, entries, names []string) *ask.Sets {
	t.Helper()
	o.Source.List, o.Source.Path = Name, "a store"
	set := ask.New(o, slog.New(slog.DiscardHandler))
	t.Cleanup(set.Close)
	f := ask.NewFilter(10)
	for _, text := range entries {
		it, err := lists.ParseEntry(text, lists.Settings{})
		testkit.Must(t, err)
		f.Add(it.Key)
	}
	set.UseFilter(f)
	return ask.NewSets([]*ask.Set{set}, names)
}

// Answers are what a door says of a domain.
type Answers struct {
	Listed, Clear string
	Excepted      string            // of that name, "" = as Clear
	Unknown       string            // the store is away, and no other list decides
	Others        map[string]string // of domains that other lists decide
}

// Door asks a door about domains, while the store answers and while it is away.
func (s *Store) Door(t *testing.T, ask func(domain string) string, want Answers) {
	t.Helper()
	check := func(domain, want string) {
		t.Helper()
		if got := ask(domain); got != want {
			t.Errorf("%s, away %v: %q, want %q", domain, s.away.Load(), got, want)
		}
	}
	check("listed.example", want.Listed)
	check("clear.example", want.Clear)
	check(Excepted, cmp.Or(want.Excepted, want.Clear))
	s.away.Store(true)
	check("listed.example", want.Unknown)
	check("clear.example", want.Unknown)
	check(Excepted, want.Unknown)      // mail hears 451
	check("other.example", want.Clear) // the filter says no
	for domain, answer := range want.Others {
		check(domain, answer)
	}
}
