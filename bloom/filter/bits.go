package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/twmb/murmur3"
)

// bits is a stream of BloomFilter.WriteTo of github.com/bits-and-blooms/bloom/v3: bits,
// hashes and length of the bit set, each in 8 octets with the highest first, and the words
// of the set. A set made by From may be longer than its filter.
type bits struct {
	size, length uint64
	hashes       uint64
	array        bigWords
}

const bitsHead = 3 * 8

func newBits(n uint64, p float64) (Filter, error) {
	exact := math.Ceil(classicBits(n, p))
	if err := checkBits(exact, maxBits, "bits-and-blooms"); err != nil {
		return nil, err
	}
	size := max(1, uint64(exact))
	hashes := max(1, uint64(math.Ceil(ln2*exact/float64(n))))
	return &bits{size, size, hashes, make(bigWords, (size+63)/64*8)}, nil
}

func isBits(c contents) bool {
	_, err := readBits(c)
	return err == nil
}

func readBits(c contents) (Filter, error) {
	if len(c.data) < bitsHead {
		return nil, errors.New("ends within its header")
	}
	b := &bits{array: c.data[bitsHead:]}
	for i, field := range []*uint64{&b.size, &b.hashes, &b.length} {
		*field = binary.BigEndian.Uint64(c.data[8*i:])
	}
	switch words := uint64(len(b.array)) / 8; {
	case b.hashes == 0 || b.hashes > maxHashes:
		return nil, fmt.Errorf("%d hashes", b.hashes)
	case b.size == 0 || b.size > b.length:
		return nil, fmt.Errorf("its header tells of %d bits, in a set of %d", b.size, b.length)
	case len(b.array)%8 != 0 || b.length/64+min(1, b.length%64) != words:
		return nil, fmt.Errorf("its header tells of a set of %d bits, and %d octets follow", b.length, len(b.array))
	}
	return b, nil
}

func (b *bits) Kind() string { return "bits" }

// hash hashes a key twice: as it is, and with an octet of 1 appended.
func (b *bits) hash(key []byte) (h [4]uint64) {
	var longer [256]byte // addresses fit
	h[0], h[1] = murmur3.Sum128(key)
	h[2], h[3] = murmur3.Sum128(append(append(longer[:0], key...), 1))
	return h
}

// place is the i-th place, from 0, of a key with this hash.
func (b *bits) place(h *[4]uint64, i uint64) uint64 {
	return (h[i%2] + i*h[2+(i+i%2)%4/2]) % b.size
}

func (b *bits) Has(key []byte) bool {
	h := b.hash(key)
	for i := range b.hashes {
		if !b.array.has(b.place(&h, i)) {
			return false
		}
	}
	return true
}

func (b *bits) Add(key []byte) {
	h := b.hash(key)
	for i := range b.hashes {
		b.array.set(b.place(&h, i))
	}
}

func (b *bits) Files(out string) []File {
	var head []byte
	for _, field := range []uint64{b.size, b.hashes, b.length} {
		head = binary.BigEndian.AppendUint64(head, field)
	}
	return single(out, head, b.array)
}
