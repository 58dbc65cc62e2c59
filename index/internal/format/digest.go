package format

import (
	"encoding/binary"
	"fmt"

	"blockd/bloom"
	"blockd/mail/addr"
	"blockd/mail/digest"
)

// tagDigest begins the key by which an address is found whose digest is asked for: the tag, the
// algorithm and the text that was hashed. The text stands in place of the digest, so that the answer
// is about the address, with all that lists say of it and of its domain. The key is hashed as if it
// had the digest: see Hasher.Sum.
const tagDigest = 0x07

// maxDigestKey is tag, algorithm and the longest digest, in octets.
const maxDigestKey = 2 + 32

// AppendDigestKey appends the key of a text that clients hash, or nothing if the store cannot hold
// it.
func AppendDigestKey(b []byte, a digest.Algorithm, text string) []byte {
	if len(text) > MaxKey-2 {
		return b
	}
	return append(append(b, tagDigest, byte(a)), text...)
}

// DigestKeys yields the keys by which the address of key is found, if that is the key of an address.
// Each is valid until the next.
func DigestKeys(buf []byte, key string, wanted digest.Set, yield func(key []byte) error) error {
	if wanted == 0 || key[0] < ' ' || KeyOf(key).Kind != addr.Address {
		return nil
	}
	for text := range digest.Texts(key) {
		for a := range wanted.All() {
			if buf = AppendDigestKey(buf[:0], a, text); len(buf) == 0 {
				continue
			}
			if err := yield(buf); err != nil {
				return err
			}
		}
	}
	return nil
}

// IsDigest reports whether a stored key is one of AppendDigestKey.
func IsDigest[T ~string | ~[]byte](key T) bool {
	return len(key) > 2 && key[0] == tagDigest && digest.Algorithm(key[1]).Valid()
}

// DigestText is the text of such a key.
func DigestText[T ~string | ~[]byte](key T) T { return key[2:] }

// HasDigest reports whether a stored key is of a text with this digest.
func HasDigest(key []byte, d *digest.Digest) bool {
	return IsDigest(key) && key[1] == byte(d.Algorithm) && digest.Of(d.Algorithm, DigestText(key)) == *d
}

// SumDigest hashes the key of a digest for a look-up.
func (h *Hasher) SumDigest(d *digest.Digest) bloom.Hash {
	var room [maxDigestKey]byte
	return h.sum(d.Append(append(room[:0], tagDigest, byte(d.Algorithm))))
}

// DigestCounts are the numbers of keys for digests, by algorithm; nil if an index has none. An index
// that can be asked for digests has a row for the algorithm even if there are no addresses.
type DigestCounts map[digest.Algorithm]DigestCount

// DigestCount is of the keys for digests by one algorithm.
type DigestCount struct{ Keys, Entries uint64 }

// digestRow is a row of section 11: the algorithm, seven reserved octets, number of keys, number of
// their entries.
const digestRow = 24

// NewDigestCounts has a count of 0 for each of the algorithms.
func NewDigestCounts(wanted digest.Set) (n DigestCounts) {
	for a := range wanted.All() {
		n.Add(DigestCounts{a: {}})
	}
	return n
}

// Add takes in other counts.
func (n *DigestCounts) Add(o DigestCounts) {
	for a, count := range o {
		if *n == nil {
			*n = DigestCounts{}
		}
		sum := (*n)[a]
		sum.Keys += count.Keys
		sum.Entries += count.Entries
		(*n)[a] = sum
	}
}

// note counts the key of a digest with so many entries.
func (n *DigestCounts) note(key []byte, entries int) {
	if *n == nil {
		*n = DigestCounts{}
	}
	n.Change(key, 1, entries)
}

// Change changes the counts of the algorithm of key, which must be there.
func (n DigestCounts) Change(key []byte, keys, entries int) {
	a := digest.Algorithm(key[1])
	n[a] = DigestCount{n[a].Keys + uint64(keys), n[a].Entries + uint64(entries)}
}

// Set are the algorithms.
func (n DigestCounts) Set() (s digest.Set) {
	for a := range n {
		s |= digest.SetOf(a)
	}
	return s
}

// Sum is the count of all algorithms.
func (n DigestCounts) Sum() (sum DigestCount) {
	for _, count := range n {
		sum.Keys += count.Keys
		sum.Entries += count.Entries
	}
	return sum
}

// Append encodes section 11.
func (n DigestCounts) Append(b []byte) []byte {
	for a := range n.Set().All() {
		b = append(b, byte(a), 0, 0, 0, 0, 0, 0, 0)
		b = binary.LittleEndian.AppendUint64(b, n[a].Keys)
		b = binary.LittleEndian.AppendUint64(b, n[a].Entries)
	}
	return b
}

// decodeDigests reads section 11, which tells of at most keys keys.
func decodeDigests(b []byte, keys uint64) (DigestCounts, error) {
	n, last := DigestCounts{}, digest.Algorithm(0)
	for ; len(b) > 0; b = b[digestRow:] {
		a, count := digest.Algorithm(b[0]), DigestCount{binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])}
		switch {
		case !a.Valid() || a <= last || !allZero(b[1:8]):
			return nil, fmt.Errorf("digests of algorithm %d", b[0])
		case count.Keys > keys || count.Keys > count.Entries || count.Entries/MaxSources > count.Keys:
			return nil, fmt.Errorf("%d digests by %v with %d entries among %d keys", count.Keys, a, count.Entries, keys)
		}
		n[a], last, keys = count, a, keys-count.Keys
	}
	return n, nil
}
