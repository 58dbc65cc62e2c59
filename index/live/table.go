package live

import (
	"hash/maphash"
	"iter"
	"net/netip"
	"sync/atomic"

	"blockd/lists"
	"blockd/mail/addr"
)

// table finds entries by key. Any number of goroutines may look up while one changes it. They
// see the state before a change or after it, and take no lock. The zero table is ready once it
// has a seed.
//
// A look-up for a clear sender should cost one cache line a key, so a small filter comes
// first. Each cell has 16 bits of it, and each key sets one: 3 to 6 % of the bits are set.
type table struct {
	seed maphash.Seed
	body atomic.Pointer[tableBody] // nil: the table is empty

	// Only the writer uses these.
	held int // number of keys with entries
	used int // number of cells in use
}

// tableBody is a hash table with open addressing and linear probing. At most half of it is
// used.
type tableBody struct {
	cells   []atomic.Pointer[cell]
	filter  []atomic.Uint64
	kinds   atomic.Uint64    // a bit for each addr.Kind that is or was in the table
	lengths [2]prefixLengths // the prefix lengths of networks: IPv4 and IPv6
}

// prefixLengths is a set of numbers from 0 to 128.
type prefixLengths [3]atomic.Uint64

// cell is one key with its entries, one for each scope. A cell never changes. A removed key
// keeps its place, with a cell without entries.
type cell struct {
	hash    uint64
	key     string
	entries []*Entry
}

func newTable() *table { return &table{seed: maphash.MakeSeed()} }

// at returns the place of a hash's bit in the filter.
func (b *tableBody) at(hash uint64) (word int, bit uint64) {
	return int(hash >> 6 & uint64(len(b.filter)-1)), 1 << (hash & 63)
}

// find returns the entries of a key. The slice stays valid when the table changes.
func (t *table) find(b *tableBody, key string) []*Entry {
	hash := maphash.String(t.seed, key)
	if word, bit := b.at(hash); b.filter[word].Load()&bit == 0 {
		return nil
	}
	if c := b.cells[b.place(hash, key)].Load(); c != nil {
		return c.entries
	}
	return nil
}

// place returns the index of key's cell, or of the empty cell where key belongs. One always
// exists.
func (b *tableBody) place(hash uint64, key string) int {
	mask := len(b.cells) - 1
	i := int(hash>>20) & mask
	for {
		c := b.cells[i].Load()
		if c == nil || c.hash == hash && c.key == key {
			return i
		}
		i = (i + 1) & mask
	}
}

// set adds an entry. It replaces the one with the same identity.
func (t *table) set(e *Entry) {
	old := t.entries(e.key)
	entries := make([]*Entry, 0, len(old)+1)
	for _, o := range old {
		if o.Item.Scope != e.Item.Scope {
			entries = append(entries, o)
		}
	}
	t.put(e.key, append(entries, e), &e.Item)
}

// entries is find for the writer.
func (t *table) entries(key string) []*Entry {
	if b := t.body.Load(); b != nil {
		return t.find(b, key)
	}
	return nil
}

// all are the entries of the table, in no order. One that changes meanwhile is there as before or after.
func (t *table) all() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		b := t.body.Load()
		if b == nil {
			return
		}
		for i := range b.cells {
			if c := b.cells[i].Load(); c != nil {
				for _, e := range c.entries {
					if !yield(e) {
						return
					}
				}
			}
		}
	}
}

// get returns the entry with an identity, or nil.
func (t *table) get(id identity) *Entry {
	for _, e := range t.entries(id.key) {
		if e.Item.Scope == id.scope {
			return e
		}
	}
	return nil
}

// put sets the entries of key. item is one of them, or nil if there are none.
func (t *table) put(key string, entries []*Entry, item *lists.Item) {
	b := t.body.Load()
	if b == nil || 2*(t.used+1) > len(b.cells) {
		b = t.grow(b)
	}
	hash := maphash.String(t.seed, key)
	i := b.place(hash, key)
	switch old := b.cells[i].Load(); {
	case old == nil:
		t.used++
		t.held++
	case len(old.entries) == 0:
		t.held++
	}
	if len(entries) == 0 {
		t.held--
	}
	if item != nil {
		b.note(item)
		b.noteProof(entries)
	}
	b.cells[i].Store(&cell{hash, key, entries})
	word, bit := b.at(hash)
	b.filter[word].Or(bit) // last: a reader that sees it finds the cell
	if t.held == 0 {
		t.used = 0
		b = nil
	}
	t.body.Store(b)
}

// grow returns a copy of the keys that have entries, with room for as many again.
func (t *table) grow(old *tableBody) *tableBody {
	size := 64
	for size < 4*(t.held+1) {
		size *= 2
	}
	b := &tableBody{cells: make([]atomic.Pointer[cell], size), filter: make([]atomic.Uint64, size/4)}
	t.used = 0
	if old == nil {
		return b
	}
	for i := range old.cells {
		c := old.cells[i].Load()
		if c == nil || len(c.entries) == 0 {
			continue
		}
		b.cells[b.place(c.hash, c.key)].Store(c)
		word, bit := b.at(c.hash)
		b.filter[word].Or(bit)
		for _, e := range c.entries {
			b.note(&e.Item)
		}
		b.noteProof(c.entries)
		t.used++
	}
	return b
}

// note records the item's kind, so that look-ups search for such keys.
func (b *tableBody) note(it *lists.Item) {
	if it.Personal() {
		b.kinds.Or(1 << personalKinds)
		return
	}
	if it.Kind != lists.IP && it.Kind != lists.CIDR {
		b.kinds.Or(1 << it.Key.Kind)
		return
	}
	n := it.Net.Bits()
	b.lengths[family(it.Net.Addr())][n/64].Or(1 << (n % 64))
}

// noteProof records whether entries need proof.
func (b *tableBody) noteProof(entries []*Entry) {
	for _, e := range entries {
		if e.NeedsProof {
			b.kinds.Or(1 << provedKinds)
		}
	}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// has reports whether the table has, or had, keys of this kind.
func (b *tableBody) has(k addr.Kind) bool { return b.kinds.Load()&(1<<k) != 0 }

// keyOf returns the key of an item, or "" if it has none. For addresses and domains it is
// their text, for recipients after recipientOpen. For networks it is family, length and octets; it begins with a control
// character, which no text has.
func keyOf(it *lists.Item) string {
	switch it.Kind {
	case lists.Addr, lists.Domain:
		return it.Key.Text
	case lists.Recipient:
		return recipientOpen + it.Key.Text
	case lists.IP, lists.CIDR:
		var key [netKey]byte
		return string(appendNet(key[:0], it.Net))
	}
	return ""
}

const netKey = 2 + 16 // octets

func appendNet(b []byte, p netip.Prefix) []byte {
	if a := p.Addr(); a.Is4() {
		octets := a.As4()
		return append(append(b, 4, byte(p.Bits())), octets[:]...)
	}
	octets := p.Addr().As16()
	return append(append(b, 6, byte(p.Bits())), octets[:]...)
}
