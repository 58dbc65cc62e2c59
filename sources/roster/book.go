package roster

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"time"
)

// The bounds of a Book: 5,000 nodes that are well have 5 MB.
const (
	MostNodes  = 5000
	MostOctets = 32 << 20 // of the reports that were sent
)

// ErrFull is the error of a report of one node too many, or of one octet.
var ErrFull = errors.New("too many nodes report here, or they say too much")

// Book has the reports that nodes have sent to this machine. Its methods may be called from several goroutines at once.
type Book struct {
	mu    sync.Mutex
	until map[string]time.Time
	of    map[string]Report
	size  map[string]int
	all   int // of size
}

// NewBook returns an empty one.
func NewBook() *Book {
	return &Book{until: map[string]time.Time{}, of: map[string]Report{}, size: map[string]int{}}
}

// Put takes a report of so many octets in, which counts for Life.
func (b *Book) Put(r Report, octets int, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(now)
	if _, known := b.of[r.Node]; !known && len(b.of) >= MostNodes || b.all-b.size[r.Node]+octets > MostOctets {
		return ErrFull
	}
	b.all += octets - b.size[r.Node]
	b.of[r.Node], b.until[r.Node], b.size[r.Node] = r, now.Add(Life), octets
	return nil
}

// All are the reports that count.
func (b *Book) All(now time.Time) (all []Report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(now)
	for _, r := range b.of {
		all = append(all, r)
	}
	return all
}

func (b *Book) forget(now time.Time) {
	for node, until := range b.until {
		if !until.After(now) {
			b.all -= b.size[node]
			delete(b.until, node)
			delete(b.of, node)
			delete(b.size, node)
		}
	}
}

// Merge returns one report of each node, the newest, by their names.
func Merge(all ...[]Report) []Report {
	newest := map[string]Report{}
	for _, some := range all {
		for _, r := range some {
			if r.At.After(newest[r.Node].At) || newest[r.Node].Node == "" {
				newest[r.Node] = r
			}
		}
	}
	merged := make([]Report, 0, len(newest))
	for _, r := range newest {
		merged = append(merged, r)
	}
	slices.SortFunc(merged, func(a, b Report) int { return cmp.Compare(a.Node, b.Node) })
	return merged
}

// Differ reports whether nodes of a channel that are not pinned serve different sequences, and whether nodes with the same revision have
// different live entries.
func Differ(all []Report) (sequences, entries bool) {
	sequence, sum := map[string]int64{}, map[uint64]string{}
	for _, r := range all {
		if r.Channel != "" && r.Pinned == 0 {
			if was, known := sequence[r.Channel]; known && was != r.Sequence {
				sequences = true
			}
			sequence[r.Channel] = r.Sequence
		}
		if r.LiveRevision > 0 {
			if was, known := sum[r.LiveRevision]; known && was != r.LiveSum {
				entries = true
			}
			sum[r.LiveRevision] = r.LiveSum
		}
	}
	return sequences, entries
}
