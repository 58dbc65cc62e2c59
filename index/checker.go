package index

import (
	"cmp"
	"maps"
	"slices"

	"blockd/bloom"
	"blockd/pattern"
)

// checker decodes pages and holds them against hash, filter, directory and list
// table. It is for one goroutine.
type checker struct {
	*directory
	rows   int           // of the list table
	filter *bloom.Filter // nil: keys go to later, and the filter is asked by others
	later  func(keys []bloom.Hash) error
	total  census // of what was checked
	n      int
	keys   [bloom.BatchSize]bloom.Hash // that the filter was not yet asked for
	err    error                       // of later
}

// partition walks from each page of a partition, whose pages these are, along its
// overflow pages, each of which must belong to one page.
func (c *checker) partition(i int, pages []byte) error {
	p := c.parts[i]
	overflow := uint32(0)
	for n := range uint64(p.pages) {
		at, last := n, -1
		for hops := 0; ; hops++ {
			page := page(pages[at*pageSize:][:pageSize:pageSize])
			if err := c.sumPage(page, p.first+at); err != nil {
				return err
			}
			if !c.page(page, uint64(i), n, &last) {
				return cmp.Or(c.err, c.pageDamaged(p.first+at))
			}
			next := page.next()
			if next == 0 {
				break
			}
			if next > p.overflow || hops == maxOverflow {
				return corrupt(c.pageOffset(p.first+at), "page %d goes on at overflow page %d of %d", p.first+at, next, p.overflow)
			}
			overflow++
			at = uint64(p.pages) + uint64(next) - 1
		}
	}
	if overflow != p.overflow {
		return corrupt(c.pageOffset(p.first), "partition %d uses %d overflow pages of %d", i, overflow, p.overflow)
	}
	if !c.asked() {
		return cmp.Or(c.err, corrupt(c.pageOffset(p.first), "partition %d has keys that the filter lacks", i))
	}
	return nil
}

// page decodes all records of a page, which must be where their hash says, in order
// of their tags, behind the slots and one behind the other.
func (c *checker) page(page page, partition, primary uint64, lastTag *int) bool {
	if !page.fits() {
		return false
	}
	pages := uint64(c.parts[partition].pages)
	n := page.records()
	end := slotsEnd(n)
	for i := range n {
		tag, at := int(page.tag(i)), page.offset(i)
		if tag < *lastTag || at < end || at >= pageSize {
			return false
		}
		*lastTag = tag
		key, size := c.usual(page[at:])
		sources := 1
		if size == 0 {
			if key, sources, size = c.record(page[at:]); size == 0 {
				return false
			}
		}
		h := c.hash.sum(key)
		if uint16(h.Hi) != uint16(tag) || h.Hi>>(64-c.shift) != partition || pageOf(h.Hi, c.shift, pages) != primary {
			return false
		}
		if !c.total.note(key) || !c.ask(h) {
			return false
		}
		c.total.keys++
		c.total.entries += uint64(sources)
		end = at + size
	}
	return true
}

// record decodes the record that b begins with. size is 0 if it is none.
func (c *checker) record(b []byte) (key []byte, sources, size int) {
	reasons := c.sections[secReasons].items
	r := cursor{rest: b}
	key = r.key()
	sources, _ = r.sources()
	for range sources {
		e := r.entry()
		if e.row >= c.rows || e.reason != 0 && uint64(e.reason) > reasons {
			return nil, 0, 0
		}
	}
	size = len(b) - len(r.rest)
	if r.bad || size > maxRecord {
		return nil, 0, 0
	}
	return key, sources, size
}

// usual is record for what nearly all records are: a key of less than 128 octets
// with one entry, which has neither a reason nor an expiry. size is 0 for others.
// It takes a fifth of the time.
func (c *checker) usual(b []byte) (key []byte, size int) {
	n := int(b[0])
	if n == 0 || n >= 0x80 || len(b) < n+5 || b[n+1] != 1 || b[n+2] >= 0x80 || int(b[n+2]) >= c.rows {
		return nil, 0
	}
	p := n + 3
	for b[p] >= 0x80 { // the line, below 2^56
		if p++; p == len(b)-1 || p == n+10 {
			return nil, 0
		}
	}
	if p++; b[p]&^(flagsKnown&^(flagReason|flagExpiry)) != 0 {
		return nil, 0
	}
	return b[1 : 1+n], p + 1
}

// ask asks the filter for h, sooner or later. False: it lacks a key.
func (c *checker) ask(h bloom.Hash) bool {
	c.keys[c.n] = h
	c.n++
	return c.n < len(c.keys) || c.asked()
}

// asked asks for what ask has put off.
func (c *checker) asked() bool {
	keys := c.keys[:c.n]
	c.n = 0
	switch {
	case c.filter == nil:
		c.err = c.later(keys)
		return c.err == nil
	case len(keys) == 0:
		return true
	}
	return c.filter.HasBatch(keys) == uint32(1<<len(keys)-1)
}

// census counts the keys of a store, and collects what has tables of its own.
type census struct {
	keys, entries uint64
	nets          netCounts
	patterns      []string // their keys
}

// note takes in what a key is, and is false for one that begins like a network's or a
// pattern's and is none. It does not count the key.
func (c *census) note(key []byte) bool {
	if len(key) == 0 || key[0] >= ' ' {
		return true
	}
	if key[0] == tagGlob || key[0] == tagRegexp {
		c.patterns = append(c.patterns, string(key))
		return true
	}
	c.nets.note(key)
	_, ok := netOf(string(key))
	return ok
}

func (c *census) add(o census) {
	c.keys += o.keys
	c.entries += o.entries
	c.nets.add(o.nets)
	c.patterns = append(c.patterns, o.patterns...)
}

// holds holds the header's counts, and the tables of networks and patterns, against
// what the pages have.
func (c *contents) holds(total census) error {
	if total.keys != c.keys || total.entries != c.entries {
		return corrupt(64, "store has %d keys with %d entries, the header %d with %d",
			total.keys, total.entries, c.keys, c.entries)
	}
	if !maps.Equal(total.nets, c.networks.counts) {
		return corrupt(c.sections[secNetworks].offset, "store has networks of other lengths than the table of them")
	}
	slices.Sort(total.patterns)
	if !slices.EqualFunc(total.patterns, c.patterns, func(key string, p pattern.Stored) bool {
		return key[0] == byte(p.Kind) && key[1:] == p.Text
	}) {
		return corrupt(c.sections[secPatterns].offset, "store has other patterns than the table of them")
	}
	return nil
}
