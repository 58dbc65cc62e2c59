package hits

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Entry says what one entry was worth since the start: as List does of lists.
type Entry struct {
	List string
	Text string // in canonical form
	Line int    // at the last hit

	Hits uint64 // at least this less Over, at most this
	Over uint64 // how much of Hits may be another entry's, whose place this one has taken

	// Since the entry has its place.
	Sole       uint64
	Overridden uint64
	Last       time.Time
}

// maxTopEntries is how many entries are counted. An entry with more than one in so many
// of all hits is always among them, and one with fewer may be: a megabyte for them.
const maxTopEntries = 4096

// topEntries counts the entries with the most hits, by Space-Saving (Metwally, Agrawal,
// El Abbadi, ICDT 2005): who is new when all places are taken has the place of the entry
// with the fewest hits, and goes on from its count. It is asked at a match alone, never
// for a clear sender.
type topEntries struct {
	mu     sync.Mutex
	places map[entryKey]*topEntry
	heap   []*topEntry // by hits, the fewest first
}

type entryKey struct{ list, entry string }

type topEntry struct {
	Entry
	at int // in heap
}

// count counts one hit of an entry. The texts are copied where they are kept.
func (t *topEntries) count(list, entry string, line int, sole, overridden bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.places[entryKey{list, entry}]
	if e == nil {
		e = t.place(list, strings.Clone(entry))
	}
	e.Hits++
	e.Line, e.Last = line, now
	if sole {
		e.Sole++
	}
	if overridden {
		e.Overridden++
	}
	t.sink(e.at)
}

// place makes a place for an entry, or takes the one with the fewest hits.
func (t *topEntries) place(list, entry string) *topEntry {
	var e *topEntry
	if len(t.heap) < maxTopEntries {
		e = &topEntry{at: len(t.heap)}
		t.heap = append(t.heap, e)
		t.rise(e.at) // it has no hit, and nobody has fewer
		if t.places == nil {
			t.places = map[entryKey]*topEntry{}
		}
	} else {
		e = t.heap[0]
		delete(t.places, entryKey{e.List, e.Text})
		e.Entry = Entry{Hits: e.Hits, Over: e.Hits}
	}
	e.List, e.Text = list, entry
	t.places[entryKey{list, entry}] = e
	return e
}

// rise and sink put the place at i where its count belongs.
func (t *topEntries) rise(i int) {
	for i > 0 && t.heap[i].Hits < t.heap[(i-1)/2].Hits {
		t.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (t *topEntries) sink(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(t.heap); child++ {
			if t.heap[child].Hits < t.heap[least].Hits {
				least = child
			}
		}
		if least == i {
			return
		}
		t.swap(i, least)
		i = least
	}
}

func (t *topEntries) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.heap[i].at, t.heap[j].at = i, j
}

// Top returns the n entries with the most hits, the most first.
func (t *Table) Top(n int) []Entry { return t.top.first(n) }

func (t *topEntries) first(n int) []Entry {
	t.mu.Lock()
	all := make([]Entry, len(t.heap))
	for i, e := range t.heap {
		all[i] = e.Entry
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.Hits, a.Hits), cmp.Compare(a.Over, b.Over), cmp.Compare(a.List, b.List), cmp.Compare(a.Text, b.Text))
	})
	return all[:min(len(all), max(n, 0))]
}
