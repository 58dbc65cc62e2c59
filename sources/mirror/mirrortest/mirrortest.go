// Package mirrortest holds a driver of package mirror against what a copy counts on, as testing/fstest does for file
// systems. A driver's own tests show only what is its own.
package mirrortest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/sources/mirror"
)

// Driver is a list in a server: what Run needs of it.
type Driver struct {
	// Open opens the list, which has no rows at first. The source is closed with the test.
	Open func(testing.TB) mirror.Source
	// Put adds a row for an entry, or replaces the one that is there.
	Put    func(t testing.TB, entry, action string)
	Remove func(t testing.TB, entry string)
	// Unseen says that only a full read finds what was removed.
	Unseen bool
	// Asked counts the questions that the server has been asked, without the one that counts. Nil: they are not counted.
	Asked func(testing.TB) int
}

// Run runs the suite.
func Run(t *testing.T, d Driver) {
	t.Run("Ended", d.ended)
	t.Run("IdlePolls", d.idlePolls)
	t.Run("RandomChanges", d.randomChanges)
}

// ended: a read that its caller ends gives the caller's error. The next one is whole.
func (d Driver) ended(t *testing.T) {
	entries := []string{"a@bulk.example", "b.example", "c.example"}
	for _, e := range entries {
		d.Put(t, e, "block")
	}
	s, full := d.Open(t), errors.New("full")
	_, err := s.All(t.Context(), func(mirror.Row) error { return &mirror.Error{Class: mirror.ClassDisk, Err: full} })
	if !errors.Is(err, full) || Class(err) != mirror.ClassDisk {
		t.Errorf("yield's error came back as %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.All(ctx, Skip); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if rows, _ := Rows(t, s); len(rows) != len(entries) {
		t.Errorf("afterwards %+v", rows)
	}
	first, err := s.Fingerprint(t.Context())
	again, err2 := d.Open(t).Fingerprint(t.Context())
	if first == "" || again != first || err != nil || err2 != nil {
		t.Errorf("the fingerprint %q, and of another process %q; %v, %v", first, again, err, err2)
	}
	for _, e := range entries {
		d.Remove(t, e)
	}
}

// idlePolls: a poll at which nothing has changed is one question. Only the first one may also ask which server it is.
func (d Driver) idlePolls(t *testing.T) {
	if d.Asked == nil {
		t.Skip("questions are not counted")
	}
	d.Put(t, "a@bulk.example", "block")
	defer d.Remove(t, "a@bulk.example")
	c := NewCopy(t, d.Open(t), lists.Settings{})
	c.Read(t)
	const polls = 10
	before := 0
	for i := range 1 + polls {
		if told := c.Follow(t); told.Changed || told.Rows > 0 {
			t.Fatalf("nothing has changed: %+v", told)
		}
		if i == 0 {
			before = d.Asked(t)
		}
	}
	if n := d.Asked(t) - before; n != polls {
		t.Errorf("%d polls were %d questions", polls, n)
	}
}

// randomChanges follows a list that is changed at random, while source and copy are opened anew now and then. After each
// poll the copy is what the list is.
func (d Driver) randomChanges(t *testing.T) {
	rng := rand.New(rand.NewPCG(50, 50))
	c := NewCopy(t, d.Open(t), lists.Settings{})
	c.Read(t)
	golden := map[string]string{} // action by entry
	for round := range 30 {
		removed := false
		for range rng.IntN(8) {
			entry, action := fmt.Sprintf("user%d@bulk.example", rng.IntN(20)), []string{"block", "allow"}[rng.IntN(2)]
			if _, there := golden[entry]; there && rng.IntN(2) == 0 {
				d.Remove(t, entry)
				delete(golden, entry)
				removed = true
			} else {
				d.Put(t, entry, action)
				golden[entry] = action
			}
		}
		switch rng.IntN(6) {
		case 0:
			c.Restart(t)
		case 1:
			c.Source = d.Open(t)
		}
		if removed && d.Unseen {
			c.Read(t)
		} else {
			c.Update(t)
		}
		var want []string
		for entry, action := range golden {
			want = append(want, entry+" "+action[:1])
		}
		slices.Sort(want)
		c.Want(t, fmt.Sprint("round ", round), want...)
	}
	if len(golden) < 5 {
		t.Error("there is next to nothing in the list")
	}
}

// BenchRows is how many rows a benchmark reads: BLOCKD_TEST_ROWS, or so many.
func BenchRows(usual int) int {
	if n, err := strconv.Atoi(os.Getenv("BLOCKD_TEST_ROWS")); err == nil {
		return n
	}
	return usual
}

// Benchmark reads a list of so many rows into a copy, polls it, and takes changes in, one at a time. Nil: no change is
// measured.
func Benchmark(b *testing.B, s mirror.Source, rows int, change func(i int)) {
	c := NewCopy(b, s, lists.Settings{})
	b.Run("read", func(b *testing.B) {
		peak := testkit.PeakHeap()
		for b.Loop() {
			if told := c.Read(b); told.Entries != int64(rows) {
				b.Fatalf("%+v", told)
			}
		}
		b.ReportMetric(float64(peak())/(1<<20), "MiB-heap")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(rows), "ns/row")
	})
	b.Run("idle", func(b *testing.B) {
		for b.Loop() {
			c.Follow(b)
		}
	})
	if change == nil {
		return
	}
	b.Run("change", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			change(i)
			if told := c.Follow(b); !told.Changed {
				b.Fatalf("%+v", told)
			}
		}
	})
}
