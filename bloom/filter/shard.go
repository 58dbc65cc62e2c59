package filter

import (
	"fmt"
	mathbits "math/bits"

	"github.com/twmb/murmur3"
)

// MaxShards bounds the parts of a filter.
const MaxShards = 4096

// Shard is the number of the part, from 0, that a key is in, of a filter in that many parts,
// which is a power of two: the top bits of the first half of its murmur3_128, which
// Guava's hashString(key, UTF_8).asLong() gives.
func Shard(key []byte, shards int) int {
	h1, _ := murmur3.Sum128(key)
	return int(h1 >> (64 - mathbits.Len(uint(shards-1))))
}

// Sharded is a filter in parts of one kind; see Shard for their number and order.
type Sharded []Filter

func (s Sharded) part(key []byte) Filter { return s[Shard(key, len(s))] }

func (s Sharded) Kind() string        { return s[0].Kind() }
func (s Sharded) Has(key []byte) bool { return s.part(key).Has(key) }
func (s Sharded) Add(key []byte)      { s.part(key).Add(key) }

// Files are those of the parts, each under the name OUT-N.
func (s Sharded) Files(out string) (files []File) {
	for i, f := range s {
		files = append(files, f.Files(fmt.Sprintf("%s-%d", out, i))...)
	}
	return files
}
