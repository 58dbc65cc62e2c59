package index

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"blockd/addr"
	"blockd/bloom"
	"blockd/lists"
)

// Match is one entry that covers a sender. It holds copies only, nothing of the
// mapping.
type Match struct {
	Row    int      // of Lists(): which source
	Key    addr.Key // the entry; its text is the sender's own memory
	Scope  lists.Scope
	Action lists.Action
	Line   int
	Reason string
}

// kindBit is the bit of a key's kind in the header's mask: 0 addresses, 1
// local-parts, 1+k domains of k labels up to 61, 63 longer ones.
func kindBit(k addr.Key) uint64 {
	switch {
	case k.Kind == addr.Address:
		return 1
	case k.Kind == addr.Local:
		return 2
	case k.Labels <= 61:
		return 1 << (1 + k.Labels)
	}
	return 1 << 63
}

// reach is the set of scopes, a bit each, in which an entry covers a sender that
// has its key: as own name, or as a parent of the sender's domain.
func reach(kind addr.Kind, own bool) uint8 {
	switch {
	case kind == addr.Address:
		return 1 << lists.Exact
	case kind == addr.Local:
		return 1 << lists.Local
	case own:
		return 1<<lists.Exact | 1<<lists.Tree
	}
	return 1<<lists.Sub | 1<<lists.Tree
}

// usualKeys are enough for an address, its local-part and a domain of ten
// labels. Room for all 129 keys is three KiB, whose clearing costs as much as a
// look-up, so only senders that need it pay for it.
const usualKeys = 12

// Lookup appends to dst every entry that covers a, and that has not expired at
// now, the most specific first: address, exact name, longest sub or tree name,
// local-part; between equally specific ones in the order of Lists. It does not
// allocate when nothing matches. An error (wrapping ErrRead) means that the
// store could not be read: the sender is then neither listed nor clear.
func (ix *Index) Lookup(dst []Match, a addr.Addr, now time.Time) ([]Match, error) {
	if strings.Count(a.Domain(), ".") > usualKeys-3 {
		var keys [addr.MaxKeys]addr.Key
		return ix.lookup(dst, a.Keys(keys[:0]), now.Unix())
	}
	var keys [usualKeys]addr.Key
	return ix.lookup(dst, a.Keys(keys[:0]), now.Unix())
}

// lookup asks for the keys of one sender, as addr gives them.
func (ix *Index) lookup(dst []Match, keys []addr.Key, now int64) ([]Match, error) {
	// Local-parts are the least specific of all: they go to the end.
	if len(keys) > 1 && keys[1].Kind == addr.Local {
		local := keys[1]
		copy(keys[1:], keys[2:])
		keys[len(keys)-1] = local
	}
	own := 0 // the sender's own domain, if any
	for own < len(keys) && keys[own].Kind != addr.Domain {
		own++
	}
	found, asked := len(dst), uint64(0)
	var b batch
	for i := range keys {
		if ix.head.kinds&kindBit(keys[i]) != 0 { // else no list holds such keys
			b.hashes[b.n], b.keys[b.n] = ix.head.hash.sumString(keys[i].Text), uint8(i)
			b.n++
		}
		if b.n < bloom.BatchSize && i < len(keys)-1 {
			continue
		}
		if perhaps := ix.filter.HasBatch(b.hashes[:b.n]); perhaps != 0 {
			var err error
			if dst, err = ix.confirm(dst, keys, own, &b, perhaps, now); err != nil {
				return dst[:found], err
			}
		}
		asked += uint64(b.n)
		b.n = 0
	}
	if asked > 0 {
		ix.asked.Add(asked)
	}
	runtime.KeepAlive(ix) // else the mapping may go while the last page is read
	return dst, nil
}

// batch is what the filter is asked at once: hashes, and which of the sender's
// keys each belongs to.
type batch struct {
	n      int
	hashes [bloom.BatchSize]bloom.Hash
	keys   [bloom.BatchSize]uint8 // below addr.MaxKeys
}

// confirm asks the store for the keys of b that are perhaps there.
func (ix *Index) confirm(dst []Match, keys []addr.Key, own int, b *batch, perhaps uint32, now int64) ([]Match, error) {
	err := ix.mapping.guarded(func() error {
		for ; perhaps != 0; perhaps &= perhaps - 1 {
			i := bits.TrailingZeros32(perhaps)
			key := int(b.keys[i])
			c, found, err := ix.find(b.hashes[i], keys[key].Text)
			if err != nil {
				return err
			}
			if !found {
				ix.falsePositives.Add(1)
				continue
			}
			for _, scopes := range rank(keys[key].Kind, key == own) {
				if dst, err = ix.appendMatches(dst, c, keys[key], scopes, now); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%w %s: %w", ErrRead, ix.mapping.name, err)
	}
	return dst, err
}

// rank orders the scopes of reach: an exact name is more specific than the same
// name as a tree, while sub and tree of a parent are equally so.
func rank(kind addr.Kind, own bool) [2]uint8 {
	scopes := reach(kind, own)
	return [2]uint8{scopes & (1 << lists.Exact), scopes &^ (1 << lists.Exact)}
}

// appendMatches appends the entries of the record at c whose scope is in scopes.
func (ix *Index) appendMatches(dst []Match, c cursor, key addr.Key, scopes uint8, now int64) ([]Match, error) {
	if scopes == 0 {
		return dst, nil
	}
	n, _ := c.sources()
	for range n {
		e := c.entry()
		if e.row >= len(ix.lists) {
			c.fail()
		}
		if c.bad || scopes&(1<<e.scope) == 0 || e.expiry != 0 && e.expiry <= now {
			continue
		}
		m := Match{Row: e.row, Key: key, Scope: e.scope, Action: e.action, Line: e.line}
		if e.reason != 0 {
			text, ok := reasonAt(ix.reasons, e.reason-1)
			if !ok {
				c.fail()
				continue
			}
			m.Reason = string(text)
		}
		dst = append(dst, m)
	}
	if c.bad {
		return dst, corrupt(ix.head.sections[secPages].offset, "record of %q does not hold together", key.Text)
	}
	return dst, nil
}

// find looks for the record of key, whose hash is h. The cursor stands behind
// the record's key. It reads one page, and for one key in a thousand two.
func (ix *Index) find(h bloom.Hash, key string) (cursor, bool, error) {
	p := ix.parts[h.Hi>>(64-ix.shift)]
	if p.pages == 0 {
		return cursor{}, false, nil
	}
	number := p.first + pageOf(h.Hi, ix.shift, uint64(p.pages))
	for hops := 0; ; hops++ {
		page, err := ix.page(number)
		if err != nil {
			return cursor{}, false, err
		}
		c, found, more := pageFind(page, uint16(h.Hi), key)
		next := pageNext(page)
		switch {
		case c.bad, more && (next > p.overflow || next > 0 && hops == maxOverflow):
			return cursor{}, false, corrupt(ix.pageOffset(number), "page %d does not hold together", number)
		case found:
			return c, true, nil
		case !more || next == 0:
			return cursor{}, false, nil
		}
		number = p.first + uint64(p.pages) + uint64(next) - 1
	}
}

// page returns a page whose sum is right: summed now or at an earlier touch.
// The directory's check has seen that number is one of the store's.
func (ix *Index) page(number uint64) ([]byte, error) {
	page := ix.pages[number*pageSize:][:pageSize:pageSize]
	word, bit := &ix.summed[number/64], uint64(1)<<(number%64)
	if atomic.LoadUint64(word)&bit == 0 {
		if err := ix.sumPage(page, number); err != nil {
			return nil, err
		}
		atomic.OrUint64(word, bit)
	}
	return page, nil
}

func (ix *Index) sumPage(page []byte, number uint64) error {
	want := binary.LittleEndian.Uint32(page)
	if sum := pageSum(page, ix.head.crcStart(), number); sum != want {
		return corrupt(ix.pageOffset(number), "page sum %08x, computed %08x", want, sum)
	}
	return nil
}

// pageOffset is where a page lies in the file.
func (ix *Index) pageOffset(number uint64) uint64 {
	return ix.head.sections[secPages].offset + number*pageSize
}
