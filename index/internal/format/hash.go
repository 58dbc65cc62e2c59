package format

import (
	"bytes"
	"crypto/sha256"

	"blockd/bloom"
	"blockd/mail/digest"
)

// The hashes that a header can name.
const (
	HashXXH3 = 1 // XXH3-128 seeded with the first half of the key
	HashSip  = 2 // SipHash-2-4 with 128 bits of output, keyed with all of it
)

// Hasher is the keyed hash of one generation.
type Hasher struct {
	Kind uint8
	Key  bloom.Seed
	// Weak stands in for XXH3 in tests of what a build does when keys collide
	// under every seed. nil outside of them.
	Weak func(key []byte) bloom.Hash
}

// Sum hashes a key of the store.
func (h *Hasher) Sum(key []byte) bloom.Hash {
	if IsDigest(key) {
		d := digest.Of(digest.Algorithm(key[1]), DigestText(key))
		return h.SumDigest(&d)
	}
	return h.sum(key)
}

// SumPlain hashes a key that is none of a digest, for a look-up. The key may be on the stack.
func (h *Hasher) SumPlain(key []byte) bloom.Hash { return h.sum(key) }

// sum hashes octets.
func (h *Hasher) sum(key []byte) bloom.Hash {
	switch {
	case h.Kind == HashSip:
		return h.Key.SumSip(key)
	case h.Weak != nil:
		return h.Weak(bytes.Clone(key)) // so that a key may be on the stack
	}
	return h.Key.Sum(key)
}

// SumString hashes a key for a look-up.
func (h *Hasher) SumString(key string) bloom.Hash {
	if h.Kind == HashSip {
		return h.Key.SumSipString(key)
	}
	return h.Key.SumString(key)
}

// SumText is Sum of a text.
func (h *Hasher) SumText(key string) bloom.Hash {
	if IsDigest(key) {
		d := digest.Of(digest.Algorithm(key[1]), DigestText(key))
		return h.SumDigest(&d)
	}
	if h.Weak != nil && h.Kind != HashSip {
		return h.Weak([]byte(key))
	}
	return h.SumString(key)
}

// Next is the same hash under another key, derived so that a seeded build stays
// reproducible and yet unknown to who does not know the first key.
func (h Hasher) Next(kind uint8) Hasher {
	sum := sha256.Sum256(h.Key[:])
	h.Kind = kind
	copy(h.Key[:], sum[:])
	return h
}

// Name is what reports call it.
func (h *Hasher) Name() string {
	if h.Kind == HashSip {
		return "siphash"
	}
	return "xxh3"
}
