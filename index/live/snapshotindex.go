package live

import (
	"encoding/binary"
	"iter"
	"runtime"
	"sort"

	"github.com/zeebo/xxh3"

	"blockd/mail/digest"
)

// cells is a table of the file while it is made.
type cells []byte

func newCells(n int) cells {
	size := 8
	for size < 2*n {
		size *= 2
	}
	return make(cells, 8*size)
}

// put adds record i under a hash.
func (c cells) put(hash uint64, i int) {
	mask := uint64(len(c)/8 - 1)
	at := hash & mask
	for binary.LittleEndian.Uint64(c[8*at:]) != 0 {
		at = (at + 1) & mask
	}
	binary.LittleEndian.PutUint64(c[8*at:], hash>>32<<32|uint64(i+1))
}

// with returns the records that may be of a hash.
func (c cells) with(hash uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		if len(c) == 0 {
			return
		}
		mask := uint64(len(c)/8 - 1)
		for at, n := hash&mask, uint64(0); n <= mask; at, n = (at+1)&mask, n+1 {
			cell := binary.LittleEndian.Uint64(c[8*at:])
			if cell == 0 || cell>>32 == hash>>32 && uint32(cell) > 0 && !yield(int(uint32(cell))-1) {
				return
			}
		}
	}
}

// find appends the indexes of the records of a key to found, one for each scope. A nil snapshot has none.
func (s *snapshot) find(found []int, key string) []int {
	if s == nil {
		return found
	}
	defer runtime.KeepAlive(s)
	for i := range cells(s.keys).with(xxh3.HashStringSeed(key, s.seed)) {
		if i < s.count && string(s.keyOf(i)) == key {
			found = append(found, i)
		}
	}
	return found
}

// at returns the index of the record with an identity, or -1.
func (s *snapshot) at(id identity) int {
	var room [len(scopeCodes)]int
	for _, i := range s.find(room[:0], id.key) {
		if s.scope(i) == id.scope {
			return i
		}
	}
	return -1
}

// addressOf returns the address with a digest, or "".
func (s *snapshot) addressOf(d digest.Digest) (address string, i int) {
	if s == nil {
		return "", -1
	}
	defer runtime.KeepAlive(s)
	for i := range cells(s.digests).with(xxh3.HashStringSeed(digestKey(d), s.seed)) {
		if i >= s.count {
			continue
		}
		key := string(s.keyOf(i))
		for text := range digest.Texts(key) {
			if digest.Of(d.Algorithm, text) == d {
				return key, i
			}
		}
	}
	return "", -1
}

// index makes the cells of digests if those of the file are others.
func (s *snapshot) index(hashes digest.Set) {
	if s.hashes == hashes {
		return
	}
	defer runtime.KeepAlive(s)
	var all []uint64
	var of []int
	for i := range s.count {
		all = digestHashes(all, hashes, s.record(i)[38], s.keyOf(i), s.seed)
		for len(of) < len(all) {
			of = append(of, i)
		}
	}
	s.digests = nil
	if hashes != 0 {
		c := newCells(len(all))
		for n, hash := range all {
			c.put(hash, of[n])
		}
		s.digests = c
	}
}

// digestHashes appends the hashes of the digests of a key, if its kind is that of addresses.
func digestHashes(all []uint64, hashes digest.Set, kind byte, key []byte, seed uint64) []uint64 {
	if hashes == 0 || kind != addressCode || personal(key) {
		return all
	}
	for text := range digest.Texts(string(key)) {
		for a := range hashes.All() {
			all = append(all, xxh3.HashStringSeed(digestKey(digest.Of(a, text)), seed))
		}
	}
	return all
}

// newerThan returns the index of the first record with a higher number.
func (s *snapshot) newerThan(number uint64) int {
	if s == nil {
		return 0
	}
	defer runtime.KeepAlive(s)
	return sort.Search(s.count, func(i int) bool { return s.number(i) > number })
}

// ending returns the n-th of the records that end, the first to end first.
func (s *snapshot) ending(n int) int {
	return min(int(binary.LittleEndian.Uint32(s.ends[4*n:])), s.count-1)
}
