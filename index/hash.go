package index

import (
	"crypto/sha256"

	"blockd/bloom"
)

// The hashes that a header can name.
const (
	hashXXH3 = 1 // XXH3-128 seeded with the first half of the key
	hashSip  = 2 // SipHash-2-4 with 128 bits of output, keyed with all of it
)

// hasher is the keyed hash of one generation.
type hasher struct {
	kind uint8
	key  bloom.Seed
	// weak stands in for XXH3 in tests of what a build does when keys collide
	// under every seed. nil outside of them.
	weak func(key []byte) bloom.Hash
}

func (h *hasher) sum(key []byte) bloom.Hash {
	switch {
	case h.kind == hashSip:
		return h.key.SumSip(key)
	case h.weak != nil:
		return h.weak(key)
	}
	return h.key.Sum(key)
}

func (h *hasher) sumString(key string) bloom.Hash {
	if h.kind == hashSip {
		return h.key.SumSipString(key)
	}
	return h.key.SumString(key)
}

// next is the same hash under another key, derived so that a seeded build stays
// reproducible and yet unknown to who does not know the first key.
func (h hasher) next(kind uint8) hasher {
	sum := sha256.Sum256(h.key[:])
	h.kind = kind
	copy(h.key[:], sum[:])
	return h
}

// name is what reports call it.
func (h *hasher) name() string {
	if h.kind == hashSip {
		return "siphash"
	}
	return "xxh3"
}
