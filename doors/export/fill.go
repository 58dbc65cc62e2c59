package export

import (
	"context"
	"slices"

	"github.com/zeebo/xxh3"

	"blockd/bloom/filter"
)

// Filled is a filter that has the keys of lists.
type Filled struct {
	Filter   filter.Filter
	Keys     int  // distinct ones; to within 1 % if About
	About    bool // there are more than a million
	Patterns int  // that are left out, see Keys
}

// Fill makes a filter of the keys that Keys gives. sized makes it, empty, for n keys. The
// entries are walked over twice, for the first walk counts; Progress is called in both.
func (j Job) Fill(ctx context.Context, want KeyKinds, funnel filter.Funnel, sized func(n uint64) (filter.Filter, error)) (f Filled, err error) {
	var keys distinct
	if f.Patterns, err = j.Keys(ctx, want, keys.add); err != nil {
		return f, err
	}
	f.Keys, f.About = keys.count(), keys.level > 0
	keys = distinct{}
	if f.Filter, err = sized(uint64(f.Keys)); err != nil {
		return f, err
	}
	var octets []byte
	var bad error
	_, err = j.Keys(ctx, want, func(key string) {
		var err error
		if octets, err = funnel(octets[:0], key); err != nil && bad == nil {
			bad = err
		}
		f.Filter.Add(octets)
	})
	if err == nil {
		err = bad
	}
	return f, err
}

// distinct counts different keys by their hashes, in 16 MiB: up to a million exactly. When there
// are more it keeps every second hash, every fourth and so on, by their last bits, and counts
// with a standard deviation of 0.1 % (Flajolet, On adaptive sampling, 1990).
type distinct struct {
	hashes []uint64
	level  int // hashes end with as many zero bits
}

const exactKeys = 1 << 20

func (d *distinct) add(key string) {
	h := xxh3.HashString(key)
	if h&(1<<d.level-1) != 0 {
		return
	}
	if d.hashes = append(d.hashes, h); len(d.hashes) < 2*exactKeys {
		return
	}
	for d.compact(); len(d.hashes) > exactKeys; {
		d.level++
		d.hashes = slices.DeleteFunc(d.hashes, func(h uint64) bool { return h&(1<<d.level-1) != 0 })
	}
}

func (d *distinct) compact() {
	slices.Sort(d.hashes)
	d.hashes = slices.Compact(d.hashes)
}

func (d *distinct) count() int {
	d.compact()
	return len(d.hashes) << d.level
}
