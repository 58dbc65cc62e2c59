package live

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/zeebo/xxh3"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
)

// Entries that have an owner, or are about a recipient, are held like all others: by a key that begins with an octet which no
// other key does. They are in no list for a build, so look-ups always search the snapshot for them.

// The octets around an owner in a key. No text of a key has octets below 32.
const (
	ownerOpen  = "\x05"
	ownerClose = "\x01"
)

// recipientOpen begins the key of an entry about a recipient, after an owner if it has one.
const recipientOpen = "\x09"

// personalKinds is the bit of the kinds of keys that says that some are about recipients.
const personalKinds = 63

// personal reports whether a key is about recipients: it has an owner, or refuses a recipient. The index never has these.
func personal[T string | []byte](key T) bool {
	return len(key) > 0 && (key[0] == ownerOpen[0] || key[0] == recipientOpen[0])
}

// ErrOwnerFull is wrapped by the error of a change that would give an owner more than Settings.MaxPerOwner entries.
var ErrOwnerFull = errors.New("the owner has as many entries as one may have")

// ErrChanged is wrapped by the error of ApplyIf if the owner's entries are no longer those that the caller knows.
var ErrChanged = errors.New("the owner's entries have changed meanwhile")

// ownedKey is the key of an owner's entry; "" owner = everybody's.
func ownedKey(owner, key string) string {
	if owner == "" || key == "" {
		return key
	}
	return ownerOpen + owner + ownerClose + key
}

// cutOwned takes the owner off a key.
func cutOwned[T string | []byte](key T) (owner, rest T) {
	if len(key) == 0 || key[0] != ownerOpen[0] {
		return owner, key
	}
	for i := 1; i < len(key); i++ {
		if key[i] == ownerClose[0] {
			return key[1:i], key[i+1:]
		}
	}
	return key[1:], key[len(key):]
}

// place is the key under which a snapshot has the n-th entry of an owner. Its cells are spread: entries of one owner do
// not lie in each other's way.
func place(owner string, n int) string {
	return string(binary.AppendUvarint(append([]byte(ownerOpen+owner), 0), uint64(n)))
}

// nth appends the record of an owner's n-th entry; nothing = there is none. With a chance of 1 in 2^32 it appends another
// record of the owner too.
func (s *snapshot) nth(found []int, owner string, n int) []int {
	defer runtime.KeepAlive(s)
	begins := ownerOpen + owner + ownerClose
	for i := range cells(s.keys).with(xxh3.HashStringSeed(place(owner, n), s.seed)) {
		if i < s.count && bytes.HasPrefix(s.keyOf(i), []byte(begins)) {
			found = append(found, i)
		}
	}
	return found
}

// has reports whether an owner has an n-th entry.
func (s *snapshot) has(owner string, n int) bool {
	var room [4]int
	return len(s.nth(room[:0], owner, n)) > 0
}

// owned are the entries with owners that have changed since the snapshot, and how many an owner has.
type owned struct {
	mu  sync.Mutex
	all map[string]*ownedBy
}

// ownedBy is what has changed of one owner.
type ownedBy struct {
	count   int // of entries now
	changed map[identity]*Entry
}

// changeOwned takes a change. The view's other parts have not seen it yet.
func (v *view) changeOwned(e *Entry) {
	owner, _ := cutOwned(e.key)
	if owner == "" {
		return
	}
	v.owned.mu.Lock()
	defer v.owned.mu.Unlock()
	o := v.owned.all[owner]
	if o == nil {
		o = &ownedBy{count: v.base.countOf(owner), changed: map[identity]*Entry{}}
		v.owned.all[owner] = o
	}
	id := e.identity()
	was, known := o.changed[id]
	if known && !was.gone || !known && v.base.at(id) >= 0 {
		o.count--
	}
	if !e.gone {
		o.count++
	}
	o.changed[id] = e
}

// countOf returns how many entries of an owner a snapshot has.
func (s *snapshot) countOf(owner string) int {
	if s == nil || s.kinds&(1<<personalKinds) == 0 || !s.has(owner, 0) {
		return 0
	}
	has := 1 // double, and then close in
	for s.has(owner, has) {
		has *= 2
	}
	low, high := has/2, has // s has low, and not high
	for low+1 < high {
		if mid := (low + high) / 2; s.has(owner, mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low + 1
}

// countOf returns how many entries an owner has, with those that have ended since the last sweep.
func (v *view) countOf(owner string) int {
	v.owned.mu.Lock()
	defer v.owned.mu.Unlock()
	if o := v.owned.all[owner]; o != nil {
		return o.count
	}
	return v.base.countOf(owner)
}

// of returns the entries of an owner in force, the newest first.
func (v *view) of(owner string, now time.Time) (all []*Entry) {
	v.owned.mu.Lock()
	var changed map[identity]*Entry
	if o := v.owned.all[owner]; o != nil {
		changed = maps.Clone(o.changed)
	}
	v.owned.mu.Unlock()
	for _, e := range changed {
		if !e.gone && !e.expired(now.Unix()) {
			all = append(all, e)
		}
	}
	if v.base != nil && v.base.kinds&(1<<personalKinds) != 0 {
		var records []int
		for n, before := 0, -1; len(records) > before; n++ {
			before = len(records)
			records = v.base.nth(records, owner, n)
		}
		slices.Sort(records)
		for _, i := range slices.Compact(records) {
			if _, overruled := changed[identity{string(v.base.keyOf(i)), v.base.scope(i)}]; overruled {
				continue
			}
			if end := v.base.expiry(i); end == 0 || end > now.Unix() {
				all = append(all, v.base.entry(i))
			}
		}
	}
	slices.SortFunc(all, func(a, b *Entry) int { return cmp.Compare(b.Number, a.Number) })
	return all
}

// Of returns the entries in force of an owner (a key of addr.ParseOwner), the newest first, and a tag that changes when
// they do. It costs some memory for each of them. A nil Set has none.
func (s *Set) Of(owner addr.Key) (all []*Entry, tag string) {
	if s == nil {
		return nil, tagOf(nil)
	}
	all = s.view.Load().of(owner.Text, s.Now())
	return all, tagOf(all)
}

// tagOf says which entries these are, by their revisions, which are the same on all nodes of a fleet.
func tagOf(all []*Entry) string {
	revisions := make([]uint64, len(all))
	for i, e := range all {
		revisions[i] = e.Revision()
	}
	slices.Sort(revisions) // after a full read two nodes have them in different orders
	numbers := make([]byte, 0, 8*len(all))
	for _, r := range revisions {
		numbers = binary.LittleEndian.AppendUint64(numbers, r)
	}
	return fmt.Sprintf("%016x-%d", xxh3.Hash(numbers), len(all))
}

// ApplyIf is Apply for changes of one owner alone. They are made only if the owner's entries have the tag that Of gave; ""
// = any. The error wraps ErrChanged if not.
func (s *Set) ApplyIf(owner addr.Key, tag string, changes ...Change) ([]Outcome, error) {
	for _, c := range changes {
		if c.Owner != owner.Text {
			return nil, fmt.Errorf("%w: a change of another owner", ErrInvalid)
		}
	}
	return s.apply(&request{changes: changes, owner: owner.Text, tag: tag})
}

// unchanged reports whether an owner's entries, with what is staged, have a tag.
func (st *stage) unchanged(owner, tag string, now time.Time) bool {
	var all []*Entry
	for _, e := range st.set.view.Load().of(owner, now) {
		if _, changed := st.after[e.identity()]; !changed {
			all = append(all, e)
		}
	}
	for _, e := range st.after {
		if name, _ := cutOwned(e.key); name == owner && !e.gone && !e.expired(now.Unix()) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *Entry) int { return cmp.Compare(b.Number, a.Number) })
	return tagOf(all) == tag
}

// Personal reports whether there are, or were, entries with owners or about recipients. A nil Set has none. It takes no lock.
func (s *Set) Personal() bool {
	if s == nil {
		return false
	}
	v := s.view.Load()
	b := v.delta.body.Load()
	return b != nil && b.kinds.Load()&(1<<personalKinds) != 0 || v.base != nil && v.base.kinds&(1<<personalKinds) != 0
}

// AmendOwned adds, to the matches that ix has for a question, the live entries in force of its owners that cover the sender or refuse
// the recipient, and everybody's that refuse it, in the order of LookupOwned. One takes the place of a list's entry of the same owner about the same. The table is the
// one that Match.Row points into, with one row more if it has none for live entries.
//
// It allocates nothing if no live entry matches. A nil Set has none.
func (s *Set) AmendOwned(matches []index.Match, table []index.ListInfo, q *index.OwnedQuestion, now time.Time) ([]index.Match, []index.ListInfo) {
	if !s.Personal() {
		return matches, table
	}
	v := s.view.Load()
	var room [8]*Entry
	found := v.covering(room[:0], q)
	seconds := s.seconds(now)
	found = slices.DeleteFunc(found, func(e *Entry) bool { return e.expired(seconds) })
	if len(found) == 0 {
		return matches, table
	}
	row := slices.IndexFunc(table, func(l index.ListInfo) bool { return l.Source.List == ListName && l.Source.Path == s.folder })
	if row < 0 {
		row, table = len(table), withRow(table, s.folder)
	}
	amended := make([]index.Match, 0, len(matches)+len(found))
	rest := matches
	for i, owner := range append(q.Owners[:], addr.Key{}) { // everybody's come last
		if owner.Text == "" && i < len(q.Owners) {
			continue
		}
		begin := len(amended)
		for len(rest) > 0 && rest[0].Owner == owner {
			m := &rest[0]
			rest = rest[1:]
			id := identity{ownedKey(owner.Text, keyOf(&lists.Item{Kind: m.Kind, Key: m.Key})), m.Scope}
			if !slices.ContainsFunc(found, func(e *Entry) bool { return e.identity() == id }) {
				amended = append(amended, *m)
			}
		}
		for _, e := range found {
			if e.Item.Owner == owner {
				m := e.match(row)
				m.Owner = owner
				amended = append(amended, m)
			}
		}
		slices.SortStableFunc(amended[begin:], func(a, b index.Match) int { return a.Distance() - b.Distance() })
	}
	return append(amended, rest...), table
}

// longestOwned is room for the key of an owned entry: two addresses and the octets around them.
const longestOwned = 2*256 + 8

// covering appends the entries of owners that cover a sender or refuse the recipient, and everybody's that refuse it.
func (v *view) covering(found []*Entry, q *index.OwnedQuestion) []*Entry {
	l := lookup{base: v.base, delta: v.delta, body: v.delta.body.Load()}
	var room [addr.MaxKeys]addr.Key
	keys := q.Sender.Keys(room[:0])
	if q.Domain.Text != "" {
		keys = q.Domain.AndParents(keys)
	}
	var text [longestOwned]byte
	find := func(owner, mark, rest string) {
		key := text[:0]
		if owner != "" {
			key = append(append(append(key, ownerOpen...), owner...), ownerClose...)
		}
		key = append(append(key, mark...), rest...)
		found = l.find(found, unsafe.String(unsafe.SliceData(key), len(key))) // find keeps nothing of it
	}
	if q.Recipient.Text != "" {
		find("", recipientOpen, q.Recipient.Text)
	}
	for _, owner := range q.Owners {
		if owner.Text == "" {
			continue
		}
		if q.Recipient.Text != "" {
			find(owner.Text, recipientOpen, q.Recipient.Text)
		}
		own := true // the first domain is the sender's own
		for _, k := range keys {
			from := len(found)
			find(owner.Text, "", k.Text)
			kept := slices.DeleteFunc(found[from:], func(e *Entry) bool {
				return k.Kind == addr.Domain && e.Item.Scope != lists.Tree && own != (e.Item.Scope == lists.Exact)
			})
			found = found[:from+len(kept)]
			own = own && k.Kind != addr.Domain
		}
	}
	return found
}

// setOwner gives an item the owner of a change.
func setOwner(it *lists.Item, owner string) error {
	if owner == "" {
		return nil
	}
	if err := it.SetOwner(owner); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if strings.ContainsAny(it.Owner.Text, ownerOpen+ownerClose) {
		return fmt.Errorf("%w: no owner", ErrInvalid)
	}
	return nil
}

// Owned returns the entries in force of all owners, in no order, as they are when the iteration begins. It makes each as it goes, as All does.
func (s *Set) Owned() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		v, now := s.view.Load(), time.Now().Unix()
		changes := v.sorted()
		for _, e := range changes {
			if !e.gone && e.Item.Owner.Text != "" && !e.expired(now) && !yield(e) {
				return
			}
		}
		if v.base == nil || v.base.kinds&(1<<personalKinds) == 0 {
			return
		}
		changed := v.base.changedBy(changes)
		for i := range v.base.count {
			if changed.has(i) || !v.base.owned(i) {
				continue
			}
			if end := v.base.expiry(i); (end == 0 || end > now) && !yield(v.base.entry(i)) {
				return
			}
		}
	}
}
