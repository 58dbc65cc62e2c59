package snapshot

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/zeebo/xxh3"

	"blockd/lists"
)

const (
	// perBucket is how many entries share a bucket, of 16 octets. One changed entry makes all of its bucket be sorted anew; less of them would
	// make the sums of ten million entries be more than a core's cache has room for, and each line wait for memory.
	perBucket = 64

	// mostBuckets bounds the memory of a worker to 16 MiB. A list of a billion entries has a thousand or two in a bucket.
	mostBuckets = 1 << 20
)

// buckets tell which entries differ between the last sequence and the one that is made, without either of them in memory: entries are in
// buckets by the hash of their key, and of each bucket the sums of its lines' hashes are compared. Both sides have the same lines in a bucket
// if its sums are the same: else two sums of 128 bits, by a seed that nobody knows, would be the same by chance.
type buckets struct {
	seed    uint64
	first   []int    // by place: its first bucket; one more at the end
	changed []uint64 // after settle: a bit for each bucket
}

// sums are what one goroutine adds up, by bucket: the lines of the sequence that is made, less those of the last one.
type sums struct {
	*buckets
	all   []xxh3.Uint128 // their halves are sums of their own
	later [16]summand    // of lines that came: their buckets are far from each other, and memory is waited for once for all of them
	n     int            // of them that are used
}

type summand struct {
	bucket int
	hash   xxh3.Uint128
}

// newBuckets makes them for shards that had so many entries, by place.
func newBuckets(entries []int64) *buckets {
	b := &buckets{seed: rand.Uint64(), first: make([]int, 1, len(entries)+1)}
	total, each := int64(0), int64(perBucket)
	for _, n := range entries {
		total += n
	}
	for total/each > mostBuckets/2 { // the number of a place is rounded up to a power of two
		each *= 2
	}
	for _, n := range entries {
		b.first = append(b.first, b.first[len(b.first)-1]+1<<bits.Len64(uint64(n/each)))
	}
	return b
}

func (b *buckets) count() int { return b.first[len(b.first)-1] }

func (b *buckets) sums() *sums { return &sums{buckets: b, all: make([]xxh3.Uint128, b.count())} }

// of is the bucket of a key with this hash.
func (b *buckets) of(place int, key uint64) int {
	return b.first[place] + int(key&uint64(b.first[place+1]-b.first[place]-1))
}

// came notes a line of the sequence that is made.
func (s *sums) came(bucket int, line []byte) {
	if s.n == len(s.later) {
		s.flush()
	}
	s.later[s.n] = summand{bucket, xxh3.Hash128Seed(line, s.seed)}
	s.n++
}

// flush adds what is to be added later.
func (s *sums) flush() {
	for _, l := range s.later[:s.n] {
		s.all[l.bucket].Hi += l.hash.Hi
		s.all[l.bucket].Lo += l.hash.Lo
	}
	s.n = 0
}

// went notes a line of the last sequence.
func (s *sums) went(bucket int, line []byte) {
	h := xxh3.Hash128Seed(line, s.seed)
	s.all[bucket].Hi -= h.Hi
	s.all[bucket].Lo -= h.Lo
}

// settle is called with the sums of all goroutines, and reports whether anything differs.
func (b *buckets) settle(all []*sums) (differs bool) {
	for _, s := range all {
		s.flush()
	}
	b.changed = make([]uint64, (b.count()+63)/64)
	for i := range b.count() {
		var n xxh3.Uint128
		for _, s := range all {
			n.Hi += s.all[i].Hi
			n.Lo += s.all[i].Lo
		}
		if n != (xxh3.Uint128{}) {
			b.changed[i/64] |= 1 << (i % 64)
			differs = true
		}
	}
	return differs
}

// all makes every bucket a changed one.
func (b *buckets) all() { b.changed = slices.Repeat([]uint64{1<<64 - 1}, (b.count()+63)/64) }

func (b *buckets) has(bucket int) bool { return b.changed[bucket/64]>>(bucket%64)&1 != 0 }

// any reports whether a place has a changed bucket.
func (b *buckets) any(place int) bool {
	for bucket := b.first[place]; bucket < b.first[place+1]; bucket++ {
		if b.has(bucket) {
			return true
		}
	}
	return false
}

// oneOfEach notes the lines that a shard has: those of a key come together, and of those that say the same one counts.
type oneOfEach struct {
	*sums
	bucket int
	list   int
	key    []byte // of the lines in hand
	lines  [][]byte
	text   []byte // that lines are in
}

// add takes a line. Lines of one key that do not come together make their bucket a changed one: that costs time alone.
func (o *oneOfEach) add(list, bucket int, key, line []byte) {
	if list != o.list || !bytes.Equal(key, o.key) {
		o.end()
		o.list, o.bucket, o.key = list, bucket, append(o.key[:0], key...)
	}
	at := len(o.text)
	o.text = append(o.text, line...)
	o.lines = append(o.lines, o.text[at:]) // which may be a former array's: nobody writes there
}

// end notes the lines in hand.
func (o *oneOfEach) end() {
	switch len(o.lines) {
	case 0:
		return
	case 1:
		o.came(o.bucket, o.lines[0])
	default:
		slices.SortFunc(o.lines, bytes.Compare)
		for line := range lists.OneOfEach(withoutErrors(o.lines)) {
			o.came(o.bucket, line)
		}
	}
	o.lines, o.text = o.lines[:0], o.text[:0]
}

func withoutErrors(lines [][]byte) func(func([]byte, error) bool) {
	return func(yield func([]byte, error) bool) {
		for _, line := range lines {
			if !yield(line, nil) {
				return
			}
		}
	}
}
