package index

import (
	"cmp"
	"slices"

	"blockd/index/internal/format"
	"blockd/lists"
	"blockd/mail/addr"
)

// lookupPatterns appends the entries of all patterns that match an address, in the
// order of Lists and lines. Call it only where there are patterns.
func (ix *Index) lookupPatterns(dst []Match, address string, now int64) ([]Match, error) {
	var buf [16]int
	hits, err := ix.patterns.Match(buf[:0], address)
	if err != nil {
		return dst, ix.unreadable(format.Corrupt(ix.file.Sections[format.SecPatterns].Offset, "%v", err))
	}
	if len(hits) == 0 {
		return dst, nil
	}
	from := len(dst)
	err = ix.mapping.guarded(func() error {
		for _, i := range hits {
			p := ix.patterns.Stored(i)
			key := string(byte(p.Kind)) + p.Text
			c, found, err := ix.find(ix.file.Hash.SumString(key), key)
			if err != nil {
				return err
			}
			if !found {
				return format.Corrupt(ix.file.Sections[format.SecPatterns].Offset, "pattern %d is not in the store", i)
			}
			kind, name, _ := format.PatternOf(key)
			if dst, err = ix.appendMatches(dst, c, Match{Kind: kind, Pattern: name}, 1<<lists.Exact, now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return dst[:from], ix.unreadable(err)
	}
	slices.SortStableFunc(dst[from:], func(a, b Match) int {
		return cmp.Or(cmp.Compare(a.Row, b.Row), cmp.Compare(a.Line, b.Line))
	})
	return dst, nil
}

// batchPatterns adds the entries of patterns to those that b has of each sender.
func (ix *Index) batchPatterns(b *Batch, senders []addr.Addr, now int64) {
	all, begin := b.spare[:0], 0
	for i := range b.answers {
		a := &b.answers[i]
		from := len(all)
		all = append(all, b.matches[begin:a.end]...)
		begin = a.end
		if key, ok := senders[i].Key(); ok && a.err == nil {
			var err error
			if all, err = ix.lookupPatterns(all, key.Text, now); err != nil {
				all, a.err = all[:from], err
			}
		}
		a.end = len(all)
	}
	b.matches, b.spare = all, b.matches
}
