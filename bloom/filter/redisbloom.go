package filter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// redisBloom is a chain of filters as BF.SCANDUMP of RedisBloom 2 dumps it. A scaling one
// gets another link when its last is full, for twice as many keys at half the rate.
type redisBloom struct {
	redisBloomHead
	links []redisBloomLink
}

// redisBloomHead begins the header, without padding and with the lowest octet first, as
// all of it.
type redisBloomHead struct {
	Items                  uint64 // adds that changed a bit
	Links, Options, Growth uint32
}

// redisBloomSizes is a link in the header.
type redisBloomSizes struct {
	Bytes, Bits, Items  uint64
	Error, BitsPerEntry float64
	Hashes              uint32
	Capacity            uint64
	N2                  uint8 // the link has 2^N2 bits; 0: it has Bits
}

type redisBloomLink struct {
	redisBloomSizes
	array lowFirst
}

const (
	redisBloomHeadSize = 20
	redisBloomLinkSize = 53
)

// The options of a chain.
const (
	redisBloomNoRound  = 1
	redisBloomForce64  = 4 // hashes have 64 bits; in filters made before RedisBloom 2 they have 32
	redisBloomNoScale  = 8
	redisBloomKnown    = 15
	redisBloomDumpSize = 16 << 20 // of a chunk
)

// newRedisBloom makes a chain of one link that does not grow (BF.RESERVE … NONSCALING):
// the number of keys is known, and so the rate is p and not p/2.
func newRedisBloom(n uint64, p float64) (Filter, error) {
	r := &redisBloom{redisBloomHead: redisBloomHead{Options: redisBloomNoRound | redisBloomForce64 | redisBloomNoScale, Growth: 2}}
	return r, r.grow(n, p)
}

// grow adds an empty link.
func (r *redisBloom) grow(n uint64, p float64) error {
	const ln2Squared = 0.480453013918201 // with these digits
	perEntry := -math.Log(p) / ln2Squared
	if err := checkBits(float64(n)*perEntry, maxBits, "RedisBloom"); err != nil {
		return err
	}
	octets := (max(1, uint64(float64(n)*perEntry)) + 63) / 64 * 8
	r.links = append(r.links, redisBloomLink{
		redisBloomSizes{Bytes: octets, Bits: octets * 8, Error: p, BitsPerEntry: perEntry, Hashes: redisBloomHashes(perEntry), Capacity: n},
		make(lowFirst, octets),
	})
	r.Links++
	return nil
}

func redisBloomHashes(bitsPerEntry float64) uint32 {
	const ln2 = 0.693147180559945 // with these digits
	return uint32(math.Ceil(ln2 * bitsPerEntry))
}

func isRedisBloom(c contents) bool {
	iterator, head, _, err := nextChunk(c.data)
	return err == nil && iterator == 1 && len(head) > redisBloomHeadSize && (len(head)-redisBloomHeadSize)%redisBloomLinkSize == 0
}

// readRedisBloom reads chunks one after another. It moves their data together in place.
func readRedisBloom(c contents) (Filter, error) {
	iterator, head, rest, err := nextChunk(c.data)
	if err == nil && iterator != 1 {
		err = fmt.Errorf("begins with iterator %d, not with a header, which has 1", iterator)
	}
	if err != nil {
		return nil, err
	}
	array := rest[:0]
	for len(rest) > 0 {
		var data []byte
		if iterator, data, rest, err = nextChunk(rest); err != nil {
			return nil, err
		}
		if iterator == 0 && len(data) == 0 && len(rest) == 0 {
			break // SCANDUMP's last answer was kept too
		}
		if array = append(array, data...); iterator != uint64(len(array))+1 {
			return nil, fmt.Errorf("the chunk %d ends at octet %d: one before it is missing or comes twice", iterator, len(array))
		}
	}
	return readChain(head, array)
}

// readHead reads how a header begins. links are the octets of its links, for decodeLink.
func readHead(head []byte) (h redisBloomHead, links []byte, err error) {
	n, err := binary.Decode(head, binary.LittleEndian, &h)
	if err != nil {
		return h, nil, errors.New("ends within its header")
	}
	if links = head[n:]; h.Links == 0 || uint64(len(links)) != uint64(h.Links)*redisBloomLinkSize {
		return h, nil, fmt.Errorf("its header tells of %d links, and has %d octets for them", h.Links, len(links))
	}
	return h, links, nil
}

// decodeLink reads the first of links.
func decodeLink(links []byte) (s redisBloomSizes, rest []byte) {
	n, err := binary.Decode(links, binary.LittleEndian, &s)
	if err != nil {
		panic(err) // readHead has counted them
	}
	return s, links[n:]
}

// readChain holds a header to the size of its data, and to what RedisBloom asks of one.
func readChain(head, array []byte) (Filter, error) {
	h, sizes, err := readHead(head)
	if err != nil {
		return nil, err
	}
	r := &redisBloom{redisBloomHead: h}
	if uint64(r.Links) > uint64(len(array)) { // which have an octet at least
		return nil, fmt.Errorf("its header tells of %d links, and %d octets follow", r.Links, len(array))
	}
	if r.Options&^redisBloomKnown != 0 {
		return nil, fmt.Errorf("options %#x", r.Options)
	}
	r.links = make([]redisBloomLink, r.Links)
	items := uint64(0)
	for i := range r.links {
		l := &r.links[i]
		l.redisBloomSizes, sizes = decodeLink(sizes)
		if err := l.check(uint64(len(array))); err != nil {
			return nil, fmt.Errorf("link %d: %w", i+1, err)
		}
		l.array, array = array[:l.Bytes:l.Bytes], array[l.Bytes:]
		items += l.Items
	}
	if len(array) > 0 {
		return nil, fmt.Errorf("%d octets more than its links have", len(array))
	}
	if items != r.Items {
		return nil, fmt.Errorf("%d items, and its links have %d", r.Items, items)
	}
	return r, nil
}

func (l *redisBloomLink) check(have uint64) error {
	switch {
	case l.Bytes == 0 || l.Bytes > have:
		return fmt.Errorf("%d octets, and %d are there", l.Bytes, have)
	case !(l.Error > 0 && l.Error < 1):
		return fmt.Errorf("a rate of %g", l.Error)
	case l.N2 > 63 || l.bits() == 0 || l.bits() > l.Bytes*8:
		return fmt.Errorf("more bits than %d octets have", l.Bytes)
	case l.Hashes == 0 || l.Hashes > maxHashes || l.Hashes != redisBloomHashes(l.BitsPerEntry):
		return fmt.Errorf("%d hashes for %g bits an entry", l.Hashes, l.BitsPerEntry)
	}
	return nil
}

func (l *redisBloomLink) bits() uint64 {
	if l.N2 > 0 {
		return 1 << l.N2
	}
	return l.Bits
}

func (l *redisBloomLink) has(a, b uint64) bool {
	size := l.bits()
	for i := range uint64(l.Hashes) {
		if !l.array.has((a + i*b) % size) {
			return false
		}
	}
	return true
}

func (r *redisBloom) Kind() string { return "redisbloom" }

func (r *redisBloom) hash(key []byte) (a, b uint64) {
	if r.Options&redisBloomForce64 != 0 {
		a = murmur64A(key, 0xc6a4a7935bd1e995)
		return a, murmur64A(key, a)
	}
	short := murmur2(key, 0x9747b28c)
	return uint64(short), uint64(murmur2(key, short))
}

func (r *redisBloom) Has(key []byte) bool {
	a, b := r.hash(key)
	for i := len(r.links) - 1; i >= 0; i-- {
		if r.links[i].has(a, b) {
			return true
		}
	}
	return false
}

// Add puts key into the last link. RedisBloom refuses a key when a chain that does not
// scale is full; here its rate rises.
func (r *redisBloom) Add(key []byte) {
	if r.Has(key) {
		return
	}
	last := &r.links[len(r.links)-1]
	if last.Items >= last.Capacity && r.Options&redisBloomNoScale == 0 && r.grow(last.Capacity*uint64(r.Growth), last.Error/2) == nil {
		last = &r.links[len(r.links)-1]
	}
	a, b := r.hash(key)
	for i := range uint64(last.Hashes) {
		last.array.set((a + i*b) % last.bits())
	}
	last.Items++
	r.Items++
}

func (r *redisBloom) Files(out string) []File {
	return []File{{withEnding(out, ".rbd"), r.write}}
}

// write writes the chunks as SCANDUMP gives them.
func (r *redisBloom) write(w io.Writer) error {
	chunks, _ := Chunks(r, redisBloomDumpSize)
	for iterator, data := range chunks {
		if err := writeChunk(w, iterator, data); err != nil {
			return err
		}
	}
	return nil
}

// head is the header of the chain and its links.
func (r *redisBloom) head() []byte {
	head, err := binary.Append(nil, binary.LittleEndian, r.redisBloomHead)
	for i := range r.links {
		if err == nil {
			head, err = binary.Append(head, binary.LittleEndian, r.links[i].redisBloomSizes)
		}
	}
	if err != nil {
		panic(err) // numbers of fixed sizes
	}
	return head
}
