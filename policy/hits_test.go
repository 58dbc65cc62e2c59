package policy_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/policy"
)

// TestHits asks on through a swap to a generation with other lists.
func TestHits(t *testing.T) {
	live := build(t, block("a", "bad.example\n!good@bad.example\nx@"), block("b", "bad.example"), allow("c", "y@bad.example"),
		block("d", "192.0.2.0/24").shadow())
	next := build(t, block("new", "fresh.example"), block("b", "bad.example"))
	reg := prometheus.NewRegistry()
	c := policy.New(func() *index.Index { return live }, policy.Settings{}, slog.New(slog.DiscardHandler), reg)
	if hits := c.Hits().Lists(); len(hits) != 0 {
		t.Errorf("at the start: %+v", hits)
	}
	before := time.Now()
	for _, q := range []struct{ client, sender string }{
		{"", "x@bad.example"},             // a (two entries), b
		{"", "x@ok.example"},              // a alone
		{"", "y@bad.example"},             // a, b, allowed by c
		{"", "good@bad.example"},          // a, lifted by its own exception, and b
		{"192.0.2.1", "z@ok.example"},     // d alone, which does not count
		{"192.0.2.1", "y@bad.example"},    // all of them
		{"203.0.113.1", "z@ok.example"},   // none
		{"203.0.113.1", "no sender"},      // none
		{"203.0.113.1", "two@at@signs.x"}, // none
	} {
		askEnvelope(c, client(t, q.client), q.sender)
	}
	live = next
	askSender(c, "x@bad.example")   // b alone
	askSender(c, "x@fresh.example") // new alone
	askDomain(c, "bad.example")     // b alone: a program that asks by DNS
	var got []string
	for _, h := range c.Hits().Lists() {
		got = append(got, fmt.Sprint(h.Name, " ", h.Hits, " ", h.Sole, " ", h.Overridden))
		if h.Last.Before(before.Truncate(0).Add(-time.Second)) || h.Last.After(time.Now().Add(time.Second)) {
			t.Errorf("%s was last hit at %s", h.Name, h.Last)
		}
	}
	const want = "a 5 1 3, b 6 2 2, c 2 0 0, d 2 1 1, new 1 1 0"
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("hits are %s, want %s", got, want)
	}
	wantMetric(t, reg, "blockd_list_sole_hits_total", `
		blockd_list_sole_hits_total{list="a"} 1
		blockd_list_sole_hits_total{list="b"} 2
		blockd_list_sole_hits_total{list="c"} 0
		blockd_list_sole_hits_total{list="d"} 1
		blockd_list_sole_hits_total{list="new"} 1`)
	wantMetric(t, reg, "blockd_list_overridden_hits_total", `
		blockd_list_overridden_hits_total{list="a"} 3
		blockd_list_overridden_hits_total{list="b"} 2
		blockd_list_overridden_hits_total{list="c"} 0
		blockd_list_overridden_hits_total{list="d"} 1
		blockd_list_overridden_hits_total{list="new"} 0`)
}

// TestHitsOfManyAtOnce is for the race detector too: the first hits of a list
// make its counters.
func TestHitsOfManyAtOnce(t *testing.T) {
	c, reg := checker(t, build(t, block("a", "bad.example")), policy.Settings{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				askSender(c, "x@bad.example")
			}
		})
	}
	for range 100 {
		c.Hits().Lists()
	}
	all.Wait()
	wantMetric(t, reg, "blockd_list_hits_total", `blockd_list_hits_total{list="a"} 800`)
}
