package history

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// TestYield lets two histories, as of two processes, take turns at one folder: each decision is there once, whoever made
// it and whoever had the folder then.
func TestYield(t *testing.T) {
	first := open(t)
	second := (*Log)(nil)
	relay := func(lines []byte) error { second.AddLines(lines); return nil }
	testkit.Must(t, first.Yield(relay))
	second = reopen(t, first.settings)
	random, now := rand.New(rand.NewPCG(1, 2)), time.Now().Add(-time.Hour)
	want := map[Record]int{}
	owner, other := second, first
	for n := range 900 {
		r := anything(random, now.Add(time.Duration(n)*time.Second))
		r.Repeated = n + 1 // no two are alike
		want[r]++
		if random.IntN(2) == 0 {
			owner.Add(r)
		} else {
			other.Add(r)
		}
		switch random.IntN(40) {
		case 0:
			flush(t, other)
		case 1:
			flush(t, owner)
		case 2:
			if err := other.Resume(); !errors.Is(err, ErrLocked) {
				t.Fatalf("two have the history: %v", err)
			}
			flush(t, other)
			to := other
			if err := owner.Yield(func(lines []byte) error { to.AddLines(lines); return nil }); err != nil {
				t.Fatal(err)
			}
			testkit.Must(t, other.Resume())
			owner, other = other, owner
		}
	}
	flush(t, other)
	flush(t, owner)
	found, err := owner.Search(t.Context(), Query{Limit: MaxFound})
	testkit.Must(t, err)
	for _, r := range found.Records {
		want[r]--
	}
	for r, n := range want {
		if n != 0 {
			t.Errorf("%d too few of %+v", n, r)
		}
	}
}

// TestAddLinesDamaged holds that damaged lines cost themselves alone.
func TestAddLinesDamaged(t *testing.T) {
	l := open(t)
	good, bad := clear(1), clear(2)
	lines := appendLine(nil, &good)
	damaged := bytes.Replace(appendLine(nil, &bad), []byte("there"), []byte("three"), 1)
	l.AddLines(slices.Concat(damaged, []byte("\nnonsense"), []byte("\n"), lines, lines[:len(lines)/2]))
	flush(t, l)
	found, err := l.Search(t.Context(), Query{Limit: 10})
	if err != nil || len(found.Records) != 1 || found.Records[0] != good {
		t.Errorf("found %v, %v", found.Records, err)
	}
	if n := l.failed.Load(); n != 4 {
		t.Errorf("%d lines left out", n)
	}
}

func flush(t *testing.T, l *Log) {
	t.Helper()
	testkit.Must(t, l.Flush())
}

// TestYieldToOneThatEnds holds that decisions are written here once the process that had the history is gone, and wait for
// nobody while it is there and does not take them.
func TestYieldToOneThatEnds(t *testing.T) {
	first := open(t)
	first.Add(clear(1))
	gone := errors.New("broken pipe")
	if err := first.Yield(func([]byte) error { return gone }); err != nil {
		t.Fatal(err)
	}
	second := reopen(t, first.settings)
	first.Add(clear(2))
	if err := first.Flush(); !errors.Is(err, gone) {
		t.Errorf("while the other process is there: %v", err)
	}
	second.Add(clear(3))
	testkit.Must(t, second.Close())
	first.Add(clear(4))
	flush(t, first)
	found, err := first.Search(t.Context(), Query{Limit: 10})
	if err != nil || len(found.Records) != 3 || found.Records[0].Sender != clear(4).Sender {
		t.Errorf("found %+v, %v", found.Records, err)
	}
}
