package segment

import (
	"cmp"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"blockd/index/internal/format"
)

// partPrints is how many entries of both sides are compared at once, 16 octets each. Longer lists are walked over
// several times.
const partPrints = 4 << 20 // 130 MB while they are sorted

// gatherMost is how many entries that differ are put in the order of their lines; of more, chunks of a quarter of a MiB
// are in that order.
const gatherMost = 1 << 16

// Diff tells what differs between two contents of a list, each of several files: entries that one of them has and the other
// has not, by key, action and scope, wherever they stand and however often. First it yields what is gone, then what has come,
// each once. Entries of both that have other reasons or ends are not among them.
func Diff(ctx context.Context, from, to []*Segment, yield func(came bool, d Said, key string) error) error {
	seed := rand.Uint64() // so that nobody can write entries of one print
	var entries uint64
	for _, s := range slices.Concat(from, to) {
		entries += s.Entries()
	}
	parts := int(entries/partPrints) + 1
	var late [2]laterList
	for part := range parts {
		var prints [2][]xxh3.Uint128
		group, inner := errgroup.WithContext(ctx)
		for side, all := range [2][]*Segment{from, to} {
			group.Go(func() (err error) {
				prints[side], err = printsOf(inner, all, seed, part, parts)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
		prints[0], prints[1] = apartOf(prints[0], prints[1])
		for side, all := range [2][]*Segment{from, to} {
			if len(prints[side]) == 0 {
				continue
			}
			if err := tell(ctx, all, seed, part, parts, prints[side], func(d Said, key string) error {
				return late[side].add(side == 1, d, key, yield)
			}); err != nil {
				return err
			}
		}
	}
	for side := range late {
		if err := late[side].end(side == 1, yield); err != nil {
			return err
		}
	}
	return nil
}

// laterList collects entries to put them in order, unless they are too many.
type laterList struct {
	all  []keyed
	over bool
}

type keyed struct {
	Said
	key string
}

func (l *laterList) add(came bool, d Said, key string, yield func(bool, Said, string) error) error {
	if l.over {
		return yield(came, d, key)
	}
	if l.all = append(l.all, keyed{d, key}); len(l.all) < gatherMost {
		return nil
	}
	err := l.end(came, yield)
	l.over, l.all = true, nil
	return err
}

func (l *laterList) end(came bool, yield func(bool, Said, string) error) error {
	slices.SortStableFunc(l.all, func(a, b keyed) int { return cmp.Or(cmp.Compare(a.Row, b.Row), cmp.Compare(a.Line, b.Line)) })
	for _, k := range l.all {
		if err := yield(came, k.Said, k.key); err != nil {
			return err
		}
	}
	return nil
}

// printOf stands for what an entry says of a sender. That two of them are the same is as likely as a defect of the memory:
// of 10 million entries, 1 in 10^24.
func printOf(key []byte, e format.Entry, seed uint64) xxh3.Uint128 {
	return xxh3.Hash128Seed(key, seed+uint64(e.Action)<<8+uint64(e.Scope))
}

func partOf(p xxh3.Uint128, parts int) int {
	if parts == 1 {
		return 0
	}
	return int(p.Lo % uint64(parts))
}

func comparePrints(a, b xxh3.Uint128) int {
	if a.Hi != b.Hi {
		return cmp.Compare(a.Hi, b.Hi)
	}
	return cmp.Compare(a.Lo, b.Lo)
}

// printsOf are those of a part of the entries, sorted, each once.
func printsOf(ctx context.Context, all []*Segment, seed uint64, part, parts int) (prints []xxh3.Uint128, err error) {
	for _, s := range all {
		err := s.Each(ctx, 1, func(_ int, c *Chunk, entries uint64) error {
			for range entries {
				key, e := c.Entry()
				if c.Bad {
					return nil
				}
				if p := printOf(key, e, seed); partOf(p, parts) == part {
					prints = append(prints, p)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	prints = sortPrints(prints)
	return slices.Compact(prints), nil
}

// sortPrints puts each print into the place of its first 16 bits, where few are left to be sorted: a third of the time that
// sorting all takes.
func sortPrints(all []xxh3.Uint128) []xxh3.Uint128 {
	ends := make([]int, 1<<16+1)
	for _, p := range all {
		ends[p.Hi>>48+1]++
	}
	for i := range ends[1:] {
		ends[i+1] += ends[i]
	}
	sorted := make([]xxh3.Uint128, len(all))
	for _, p := range all {
		sorted[ends[p.Hi>>48]] = p
		ends[p.Hi>>48]++
	}
	from := 0
	for _, to := range ends[:1<<16] {
		if to-from > 1 {
			slices.SortFunc(sorted[from:to], comparePrints)
		}
		from = to
	}
	return sorted
}

// apartOf leaves in each what the other has not.
func apartOf(a, b []xxh3.Uint128) (onlyA, onlyB []xxh3.Uint128) {
	i, j := 0, 0
	onlyA, onlyB = a[:0], b[:0]
	for i < len(a) && j < len(b) {
		switch c := comparePrints(a[i], b[j]); {
		case c < 0:
			onlyA = append(onlyA, a[i])
			i++
		case c > 0:
			onlyB = append(onlyB, b[j])
			j++
		default:
			i, j = i+1, j+1
		}
	}
	return append(onlyA, a[i:]...), append(onlyB, b[j:]...)
}

// tell gives the entries that prints stand for, each where it stands first.
func tell(ctx context.Context, all []*Segment, seed uint64, part, parts int, prints []xxh3.Uint128, use func(d Said, key string) error) error {
	told := make([]bool, len(prints))
	here := make([]bool, 1<<16) // some print begins so: most entries are passed over by that
	for _, p := range prints {
		here[p.Hi>>48] = true
	}
	for row, s := range all {
		spans, err := s.byLine()
		if err != nil {
			return err
		}
		var buf []byte
		for _, span := range spans {
			buf, err = s.useWhole(ctx, span, buf, 0, func(_ int, c *Chunk, entries uint64) error {
				for range entries {
					key, e := c.Entry()
					if c.Bad {
						return nil
					}
					p := printOf(key, e, seed)
					if !here[p.Hi>>48] || partOf(p, parts) != part {
						continue
					}
					at, ok := slices.BinarySearchFunc(prints, p, comparePrints)
					if !ok || told[at] {
						continue
					}
					told[at] = true
					d := Said{Entry: e}
					d.Row = row
					if e.Reason != 0 {
						d.Text = s.Reasons.Text(e.Reason - 1)
					}
					if err := use(d, string(key)); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Same reports whether two contents of a list say the same of everybody, with the same reasons and ends, wherever their
// entries stand.
func Same(ctx context.Context, from, to []*Segment) (bool, error) {
	seed := rand.Uint64() // so that nobody can write a list whose sum is that of another one
	var sums [2]xxh3.Uint128
	for side, all := range [2][]*Segment{from, to} {
		for _, s := range all {
			var mu sync.Mutex // guards sums
			err := s.Each(ctx, 2, func(_ int, c *Chunk, entries uint64) error {
				var sum xxh3.Uint128
				var buf []byte
				for range entries {
					key, e := c.Entry()
					if c.Bad {
						return nil
					}
					buf = append(append(buf[:0], byte(e.Action), byte(e.Scope)), key...)
					if e.Expiry != 0 || e.Reason != 0 {
						buf = binary.LittleEndian.AppendUint64(append(buf, 0), uint64(e.Expiry))
						if e.Reason != 0 {
							buf = append(buf, s.Reasons.Text(e.Reason-1)...)
						}
					}
					one := xxh3.Hash128Seed(buf, seed)
					sum.Hi, sum.Lo = sum.Hi+one.Hi, sum.Lo+one.Lo
				}
				mu.Lock()
				sums[side].Hi, sums[side].Lo = sums[side].Hi+sum.Hi, sums[side].Lo+sum.Lo
				mu.Unlock()
				return nil
			})
			if err != nil {
				return false, err
			}
		}
	}
	return sums[0] == sums[1], nil
}
