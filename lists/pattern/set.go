package pattern

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// Stored is a pattern as an index keeps it: what Parse takes, and the Need by which
// a Set looks for it. Without a Need it is tried on every sender.
type Stored struct {
	Kind Kind
	Text string
	Need Need
}

// maxKept bounds the compiled expressions that a Set keeps, in instructions of some
// 100 octets: 50 MiB. Twenty thousand expressions of usual length stay below. What
// is beyond is compiled again for every sender that might match, in 10 to 50 µs.
const maxKept = 1 << 19

// Set matches many patterns at once. It never changes, but for expressions that are
// compiled when they are first needed; goroutines share it without a lock.
//
// The texts that the patterns need are known by one gram each: three, five or
// eight octets of it that few of the others have. A sender is hashed at each octet
// by each length of grams, and only patterns whose text it really holds are run.
type Set struct {
	items []item
	free  []int32
	nodes []node
	grams []gram // the lengths that occur
	heads []int32
	shift uint     // of a hash, to an index into heads
	seen  []uint64 // bits of hashes, shiftSeen to an index; smaller than heads
	room  atomic.Int64
}

type item struct {
	stored   Stored
	compiled atomic.Pointer[Pattern]
}

// node is one text that an item needs.
type node struct {
	text string
	item int32
	off  int32 // of the gram in text
	next int32 // of the same hash, -1 = none
}

// gram is one length of grams.
type gram struct {
	size int
	mask uint64 // of the first octets of eight, little-endian
}

var gramSizes = [...]gram{{8, 1<<64 - 1}, {5, 1<<40 - 1}, {3, 1<<24 - 1}}

// gramFor is the longest gram that a text of at least three octets has.
func gramFor(text string) gram {
	for _, g := range gramSizes {
		if len(text) >= g.size {
			return g
		}
	}
	return gramSizes[len(gramSizes)-1]
}

// hash spreads a gram over 64 bits; its size keeps short ones with zeros apart.
func (g gram) hash(octets uint64) uint64 {
	return (octets&g.mask + uint64(g.size)) * 0x9e3779b97f4a7c15
}

// seenBits is the logarithm of the bits that sort out most grams of a sender: 2^18
// take 32 KiB, what a core has next to it, and 4 % of them are set by 10,000 grams.
const seenBits = 18

// NewSet makes a Set. It believes of the patterns only that their Needs hold. It
// takes about 0.2 µs a pattern.
func NewSet(stored []Stored) *Set {
	s := &Set{items: make([]item, len(stored))}
	s.room.Store(maxKept)
	texts := 0
	for _, p := range stored {
		texts += len(p.Need)
	}
	s.nodes = make([]node, 0, texts)
	for i, p := range stored {
		s.items[i].stored = p
		usable := len(p.Need) > 0
		for _, text := range p.Need {
			usable = usable && len(text) >= minLiteral
		}
		if !usable {
			s.free = append(s.free, int32(i))
			continue
		}
		for _, text := range p.Need {
			s.nodes = append(s.nodes, node{text: text, item: int32(i)})
		}
	}
	s.chooseGrams()
	return s
}

// chooseGrams finds for each text the gram that is the rarest among all, and makes
// the table of them.
func (s *Set) chooseGrams() {
	bits := uint(4)
	for 1<<bits < 2*len(s.nodes) {
		bits++
	}
	s.shift = 64 - bits
	s.heads = slices.Repeat([]int32{-1}, 1<<bits)
	s.seen = make([]uint64, 1<<seenBits/64)
	const countBits = 16
	counts := make([]uint16, 1<<countBits)
	for _, n := range s.nodes {
		g := gramFor(n.text)
		for i := range len(n.text) - g.size + 1 {
			if c := &counts[g.hash(octetsAt(n.text, i))>>(64-countBits)]; *c < 1<<16-1 {
				*c++
			}
		}
	}
	for i := range s.nodes {
		n := &s.nodes[i]
		g := gramFor(n.text)
		if !slices.Contains(s.grams, g) {
			s.grams = append(s.grams, g)
		}
		best, fewest := uint64(0), uint16(1<<16-1)
		for at := range len(n.text) - g.size + 1 {
			h := g.hash(octetsAt(n.text, at))
			if c := counts[h>>(64-countBits)]; at == 0 || c < fewest {
				best, fewest, n.off = h, c, int32(at)
			}
		}
		head := &s.heads[best>>s.shift]
		n.next, *head = *head, int32(i)
		s.seen[best>>(64-seenBits)/64] |= 1 << (best >> (64 - seenBits) % 64)
	}
}

// octetsAt returns eight octets of text from i on, the first one lowest, with zeros
// behind its end.
func octetsAt(text string, i int) uint64 {
	if i+8 <= len(text) {
		t := text[i : i+8]
		return uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 |
			uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56
	}
	var b [8]byte
	copy(b[:], text[i:])
	return binary.LittleEndian.Uint64(b[:])
}

// usualCandidates are dealt with in memory of the stack. Real senders have none or
// a handful.
const usualCandidates = 96

// Match appends to dst the numbers of the patterns that match an address in
// canonical form, ascending. It does not allocate when none does, unless the
// address holds the texts of more than 96 or an expression is needed for the first
// time. The error names a pattern that Parse refuses.
func (s *Set) Match(dst []int, address string) ([]int, error) {
	var buf [usualCandidates]int32
	candidates := s.candidates(buf[:0], address)
	if len(candidates) == 0 && len(s.free) == 0 {
		return dst, nil
	}
	first := len(dst)
	slices.Sort(candidates)
	last := int32(-1)
	for _, list := range [...][]int32{candidates, s.free} {
		for _, i := range list {
			if i == last {
				continue
			}
			last = i
			p, err := s.pattern(int(i))
			if err != nil {
				return dst[:first], err
			}
			if p.Match(address) {
				dst = append(dst, int(i))
			}
		}
	}
	slices.Sort(dst[first:])
	return dst, nil
}

// candidates appends the items of which the address holds a needed text.
func (s *Set) candidates(dst []int32, address string) []int32 {
	for i := range len(address) - minLiteral + 1 {
		octets := octetsAt(address, i)
		for _, g := range s.grams {
			h := g.hash(octets)
			if s.seen[h>>(64-seenBits)/64]&(1<<(h>>(64-seenBits)%64)) == 0 {
				continue
			}
			for n := s.heads[h>>s.shift]; n >= 0; n = s.nodes[n].next {
				node := &s.nodes[n]
				if at := i - int(node.off); at >= 0 && strings.HasPrefix(address[at:], node.text) {
					dst = append(dst, node.item)
				}
			}
		}
	}
	return dst
}

// pattern returns an item ready to be matched.
func (s *Set) pattern(i int) (*Pattern, error) {
	it := &s.items[i]
	if p := it.compiled.Load(); p != nil {
		return p, nil
	}
	p, err := Parse(it.stored.Kind, it.stored.Text)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", it.stored.Text, err)
	}
	// Two goroutines may do this at once: then room is taken twice, no more.
	if cost := int64(p.cost + len(p.text)); s.room.Add(-cost) >= 0 {
		it.compiled.Store(p)
	} else {
		s.room.Add(cost)
	}
	return p, nil
}

// Len is the number of patterns.
func (s *Set) Len() int { return len(s.items) }

// Stored returns a pattern by its number.
func (s *Set) Stored(i int) Stored { return s.items[i].stored }
