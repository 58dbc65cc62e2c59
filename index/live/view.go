package live

import (
	"iter"
	"runtime"
	"slices"
	"sync/atomic"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/mail/digest"
)

// view is what look-ups see: the snapshot, what has changed since, and one generation of the index.
// Only delta and what counts change, and only by the holder of Set.writing.
type view struct {
	base    *snapshot // nil: nothing
	delta   *table    // the changes since base, with what is gone
	owned   *owned    // the changes since base of entries with owners
	digests *table    // the addresses of delta by their digests
	hashes  digest.Set

	generation string
	upTo       uint64           // this generation has the entries up to this number
	fresh      atomic.Int64     // number of entries that this generation lacks
	lists      []index.ListInfo // the table of this generation, followed by a row for live entries
}

// newView returns the view of a snapshot and the changes since.
func newView(base *snapshot, changes []*Entry, hashes digest.Set) *view {
	v := &view{base: base, delta: newTable(), owned: &owned{all: map[string]*ownedBy{}}, digests: newTable(), hashes: hashes}
	for _, e := range changes {
		v.set(e)
	}
	v.fresh.Store(int64(v.count(0)))
	return v
}

// serving returns a view of the same entries for a generation that has those up to a number.
func (v *view) serving(generation string, upTo uint64, lists []index.ListInfo) *view {
	n := &view{base: v.base, delta: v.delta, owned: v.owned, digests: v.digests, hashes: v.hashes, generation: generation, upTo: upTo, lists: lists}
	n.fresh.Store(int64(n.count(upTo)))
	return n
}

// all returns the number of entries, with those that have owners.
func (v *view) all() (n int) {
	if v.base != nil {
		n = v.base.count
	}
	for e := range v.delta.all() {
		if v.base.at(e.identity()) >= 0 {
			n--
		}
		if !e.gone {
			n++
		}
	}
	return n
}

// count returns the number of entries that the index has to know of and that one with those up to a number lacks, and of those
// that no index has.
func (v *view) count(number uint64) (n int) {
	first := v.base.newerThan(number)
	if v.base != nil {
		n = v.base.count - first
		if v.base.hasProved() {
			for i := range first {
				if v.base.proved(i) {
					n++
				}
			}
		}
		if v.base.kinds&(1<<personalKinds) != 0 {
			for i := first; i < v.base.count; i++ {
				if v.base.personal(i) {
					n--
				}
			}
		}
	}
	for e := range v.delta.all() {
		if e.Item.Personal() {
			continue
		}
		if i := v.base.at(e.identity()); i >= 0 && (i >= first || v.base.proved(i)) {
			n--
		}
		if !e.gone && e.newTo(number) {
			n++
		}
	}
	return n
}

// get returns the entry with an identity, or nil.
func (v *view) get(id identity) *Entry {
	if e := v.delta.get(id); e != nil {
		if e.gone {
			return nil
		}
		return e
	}
	if i := v.base.at(id); i >= 0 {
		return v.base.entry(i)
	}
	return nil
}

// set makes look-ups see an entry, or that one is gone.
func (v *view) set(e *Entry) {
	v.changeOwned(e)
	if v.hashes != 0 && kindCode(&e.Item) == addressCode && e.Item.Owner.Text == "" {
		entries := []*Entry{e} // an address has one scope, so one entry
		if e.gone {
			entries = nil
		}
		for text := range digest.Texts(e.key) {
			for a := range v.hashes.All() {
				key := digestKey(digest.Of(a, text))
				if len(entries) > 0 || len(v.digests.entries(key)) > 0 {
					v.digests.put(key, entries, nil)
				}
			}
		}
	}
	v.delta.set(e)
}

// sorted returns the changes since the snapshot in the order of their numbers.
func (v *view) sorted() []*Entry {
	return slices.SortedFunc(v.delta.all(), byNumber)
}

// overruled reports whether the record i of the snapshot has changed since.
func (v *view) overruled(i int) bool {
	defer runtime.KeepAlive(v)
	return v.delta.get(identity{string(v.base.keyOf(i)), v.base.scope(i)}) != nil
}

// lookup is what one look-up searches.
type lookup struct {
	base  *snapshot // nil: it is not searched
	delta *table
	body  *tableBody // of delta; nil: it is empty
}

// lookupIn returns what a look-up in a generation has to search; ok is false if nothing.
func (v *view) lookupIn(generation string) (l lookup, ok bool) {
	if v.generation == generation {
		if v.fresh.Load() == 0 {
			return l, false
		}
		if v.base != nil && (v.base.last > v.upTo || v.base.hasProved()) {
			l.base = v.base
		}
	} else {
		l.base = v.base
	}
	if l.base != nil && l.base.count == 0 {
		l.base = nil
	}
	l.delta, l.body = v.delta, v.delta.body.Load()
	return l, l.base != nil || l.body != nil
}

// has reports whether there are, or were, keys of this kind.
func (l *lookup) has(k addr.Kind) bool {
	return l.body != nil && l.body.has(k) || l.base != nil && l.base.kinds&(1<<k) != 0
}

// prefixes returns the word of the lengths of networks of a family.
func (l *lookup) prefixes(family, word int) (set uint64) {
	if l.body != nil {
		set = l.body.lengths[family][word].Load()
	}
	if l.base != nil {
		set |= l.base.lengths[family][word]
	}
	return set
}

// find appends the entries of a key.
func (l *lookup) find(found []*Entry, key string) []*Entry {
	if l.body != nil {
		for _, e := range l.delta.find(l.body, key) {
			if !e.gone {
				found = append(found, e)
			}
		}
	}
	if l.base == nil {
		return found
	}
	var room [len(scopeCodes)]int
	for _, i := range l.base.find(room[:0], key) {
		if l.body == nil || l.delta.get(identity{key, l.base.scope(i)}) == nil {
			found = append(found, l.base.entry(i))
		}
	}
	return found
}

// items returns what an index has to know of the entries as they are now, in the order of their numbers.
func (v *view) items() iter.Seq[lists.Item] {
	changes := v.sorted()
	return func(yield func(lists.Item) bool) {
		if v.base != nil {
			changed := v.base.changedBy(changes)
			for i := range v.base.count {
				if !changed.has(i) && !v.base.personal(i) && !v.base.proved(i) && !yield(v.base.item(i)) {
					return
				}
			}
		}
		for _, e := range changes {
			if !e.gone && !e.Item.Personal() && !e.NeedsProof && !yield(e.Item) {
				return
			}
		}
	}
}

// marks is a set of records.
type marks []uint64

func (m marks) has(i int) bool { return m[i/64]&(1<<(i%64)) != 0 }

// changedBy returns the records that changes have replaced or removed.
func (s *snapshot) changedBy(changes []*Entry) marks {
	m := make(marks, s.count/64+1)
	for _, e := range changes {
		if i := s.at(e.identity()); i >= 0 {
			m[i/64] |= 1 << (i % 64)
		}
	}
	return m
}
