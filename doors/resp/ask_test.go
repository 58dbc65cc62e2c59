package resp

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"blockd/index"
	"blockd/lists"
	stores "blockd/policy/ask"
	"blockd/sources/mirror"
)

// store is that of a list that is asked; it has listed.example, or is away.
type store struct{ away atomic.Bool }

func (s *store) Ask(_ context.Context, texts []string) (all []stores.Answer, _ error) {
	if s.away.Load() {
		return nil, errors.New("connection refused")
	}
	for _, text := range texts {
		a := stores.Answer{Text: text}
		if text == "listed.example" {
			a.Rows = []mirror.Row{{Entry: text}}
		}
		all = append(all, a)
	}
	return all, nil
}

func (s *store) Close() error { return nil }

// TestListThatIsAsked: 1 if the store has the sender, 0 if it has not, an error that clients try again after if it is away.
func TestListThatIsAsked(t *testing.T) {
	s := &store{}
	r := newRig(t)
	set := stores.New(stores.Options{Store: s, Timeout: time.Minute, Cache: 1, Positive: 1, Negative: 1, Source: index.Source{List: "asked", Path: "a store"}}, slog.New(slog.DiscardHandler))
	t.Cleanup(set.Close)
	f := stores.NewFilter(10)
	for _, text := range []string{"listed.example", "clear.example"} {
		it, err := lists.ParseEntry(text, lists.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		f.Add(it.Key)
	}
	set.UseFilter(f)
	r.stores = stores.NewSets([]*stores.Set{set}, []string{"spam", "asked"})
	address, _ := r.serve(t)
	p := dial(t, address)
	for _, tt := range []struct {
		away         bool
		sender, want string
	}{
		{false, "ann@listed.example", ":1"}, {false, "ann@clear.example", ":0"},
		{true, "ann@listed.example", "-"}, {true, "ann@clear.example", "-"}, {true, "ann@other.example", ":0"}, {true, "ann@bad.example", ":1"},
	} {
		s.away.Store(tt.away)
		got := p.ask(t, "SISMEMBER", "senders", tt.sender)
		if !strings.HasPrefix(got, tt.want) || tt.want == "-" && !strings.HasPrefix(got, "-TRYAGAIN ") && !strings.HasPrefix(got, "-LOADING ") {
			t.Errorf("%s, away %v: %q, want %q", tt.sender, tt.away, got, tt.want)
		}
	}
}
