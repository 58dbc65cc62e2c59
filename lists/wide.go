package lists

import (
	"math"
	"net/netip"
	"slices"
)

// An exception that reaches all lists and covers a wide network lets half of a continent
// in, whatever the other lists say. Many narrow ones that add up to a wide network count
// as that one.
const (
	maxFree4 = minBits4 // the widest network of IPv4 that one may cover
	maxFree6 = 19       // and of IPv6

	// fullOf says from which share on of a network one step wider the exceptions in it
	// count as all of it: a hole or two change nothing.
	fullOf = 0.75
)

// freeBits is the length of the widest network of the family of a that one may cover.
func freeBits(a netip.Addr) int {
	if a.Is4() {
		return maxFree4
	}
	return maxFree6
}

// wideSums are the networks, one step wider than one exception may cover, that the
// exceptions of a file cover together. The nil wideSums has none.
type wideSums map[netip.Prefix]bool

// over returns the network of w that p lies in, if there is one.
func (w wideSums) over(p netip.Prefix) (netip.Prefix, bool) {
	if len(w) == 0 {
		return netip.Prefix{}, false
	}
	n := stepWider(p.Addr())
	return n, w[n]
}

// stepWider is the network around a that is one step wider than may be covered.
func stepWider(a netip.Addr) netip.Prefix {
	p, _ := a.Prefix(freeBits(a) - 1)
	return p
}

// freeSums adds up the networks of exceptions.
type freeSums struct {
	groups []uint8        // of IPv4: addresses that are covered in each /24, 255 at most; nil: none
	nets   []netip.Prefix // of IPv6, unless they are too narrow to matter
}

const (
	group4 = 24

	// narrow6: to fill a /18 by narrower ones than these takes four million lines.
	narrow6 = 40
	mostNet = 1 << 22
)

func (s *freeSums) add(it *Item) error {
	if !it.Action.Allows() || it.Kind != IP && it.Kind != CIDR {
		return nil
	}
	p := it.Net
	switch {
	case p.Addr().Is6():
		if p.Bits() <= narrow6 && len(s.nets) < mostNet {
			s.nets = append(s.nets, p)
		}
	default:
		if s.groups == nil {
			s.groups = make([]uint8, 1<<group4)
		}
		octets := p.Addr().As4()
		first := int(octets[0])<<16 | int(octets[1])<<8 | int(octets[2])
		if p.Bits() > group4 {
			s.groups[first] = uint8(min(int(s.groups[first])+1<<(32-p.Bits()), math.MaxUint8))
			break
		}
		for i := range 1 << (group4 - p.Bits()) {
			s.groups[first+i] = math.MaxUint8
		}
	}
	return nil
}

// wide are the networks that what was added covers, or nearly.
func (s *freeSums) wide() wideSums {
	w := wideSums{}
	if s.groups != nil {
		const size = 1 << (group4 - maxFree4 + 1)
		for at := 0; at < len(s.groups); at += size {
			sum := 0
			for _, n := range s.groups[at : at+size] {
				sum += int(n)
			}
			if float64(sum) >= fullOf*size*math.MaxUint8 {
				w[stepWider(netip.AddrFrom4([4]byte{byte(at >> 16), byte(at >> 8), byte(at)}))] = true
			}
		}
	}
	slices.SortFunc(s.nets, netip.Prefix.Compare)
	sums := map[netip.Prefix]float64{} // in shares of the network
	var last netip.Prefix
	for _, p := range s.nets {
		if last.IsValid() && last.Overlaps(p) {
			continue // the wider one stands first
		}
		last = p
		sums[stepWider(p.Addr())] += math.Ldexp(1, maxFree6-1-p.Bits())
	}
	for n, share := range sums {
		if share >= fullOf {
			w[n] = true
		}
	}
	return w
}

// sumExceptions reads the text once more than is needed else: whether a line is wide is
// known only when all have been read. What is wrong with the text the next pass says.
func (r *reading) sumExceptions(src *source, eol byte, f *format) {
	var sums freeSums
	s := r.settings
	s.Guard = nil
	pre := newReading(f, r.arg, s, sums.add)
	pre.removed, pre.carving, pre.size = r.removed, r.carving, r.size
	if pre.open(src, eol, nil, f.alone) == nil {
		f.read(pre)
	}
	r.wide = sums.wide()
}
