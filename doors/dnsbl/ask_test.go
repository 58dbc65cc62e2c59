package dnsbl

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"blockd/index"
	"blockd/lists"
	"blockd/policy/ask"
	"blockd/sources/mirror"
)

// store is that of a list that is asked; it has listed.example, or is away.
type store struct{ away atomic.Bool }

func (s *store) Ask(_ context.Context, texts []string) (all []ask.Answer, _ error) {
	if s.away.Load() {
		return nil, errors.New("connection refused")
	}
	for _, text := range texts {
		a := ask.Answer{Text: text}
		if text == "listed.example" {
			a.Rows = []mirror.Row{{Entry: text}}
		}
		all = append(all, a)
	}
	return all, nil
}

func (s *store) Close() error { return nil }

// TestListThatIsAsked: an address if the store has the name, no name if it has not, SERVFAIL if it is away; and a zone of
// other lists answers as ever.
func TestListThatIsAsked(t *testing.T) {
	s := &store{}
	r := newRig(t, func(r *rig) {
		set := ask.New(ask.Options{Store: s, Timeout: time.Minute, Cache: 1, Positive: 1, Negative: 1, Source: index.Source{List: "asked", Path: "a store"}}, slog.New(slog.DiscardHandler))
		t.Cleanup(set.Close)
		f := ask.NewFilter(10)
		for _, text := range []string{"listed.example", "clear.example"} {
			it, err := lists.ParseEntry(text, lists.Settings{})
			if err != nil {
				t.Fatal(err)
			}
			f.Add(it.Key)
		}
		set.UseFilter(f)
		r.verdicts.Stores = ask.NewSets([]*ask.Set{set}, []string{"one", "two", "asked"})
	})
	for _, tt := range []struct {
		away bool
		name string
		want int
	}{
		{false, "listed.example.dbl.here.example", dns.RcodeSuccess},
		{false, "clear.example.dbl.here.example", dns.RcodeNameError},
		{true, "listed.example.dbl.here.example", dns.RcodeServerFailure},
		{true, "clear.example.dbl.here.example", dns.RcodeServerFailure},
		{true, "other.example.dbl.here.example", dns.RcodeNameError},
		{true, "listed.example.one.dbl.here.example", dns.RcodeNameError},
	} {
		s.away.Store(tt.away)
		if got := r.ask(tt.name, dns.TypeA).Rcode; got != tt.want {
			t.Errorf("%s, away %v: %s, want %s", tt.name, tt.away, dns.RcodeToString[got], dns.RcodeToString[tt.want])
		}
	}
}
