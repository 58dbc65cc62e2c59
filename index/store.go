package index

import (
	"fmt"
	"sync/atomic"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/mail/addr"
)

// suspect is a key of a sender that the filter says is perhaps in the store.
type suspect struct {
	hash    bloom.Hash
	key     addr.Key
	own     bool // the sender's own domain, not a parent of it
	sender  int  // its place among several
	matches int  // that confirm has appended for it
}

// confirm asks the store for suspects and appends their matches to dst in order.
// After an error dst has none of some of them. It is quick for suspects whose pages
// are fetched already: see fetchPage.
func (ix *Index) confirm(dst []Match, suspects []suspect, now int64) ([]Match, error) {
	err := ix.mapping.guarded(func() (err error) {
		dst, err = ix.settle(dst, suspects, now)
		return err
	})
	return dst, ix.unreadable(err)
}

// settle is confirm without guard.
func (ix *Index) settle(dst []Match, suspects []suspect, now int64) ([]Match, error) {
	falsePositives := uint64(0)
	for i := range suspects {
		s := &suspects[i]
		s.matches = 0
		c, found, err := ix.find(s.hash, s.key.Text)
		if err != nil {
			return dst, err
		}
		if !found {
			falsePositives++
			continue
		}
		before := len(dst)
		m := Match{Kind: format.KeyKind(s.key.Kind), Key: s.key}
		for _, scopes := range rank(s.key.Kind, s.own) {
			if dst, err = ix.appendMatches(dst, c, m, scopes, now); err != nil {
				return dst, err
			}
		}
		s.matches = len(dst) - before
	}
	if falsePositives > 0 {
		ix.falsePositives.Add(falsePositives)
	}
	return dst, nil
}

// unreadable makes of what went wrong in the mapping the error of a look-up.
func (ix *Index) unreadable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w %s: %w", ErrRead, ix.mapping.name, err)
}

// find looks for the record of key, whose hash is h. The cursor stands behind
// the record's key. It reads one page, and for one key in a thousand two.
func (ix *Index) find(h bloom.Hash, key string) (record, bool, error) {
	return ix.findWhere(h, func(stored []byte) bool { return string(stored) == key })
}

// findWhere is find for the first key of this hash that is what is wanted.
func (ix *Index) findWhere(h bloom.Hash, wanted func(key []byte) bool) (record, bool, error) {
	if ix.overlay != nil {
		if r, listed, known := ix.overlay.find(h, wanted); known {
			return r, listed, nil
		}
	}
	number, p := ix.file.FirstPage(h)
	if p.Pages == 0 {
		return record{}, false, nil
	}
	for hops := 0; ; hops++ {
		page, err := ix.page(number)
		if err != nil {
			return record{}, false, err
		}
		c, found, more := page.Find(uint16(h.Hi), wanted)
		next := page.Next()
		switch {
		case c.Bad, more && (next > p.Overflow || next > 0 && hops == format.MaxOverflow):
			return record{}, false, ix.file.PageDamaged(number)
		case found:
			return record{Cursor: c}, true, nil
		case !more || next == 0:
			return record{}, false, nil
		}
		number = p.First + uint64(p.Pages) + uint64(next) - 1
	}
}

// page returns a page whose sum is right: summed now or at an earlier touch.
// The directory's check has seen that number is one of the store's.
func (ix *Index) page(number uint64) (format.Page, error) {
	page := format.Page(ix.pages[number*format.PageSize:][:format.PageSize:format.PageSize])
	word, bit := &ix.summed[number/64], uint64(1)<<(number%64)
	if atomic.LoadUint64(word)&bit == 0 {
		if err := ix.file.SumPage(page, number); err != nil {
			return nil, err
		}
		atomic.OrUint64(word, bit)
	}
	return page, nil
}
