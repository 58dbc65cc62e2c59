package filter

import "encoding/binary"

// murmur64A is MurmurHash64A, of MurmurHash 2, which RedisBloom uses.
func murmur64A(key []byte, seed uint64) uint64 {
	const m, r = 0xc6a4a7935bd1e995, 47
	h := seed ^ uint64(len(key))*m
	for ; len(key) >= 8; key = key[8:] {
		k := binary.LittleEndian.Uint64(key) * m
		k ^= k >> r
		h = (h ^ k*m) * m
	}
	if len(key) > 0 {
		var last [8]byte
		copy(last[:], key)
		h = (h ^ binary.LittleEndian.Uint64(last[:])) * m
	}
	h = (h ^ h>>r) * m
	return h ^ h>>r
}

// murmur2 is MurmurHash2 of 32 bits.
func murmur2(key []byte, seed uint32) uint32 {
	const m, r = 0x5bd1e995, 24
	h := seed ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key) * m
		k ^= k >> r
		h = h*m ^ k*m
	}
	if len(key) > 0 {
		var last [4]byte
		copy(last[:], key)
		h = (h ^ binary.LittleEndian.Uint32(last[:])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
