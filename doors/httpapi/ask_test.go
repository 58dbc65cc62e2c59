package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/ask"
	"blockd/reload"
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

// TestListThatIsAsked: a verdict if the store answers, "unknown" if it is away and no other list decides.
func TestListThatIsAsked(t *testing.T) {
	s := &store{}
	set := ask.New(ask.Options{Store: s, Timeout: time.Minute, Cache: 1, Positive: 1, Negative: 1, Source: index.Source{List: "asked", Path: "a store"}}, slog.New(slog.DiscardHandler))
	t.Cleanup(set.Close)
	filter := ask.NewFilter(10)
	for _, text := range []string{"listed.example", "clear.example"} {
		it, err := lists.ParseEntry(text, lists.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		filter.Add(it.Key)
	}
	set.UseFilter(filter)
	ix, reg, log := build(t, "bad.example\n"), prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	checker := policy.New(func() *index.Index { return ix }, policy.Settings{Stores: ask.NewSets([]*ask.Set{set}, []string{"bad", "asked"})}, log, reg)
	f := &fixture{Server: New(Settings{Fast: true}, checker, func() reload.Status { return reload.Status{Ready: true} }, reg, log)}
	for _, tt := range []struct {
		away         bool
		sender, want string
	}{
		{false, "ann@listed.example", "blocked"}, {false, "ann@clear.example", "clear"},
		{true, "ann@listed.example", "unknown"}, {true, "ann@clear.example", "unknown"}, {true, "ann@other.example", "clear"}, {true, "ann@bad.example", "blocked"},
	} {
		s.away.Store(tt.away)
		var got struct{ Verdict string }
		w := f.ask("GET", "/v1/check?sender="+tt.sender, "")
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Verdict != tt.want {
			t.Errorf("%s, away %v: %d %s, want %s", tt.sender, tt.away, w.Code, w.Body, tt.want)
		}
	}
}
