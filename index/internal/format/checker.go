package format

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"blockd/bloom"
	"blockd/lists/pattern"
	"blockd/mail/digest"
)

// Checker decodes pages and holds them against hash, filter, directory and list
// table. It is for one goroutine.
type Checker struct {
	*Directory
	Rows   int           // of the list table
	Filter *bloom.Filter // nil: keys go to Later, and the filter is asked by others
	Later  func(keys []bloom.Hash) error
	Total  Census // of what was checked
	n      int
	keys   [bloom.BatchSize]bloom.Hash // that the filter was not yet asked for
	err    error                       // of Later
}

// Partition walks from each page of a partition, whose pages these are, along its
// overflow pages, each of which must belong to one page.
func (c *Checker) Partition(i int, pages []byte) error {
	p := c.Parts[i]
	overflow := uint32(0)
	for n := range uint64(p.Pages) {
		at, last := n, -1
		for hops := 0; ; hops++ {
			page := Page(pages[at*PageSize:][:PageSize:PageSize])
			if err := c.SumPage(page, p.First+at); err != nil {
				return err
			}
			if !c.page(page, uint64(i), n, &last) {
				return cmp.Or(c.err, c.PageDamaged(p.First+at))
			}
			next := page.Next()
			if next == 0 {
				break
			}
			if next > p.Overflow || hops == MaxOverflow {
				return Corrupt(c.PageOffset(p.First+at), "page %d goes on at overflow page %d of %d", p.First+at, next, p.Overflow)
			}
			overflow++
			at = uint64(p.Pages) + uint64(next) - 1
		}
	}
	if overflow != p.Overflow {
		return Corrupt(c.PageOffset(p.First), "partition %d uses %d overflow pages of %d", i, overflow, p.Overflow)
	}
	if !c.asked() {
		return cmp.Or(c.err, Corrupt(c.PageOffset(p.First), "partition %d has keys that the filter lacks", i))
	}
	return nil
}

// page decodes all records of a page, which must be where their hash says, in order
// of their tags, behind the slots and one behind the other.
func (c *Checker) page(page Page, partition, primary uint64, lastTag *int) bool {
	if !page.Fits() {
		return false
	}
	pages := uint64(c.Parts[partition].Pages)
	n := page.Records()
	end := SlotsEnd(n)
	for i := range n {
		tag, at := int(page.tag(i)), page.Offset(i)
		if tag < *lastTag || at < end || at >= PageSize {
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
		h := c.Hash.Sum(key)
		if uint16(h.Hi) != uint16(tag) || h.Hi>>(64-c.Shift) != partition || PageOf(h.Hi, c.Shift, pages) != primary {
			return false
		}
		if !c.Total.Note(key, sources) || !c.ask(h) {
			return false
		}
		c.Total.Keys++
		c.Total.Entries += uint64(sources)
		end = at + size
	}
	return true
}

// record decodes the record that b begins with. size is 0 if it is none.
func (c *Checker) record(b []byte) (key []byte, sources, size int) {
	reasons := c.Sections[SecReasons].Items
	r := Cursor{Rest: b}
	key = r.Key()
	sources, _ = r.Sources()
	for range sources {
		e := r.Entry()
		if e.Row >= c.Rows || e.Reason != 0 && uint64(e.Reason) > reasons {
			return nil, 0, 0
		}
	}
	size = len(b) - len(r.Rest)
	if r.Bad || size > maxRecord {
		return nil, 0, 0
	}
	return key, sources, size
}

// usual is record for what nearly all records are: a key of less than 128 octets
// with one entry, which has neither a reason nor an expiry. size is 0 for others.
// It takes a fifth of the time.
func (c *Checker) usual(b []byte) (key []byte, size int) {
	n := int(b[0])
	if n == 0 || n >= 0x80 || len(b) < n+5 || b[n+1] != 1 || b[n+2] >= 0x80 || int(b[n+2]) >= c.Rows {
		return nil, 0
	}
	p := n + 3
	for b[p] >= 0x80 { // the line, below 2^56
		if p++; p == len(b)-1 || p == n+10 {
			return nil, 0
		}
	}
	if p++; b[p]&^(flagsKnown&^(FlagReason|FlagExpiry)) != 0 {
		return nil, 0
	}
	return b[1 : 1+n], p + 1
}

// ask asks the filter for h, sooner or later. False: it lacks a key.
func (c *Checker) ask(h bloom.Hash) bool {
	c.keys[c.n] = h
	c.n++
	return c.n < len(c.keys) || c.asked()
}

// asked asks for what ask has put off.
func (c *Checker) asked() bool {
	keys := c.keys[:c.n]
	c.n = 0
	switch {
	case c.Filter == nil:
		c.err = c.Later(keys)
		return c.err == nil
	case len(keys) == 0:
		return true
	}
	return c.Filter.HasBatch(keys) == uint32(1<<len(keys)-1)
}

// Census counts the keys of a store, and collects what has tables of its own.
type Census struct {
	Keys, Entries uint64
	Nets          NetCounts
	Digests       DigestCounts
	Owners        OwnerCount
	OwnerMask     OwnerMask
	Patterns      []string // their keys
}

// Note takes in what a key with so many entries is, and is false for one that begins like a network's, a
// pattern's or a digest's and is none. It does not count the key.
func (c *Census) Note(key []byte, entries int) bool {
	if len(key) == 0 || key[0] >= ' ' {
		return true
	}
	if key[0] == TagGlob || key[0] == TagRegexp {
		c.Patterns = append(c.Patterns, string(key))
		return true
	}
	if IsPersonal(key) {
		mask, ok := maskOf(key)
		if c.OwnerMask |= mask; IsOwner(key) {
			c.Owners.Keys++
			c.Owners.Entries += uint64(entries)
		}
		return ok
	}
	if IsDigest(key) {
		c.Digests.note(key, entries)
		return true
	}
	c.Nets.Note(key)
	_, ok := NetOf(string(key))
	return ok
}

// Add takes in what another goroutine has counted.
func (c *Census) Add(o Census) {
	c.Keys += o.Keys
	c.Entries += o.Entries
	c.Nets.add(o.Nets)
	c.Digests.Add(o.Digests)
	c.Owners.Keys += o.Owners.Keys
	c.Owners.Entries += o.Owners.Entries
	c.OwnerMask |= o.OwnerMask
	c.Patterns = append(c.Patterns, o.Patterns...)
}

// Holds holds the header's counts, and the tables of networks and patterns, against
// what the pages have.
func (c *Contents) Holds(total Census) error {
	if total.Keys != c.Keys || total.Entries != c.Entries {
		return Corrupt(64, "store has %d keys with %d entries, the header %d with %d",
			total.Keys, total.Entries, c.Keys, c.Entries)
	}
	if total.Owners.Keys != uint64(c.Owners) || total.OwnerMask&^c.OwnerMask != 0 || total.Owners.Keys != total.Owners.Entries {
		return Corrupt(58, "store has %d owners of the kinds %d, the header %d of %d", total.Owners.Keys, total.OwnerMask, c.Owners, c.OwnerMask)
	}
	if !maps.Equal(total.Nets, c.Networks.Counts) {
		return Corrupt(c.Sections[SecNetworks].Offset, "store has networks of other lengths than the table of them")
	}
	for a := range digest.Set(math.MaxUint8).All() {
		if _, can := c.Digests[a]; total.Digests[a] != c.Digests[a] || total.Digests[a].Keys > 0 && !can {
			return Corrupt(c.Sections[SecDigests].Offset, "store has %v keys and entries for digests by %v, the table of them %v", total.Digests[a], a, c.Digests[a])
		}
	}
	slices.Sort(total.Patterns)
	if !slices.EqualFunc(total.Patterns, c.Patterns, func(key string, p pattern.Stored) bool {
		return key[0] == byte(p.Kind) && key[1:] == p.Text
	}) {
		return Corrupt(c.Sections[SecPatterns].Offset, "store has other patterns than the table of them")
	}
	return nil
}
