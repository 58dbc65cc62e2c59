package history

import (
	"encoding/binary"
	"math/bits"
	"strings"
)

// grams tell of a segment's decisions which texts they cannot have in them: a bit for each run of five octets of each text that Query.Text is
// looked for in, in lower case, by a keyed hash. A text of which a run has no bit is in none of them. They have no names, and nothing can be
// read from them but a guess confirmed.
type grams []byte

const (
	// gramOctets is how long a run is. There are a million of four letters and digits, of which a segment has most; and a text of fewer than
	// five octets, of which nothing is known, is in so many decisions that a page of them is soon full.
	gramOctets = 5

	// mostGrams bounds grams, in octets: two million bits, for the 200,000 to 350,000 runs of a full segment. It is a power of two.
	mostGrams = 256 << 10

	// gramsFill is the part of the bits that may be set of grams that are halved: one in so many.
	gramsFill = 6
)

// gramOf is the number of a run's bit, by the seed, before it is cut to the length of grams.
func gramOf(run, seed uint64) uint64 {
	high, low := bits.Mul64(run^seed, 0x9e3779b97f4a7c15)
	return high ^ low>>17
}

// eachGram calls use for each run of a text in lower case, until it returns false.
func eachGram(text string, seed uint64, use func(gram uint64) bool) {
	run := uint64(0)
	for i := range len(text) {
		run = run<<8&(1<<(8*gramOctets)-1) | uint64(text[i])
		if i >= gramOctets-1 && !use(gramOf(run, seed)) {
			return
		}
	}
}

// add sets the bits of a text.
func (g grams) add(text string, seed uint64) {
	eachGram(strings.ToLower(text), seed, func(gram uint64) bool {
		gram %= uint64(8 * len(g))
		g[gram/8] |= 1 << (gram % 8)
		return true
	})
}

// may reports whether a text may be in what was added, in upper or lower case.
func (g grams) may(text string, seed uint64) bool {
	all := true
	if len(g) > 0 {
		eachGram(strings.ToLower(text), seed, func(gram uint64) bool {
			gram %= uint64(8 * len(g))
			all = g[gram/8]&(1<<(gram%8)) != 0
			return all
		})
	}
	return all
}

// fitting are the same grams with as few octets as tell enough. A run whose bit was set has it set afterwards.
func (g grams) fitting() grams {
	set := 0
	for i := 0; i < len(g); i += 8 {
		set += bits.OnesCount64(binary.LittleEndian.Uint64(g[i:]))
	}
	for len(g) > 8 && 2*set <= 8*len(g)/gramsFill { // half as long it has one bit in gramsFill set at most
		half := len(g) / 2
		for i, b := range g[half:] {
			g[i] |= b
		}
		g = g[:half]
	}
	return g
}
