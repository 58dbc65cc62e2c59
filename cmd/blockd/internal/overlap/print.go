package overlap

import (
	"cmp"

	"github.com/zeebo/xxh3"

	"blockd/lists"
)

// print stands for one entry of one side. Its upper 119 bits are the hash of the entry's name, so
// that in the order of prints everything about one name is together. Two names of 200 million
// have one hash with a probability of 10^-19; the seed is drawn for each comparison.
type print struct{ hi, lo uint64 }

// The lowest bits of print.lo.
const (
	sideBit   = 1 // set: B has it
	actionAt  = 1 // 3 bits
	scopeAt   = 4 // 2 bits
	kindAt    = 6 // 3 bits
	nameAt    = 9
	printSize = 16
)

func printOf(it *lists.Item, side int, seed uint64) print {
	kind := kindOf(it)
	h := xxh3.HashString128Seed(it.Name(), seed+uint64(kind))
	low := uint64(side) | uint64(it.Action)<<actionAt | uint64(it.Scope)<<scopeAt | uint64(kind)<<kindAt
	return print{h.Hi, h.Lo>>nameAt<<nameAt | low}
}

func (p print) side() int { return int(p.lo & sideBit) }
func (p print) kind() int { return int(p.lo >> kindAt & 7) }

// sameName reports whether two prints are of one name.
func (p print) sameName(o print) bool { return p.hi == o.hi && p.lo>>kindAt == o.lo>>kindAt }

// sameEntry reports whether two prints are of one entry, of either side.
func (p print) sameEntry(o print) bool { return p.hi == o.hi && p.lo|sideBit == o.lo|sideBit }

func comparePrints(a, b print) int {
	if a.hi != b.hi {
		return cmp.Compare(a.hi, b.hi)
	}
	return cmp.Compare(a.lo, b.lo)
}

// Kinds are the kinds of entries, in the order of Result.Kinds.
func Kinds() []string {
	return []string{"address", "local-part", "domain", "client", "network", "glob", "regexp"}
}

// kindOf is the place in Kinds.
func kindOf(it *lists.Item) int {
	switch it.Kind {
	case lists.Addr:
		if it.Scope == lists.Local {
			return 1
		}
		return 0
	case lists.Domain:
		return 2
	case lists.IP:
		return 3
	case lists.CIDR:
		return 4
	case lists.Glob:
		return 5
	default:
		return 6
	}
}
