package filter

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/minio/highwayhash"
	"github.com/twmb/murmur3"
)

// bitmap is a filter that a Redis can hold: a string, whose bits are numbered as SETBIT
// numbers them, and the hash {NAME}:config, which stands in a file of JSON here. There are two
// kinds. A "redisson" is an RBloomFilter; its keys are strings as StringCodec encodes them, in
// UTF-8. A "bitmap" has the same numbers and Guava's hash, which every language has.
type bitmap struct {
	bitmapConfig
	array highFirst
}

// bitmapConfig is NAME.json.
type bitmapConfig struct {
	Name               string `json:"name"`
	ConfigKey          string `json:"configKey"`
	Size               uint64 `json:"size"`
	HashIterations     uint64 `json:"hashIterations"`
	ExpectedInsertions uint64 `json:"expectedInsertions"`
	FalseProbability   string `json:"falseProbability,omitempty"`
	Codec              string `json:"codec,omitempty"` // "" = StringCodec
	Hash               string `json:"hash,omitempty"`  // "" = Redisson's
}

// UnmarshalJSON takes numbers also as texts, as Redis answers HGETALL with them.
func (c *bitmapConfig) UnmarshalJSON(data []byte) error {
	var text struct { // a json.Number may stand in quotes
		Name, ConfigKey, Codec, Hash                               string
		Size, HashIterations, ExpectedInsertions, FalseProbability json.Number
	}
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*c = bitmapConfig{Name: text.Name, ConfigKey: text.ConfigKey, Codec: text.Codec, Hash: text.Hash, FalseProbability: text.FalseProbability.String()}
	for _, number := range []struct {
		name string
		text json.Number
		to   *uint64
	}{{"size", text.Size, &c.Size}, {"hashIterations", text.HashIterations, &c.HashIterations}, {"expectedInsertions", text.ExpectedInsertions, &c.ExpectedInsertions}} {
		if number.text == "" {
			continue // is 0
		}
		var err error
		if *number.to, err = strconv.ParseUint(number.text.String(), 10, 64); err != nil {
			return fmt.Errorf("%s: want a number, have %q", number.name, number.text)
		}
	}
	return nil
}

// redissonBits is what Redisson allows: a Redis string of 512 MiB, but for two bits.
const redissonBits = 2 * math.MaxInt32

// redissonKey keys Redisson's HighwayHash. Everybody knows it, so everybody can make keys
// that collide.
var redissonKey = func() (key []byte) {
	for _, word := range []uint64{0x9e3779b97f4a7c15, 0xf39cc0605cedc834, 0x1082276bf3a27251, 0xf86c6a11d0c18e95} {
		key = binary.LittleEndian.AppendUint64(key, word)
	}
	return key
}()

// murmurHash is the name of the hash of a "bitmap": MurmurHash3 for x64 with 128 bits and
// seed 0. Its places are those of Guava's MURMUR128_MITZ_64.
const murmurHash = "murmur3_x64_128"

func newRedisson(n uint64, p float64) (Filter, error) { return newBitmap("", "Redisson", n, p) }
func newMurmur(n uint64, p float64) (Filter, error) {
	return newBitmap(murmurHash, "a string of Redis", n, p)
}

func newBitmap(hash, layout string, n uint64, p float64) (Filter, error) {
	exact := math.Trunc(classicBits(n, p))
	if err := checkBits(exact, redissonBits, layout); err != nil {
		return nil, err
	}
	size := max(1, uint64(exact))
	return &bitmap{bitmapConfig{
		Size: size, HashIterations: max(1, uint64(math.Floor(exact/float64(n)*ln2+0.5))),
		ExpectedInsertions: n, FalseProbability: strconv.FormatFloat(p, 'f', -1, 64), Hash: hash,
	}, make(highFirst, (size+7)/8)}, nil
}

// hashOf is the hash that a .json names. What cannot be read is left to readBitmap.
func hashOf(config []byte) string {
	var c bitmapConfig
	_ = json.Unmarshal(config, &c)
	return c.Hash
}

func isRedisson(c contents) bool { return c.config != nil && hashOf(c.config) != murmurHash }
func isMurmur(c contents) bool   { return c.config != nil && hashOf(c.config) == murmurHash }

func readBitmap(c contents) (Filter, error) {
	b := &bitmap{array: c.data}
	if err := json.Unmarshal(c.config, &b.bitmapConfig); err != nil {
		return nil, fmt.Errorf("its .json: %w", err)
	}
	return b, b.check()
}

// check holds the numbers to what is possible, and to the bits that are there.
func (b *bitmap) check() error {
	switch codec := b.Codec[strings.LastIndexByte(b.Codec, '.')+1:]; {
	case b.Hash != "" && b.Hash != murmurHash:
		return fmt.Errorf("no hash %q; want %s, or none for Redisson's", b.Hash, murmurHash)
	case codec != "" && codec != "StringCodec":
		return fmt.Errorf("its codec is %s, which makes octets of a key that only Java knows; use StringCodec", codec)
	case b.HashIterations == 0 || b.HashIterations > maxHashes:
		return fmt.Errorf("its config tells of %d hashIterations", b.HashIterations)
	case b.Size == 0 || b.Size > redissonBits:
		return fmt.Errorf("its config tells of a size of %d, not 1 to %d", b.Size, uint64(redissonBits))
	case uint64(len(b.array)) > (b.Size+7)/8:
		return fmt.Errorf("its config tells of %d bits, and the bitmap has %d octets", b.Size, len(b.array))
	}
	return nil
}

func (b *bitmap) Kind() string {
	if b.Hash == murmurHash {
		return "bitmap"
	}
	return "redisson"
}

func (b *bitmap) hash(key []byte) (h1, h2 uint64) {
	if b.Hash == murmurHash {
		return murmur3.Sum128(key)
	}
	sum := highwayhash.Sum128(key, redissonKey)
	return binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])
}

// place is the i-th place, from 0, of a key with this hash. Guava adds h2 each time, Redisson
// h2 and h1 in turns.
func (b *bitmap) place(h1, h2, i uint64) uint64 {
	if b.Hash == murmurHash {
		return (h1 + i*h2) & math.MaxInt64 % b.Size
	}
	return (h1 + (i+1)/2*h2 + i/2*h1) & math.MaxInt64 % b.Size
}

func (b *bitmap) Has(key []byte) bool {
	h1, h2 := b.hash(key)
	for i := range b.HashIterations {
		if !b.array.has(b.place(h1, h2, i)) {
			return false
		}
	}
	return true
}

func (b *bitmap) Add(key []byte) {
	h1, h2 := b.hash(key)
	for i := range b.HashIterations {
		b.array.set(b.place(h1, h2, i))
	}
}

func (b *bitmap) Files(out string) []File {
	base := strings.TrimSuffix(strings.TrimSuffix(out, ".json"), ".bitmap") // as Open takes either
	config := b.bitmapConfig
	config.Name = filepath.Base(base)
	config.ConfigKey = "{" + config.Name + "}:config"
	if strings.Contains(config.Name, "{") {
		config.ConfigKey = config.Name + ":config"
	}
	text, err := json.Marshal(config)
	if err != nil {
		panic(err) // numbers and strings
	}
	return append(single(base+".bitmap", b.array), single(base+".json", text, []byte("\n"))...)
}
