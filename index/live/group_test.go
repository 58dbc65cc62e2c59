package live

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// Writers at once, each with names of its own: what each was told is what is in force, and what
// a reader finds on the disk.
func TestWritersAtOnce(t *testing.T) {
	set := open(t, Settings{compactFrom: 64})
	want := make([]map[string]string, 8)
	var all sync.WaitGroup
	for w := range want {
		want[w] = map[string]string{}
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 0))
			for n := range 100 {
				c := Change{Entry: fmt.Sprintf("x%d@w%d.example", rng.IntN(10), w), Remove: rng.IntN(3) == 0, Why: fmt.Sprint(n)}
				outcomes, err := set.Apply(c)
				if err != nil {
					t.Error(err)
					return
				}
				was, had := want[w][c.Entry]
				if (outcomes[0].Was != nil) != had || had && outcomes[0].Was.Why != was {
					t.Errorf("writer %d, change %d: was %v, want %q", w, n, outcomes[0].Was, was)
				}
				if delete(want[w], c.Entry); !c.Remove {
					want[w][c.Entry] = c.Why
				}
			}
		})
	}
	all.Go(func() {
		for range 20 {
			if err := set.Tidy(); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	together := map[string]string{}
	for _, m := range want {
		maps.Copy(together, m)
	}
	if got := reasons(set); !maps.Equal(got, together) {
		t.Errorf("in force\n%v\nwant\n%v", got, together)
	}
	seen, err := Read(set.folder)
	if err != nil || seen.damaged > 0 || !maps.Equal(reasons(seen), together) {
		t.Errorf("on the disk: %v, %v", err, reasons(seen))
	}
}

// grouped gives each change as a request of one group.
func grouped(t *testing.T, set *Set, changes ...Change) []*request {
	t.Helper()
	var group []*request
	for _, c := range changes {
		e, err := newEntry(c, nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		group = append(group, &request{changes: []Change{c}, wanted: []*Entry{e}, now: time.Now()})
	}
	set.writing.Lock()
	defer set.writing.Unlock()
	set.applyGroup(group)
	return group
}

// A request sees those before it in its group, and they are written in this order.
func TestGroupIsInOrder(t *testing.T) {
	set := open(t, Settings{})
	group := grouped(t, set, Change{Entry: "a@b.example", Why: "1"}, Change{Entry: "a@b.example", Why: "1"},
		Change{Entry: "a@b.example", Remove: true}, Change{Entry: "a@b.example", Remove: true}, Change{Entry: "a@b.example", Why: "2"})
	changed := slices.Collect(func(yield func(bool) bool) {
		for _, r := range group {
			if !yield(r.err == nil && r.outcomes[0].Changed()) {
				return
			}
		}
	})
	if !slices.Equal(changed, []bool{true, false, true, false, true}) || set.records != 3 {
		t.Errorf("changed: %v, %d records", changed, set.records)
	}
	seen, err := Read(set.folder)
	if err != nil || !maps.Equal(reasons(seen), map[string]string{"a@b.example": "2"}) {
		t.Errorf("on the disk: %v, %v", err, reasons(seen))
	}
}

// If a group cannot be written, each of its requests is told, also one that asks for what
// another had asked for; nothing of them acts, and nothing is there afterwards.
func TestGroupFailsWhole(t *testing.T) {
	set := open(t, Settings{})
	apply(t, set, Change{Entry: "before@b.example"})
	set.writing.Lock()
	set.journal.broken = errors.New("the sync failed")
	set.writing.Unlock()
	for i, r := range grouped(t, set, Change{Entry: "a@b.example"}, Change{Entry: "a@b.example"}, Change{Entry: "before@b.example", Remove: true}) {
		if !errors.Is(r.err, ErrUnwritable) || r.outcomes != nil {
			t.Errorf("request %d: %v, %v", i, r.outcomes, r.err)
		}
	}
	if err := set.Tidy(); err != nil {
		t.Fatal(err)
	}
	apply(t, set, Change{Entry: "after@b.example"})
	seen, err := Read(set.folder)
	if err != nil || texts(set) != "block after@b.example, block before@b.example" || texts(seen) != texts(set) {
		t.Errorf("in force %s, on the disk %s, %v", texts(set), texts(seen), err)
	}
}
