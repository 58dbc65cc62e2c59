package filter

import "fmt"

// most is where a counter stays: how many keys it has counted is not known any more.
const most = 15

// Counting is a Bloom filter that keys can be removed from: Fan, Cao, Almeida and Broder, "Summary
// Cache" (1998). It has counters of four bits in place of bits, in split blocks. A counter that has
// reached 15 stays there, so that no removal can make the filter forget another key. It is for one
// goroutine at a time.
type Counting struct {
	blocks    uint64
	octets    []byte // two counters each, the low four bits first
	saturated uint64
}

// countersPerKey give some 1 % of false positives.
const countersPerKey = 12

// NewCounting makes an empty filter for n keys: six octets for each. With n keys in it, it says
// "perhaps" to about 1 % of all others.
func NewCounting(n uint64) (*Counting, error) {
	const counters = lanes * lane
	blocks := max(1, (n*countersPerKey+counters-1)/counters)
	if n > maxBits/countersPerKey/8 {
		return nil, fmt.Errorf("%d keys are too many for a counting filter", n)
	}
	return &Counting{blocks: blocks, octets: make([]byte, blocks*counters/2)}, nil
}

// counter returns the octet of a key's counter in a lane, and its shift there.
func (c *Counting) counter(s spot, i int) (*byte, uint) {
	n := s.block*lanes*lane + uint64(i)*lane + s.place(i)
	return &c.octets[n/2], uint(n % 2 * 4)
}

// Has reports whether the filter may hold key. False is certain.
func (c *Counting) Has(key string) bool {
	s := spotOf(key, c.blocks)
	for i := range lanes {
		if octet, shift := c.counter(s, i); *octet>>shift&most == 0 {
			return false
		}
	}
	return true
}

// Add puts key in. A key that is added twice has to be removed twice.
func (c *Counting) Add(key string) {
	s := spotOf(key, c.blocks)
	for i := range lanes {
		octet, shift := c.counter(s, i)
		switch *octet >> shift & most {
		case most:
			continue
		case most - 1:
			c.saturated++
		}
		*octet += 1 << shift
	}
}

// Remove takes key out, if exact says that it was put in; it reports whether it did. Without such a
// proof a removal of what is not there would make the filter forget keys that are.
func (c *Counting) Remove(key string, exact func(key string) bool) bool {
	if !c.Has(key) || !exact(key) {
		return false
	}
	s := spotOf(key, c.blocks)
	for i := range lanes {
		if octet, shift := c.counter(s, i); *octet>>shift&most != most {
			*octet -= 1 << shift
		}
	}
	return true
}

// Saturated is the share of counters that have reached 15 and stay there, from 0 to 1. A filter
// with many of them is to be made anew.
func (c *Counting) Saturated() float64 {
	return float64(c.saturated) / float64(c.blocks*lanes*lane)
}
