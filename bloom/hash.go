package bloom

import (
	"encoding/binary"
	"unsafe"

	"github.com/dchest/siphash"
	"github.com/zeebo/xxh3"
)

// Seed keys the hash of one generation. It is drawn anew at every build and is
// secret: who knows it can choose senders that are false positives.
type Seed [16]byte

// Hash is the 128-bit hash of a key. Its parts are used apart: Lo by the filter,
// Hi by the store, so that their misses are independent.
type Hash struct{ Hi, Lo uint64 }

// Sum is XXH3-128 of key, seeded with the first half of s: 13 ns for a key of 21
// octets. It is no pseudo-random function; see SumSip.
func (s Seed) Sum(key []byte) Hash {
	h := xxh3.Hash128Seed(key, binary.LittleEndian.Uint64(s[:8]))
	return Hash{Hi: h.Hi, Lo: h.Lo}
}

// SumString is Sum of a string's octets.
func (s Seed) SumString(key string) Hash {
	h := xxh3.HashString128Seed(key, binary.LittleEndian.Uint64(s[:8]))
	return Hash{Hi: h.Hi, Lo: h.Lo}
}

// SumSip is SipHash-2-4 with 128 bits of output, keyed with the whole of s: 36
// ns for a key of 21 octets. It is for lists whose entries were chosen so that
// their XXH3 collides under every seed.
func (s Seed) SumSip(key []byte) Hash {
	lo, hi := siphash.Hash128(binary.LittleEndian.Uint64(s[:8]), binary.LittleEndian.Uint64(s[8:]), key)
	return Hash{Hi: hi, Lo: lo}
}

// SumSipString is SumSip of a string's octets.
func (s Seed) SumSipString(key string) Hash {
	return s.SumSip(unsafe.Slice(unsafe.StringData(key), len(key))) // read only, and not kept
}
