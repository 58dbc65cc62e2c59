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
)

// redisson is an RBloomFilter: a bitmap of Redis, and the hash {NAME}:config, which stands
// in a file of JSON here. Keys are strings as StringCodec encodes them, in UTF-8.
type redisson struct {
	redissonConfig
	array highFirst
}

// redissonConfig is NAME.json.
type redissonConfig struct {
	Name               string `json:"name"`
	ConfigKey          string `json:"configKey"`
	Size               uint64 `json:"size"`
	HashIterations     uint64 `json:"hashIterations"`
	ExpectedInsertions uint64 `json:"expectedInsertions"`
	FalseProbability   string `json:"falseProbability,omitempty"`
	Codec              string `json:"codec,omitempty"` // "" = StringCodec
}

// UnmarshalJSON takes numbers also as texts, as Redis answers HGETALL with them.
func (c *redissonConfig) UnmarshalJSON(data []byte) error {
	var text struct { // a json.Number may stand in quotes
		Name, ConfigKey, Codec                                     string
		Size, HashIterations, ExpectedInsertions, FalseProbability json.Number
	}
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	*c = redissonConfig{Name: text.Name, ConfigKey: text.ConfigKey, Codec: text.Codec, FalseProbability: text.FalseProbability.String()}
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

func newRedisson(n uint64, p float64) (Filter, error) {
	exact := math.Trunc(classicBits(n, p))
	if err := checkBits(exact, redissonBits, "Redisson"); err != nil {
		return nil, err
	}
	size := max(1, uint64(exact))
	return &redisson{redissonConfig{
		Size: size, HashIterations: max(1, uint64(math.Floor(exact/float64(n)*ln2+0.5))),
		ExpectedInsertions: n, FalseProbability: strconv.FormatFloat(p, 'f', -1, 64),
	}, make(highFirst, (size+7)/8)}, nil
}

func isRedisson(c contents) bool { return c.config != nil }

func readRedisson(c contents) (Filter, error) {
	r := &redisson{array: c.data}
	if err := json.Unmarshal(c.config, &r.redissonConfig); err != nil {
		return nil, fmt.Errorf("its .json: %w", err)
	}
	switch codec := r.Codec[strings.LastIndexByte(r.Codec, '.')+1:]; {
	case codec != "" && codec != "StringCodec":
		return nil, fmt.Errorf("its codec is %s, which makes octets of a key that only Java knows; use StringCodec", codec)
	case r.HashIterations == 0 || r.HashIterations > maxHashes:
		return nil, fmt.Errorf("its .json tells of %d hashIterations", r.HashIterations)
	case r.Size == 0 || r.Size > redissonBits:
		return nil, fmt.Errorf("its .json tells of a size of %d, not 1 to %d", r.Size, uint64(redissonBits))
	case uint64(len(c.data)) > (r.Size+7)/8:
		return nil, fmt.Errorf("its .json tells of %d bits, and the bitmap has %d octets", r.Size, len(c.data))
	}
	return r, nil
}

func (r *redisson) Kind() string { return "redisson" }

func (r *redisson) hash(key []byte) (h1, h2 uint64) {
	sum := highwayhash.Sum128(key, redissonKey)
	return binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])
}

// place is the i-th place, from 0, of a key with this hash. Redisson adds h2 and h1 in turns.
func (r *redisson) place(h1, h2, i uint64) uint64 {
	return (h1 + (i+1)/2*h2 + i/2*h1) & math.MaxInt64 % r.Size
}

func (r *redisson) Has(key []byte) bool {
	h1, h2 := r.hash(key)
	for i := range r.HashIterations {
		if !r.array.has(r.place(h1, h2, i)) {
			return false
		}
	}
	return true
}

func (r *redisson) Add(key []byte) {
	h1, h2 := r.hash(key)
	for i := range r.HashIterations {
		r.array.set(r.place(h1, h2, i))
	}
}

func (r *redisson) Files(out string) []File {
	base := strings.TrimSuffix(strings.TrimSuffix(out, ".json"), ".bitmap") // as Open takes either
	config := r.redissonConfig
	config.Name = filepath.Base(base)
	config.ConfigKey = "{" + config.Name + "}:config"
	if strings.Contains(config.Name, "{") {
		config.ConfigKey = config.Name + ":config"
	}
	text, err := json.Marshal(config)
	if err != nil {
		panic(err) // numbers and strings
	}
	return append(single(base+".bitmap", r.array), single(base+".json", text, []byte("\n"))...)
}
