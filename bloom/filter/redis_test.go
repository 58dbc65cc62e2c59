package filter

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// What Redis keeps of a filter is the filter.
func TestStored(t *testing.T) {
	for _, kind := range []string{"bitmap", "redisson"} {
		f := testkit.Value(New(kind, 1000, 0.01))(t)
		for i := range 1000 {
			f.Add(sender(i))
		}
		octets, numbers, ok := Stored(f)
		if !ok || (numbers["hash"] == "") != (kind == "redisson") {
			t.Fatalf("%s: %v", kind, numbers)
		}
		numbers["push"] = "anything"
		again := testkit.Value(ReadStored(slices.Clone(octets), numbers))(t)
		testkit.MustEqual(t, "kind", again.Kind(), kind)
		empty := testkit.Value(EmptyStored(numbers))(t)
		testkit.MustEqual(t, "kind", empty.Kind(), kind)
		if empty.Has(sender(0)) {
			t.Errorf("%s: not empty", kind)
		}
		for i := range 1000 {
			if !again.Has(sender(i)) {
				t.Fatalf("%s: key %d", kind, i)
			}
			empty.Add(sender(i))
		}
		if filled, same, _ := Stored(empty); !bytes.Equal(filled, octets) || same["size"] != numbers["size"] {
			t.Errorf("%s: filled again it is another", kind)
		}
	}
	g := testkit.Value(New("guava", 10, 0.01))(t)
	if _, _, ok := Stored(g); ok {
		t.Error("Guava in a Redis")
	}
	if _, ok := Chunks(g, 10); ok {
		t.Error("Guava in chunks")
	}
}

// The bits of a bitmap are at Guava's places: a Guava filter of as many bits has the same.
func TestBitmapHasGuavasPlaces(t *testing.T) {
	f := testkit.Value(EmptyStored(map[string]string{"size": "9600", "hashIterations": "7", "hash": murmurHash}))(t)
	g := &guava{mitz64, 7, make(bigWords, 9600/8)}
	for i := range 1000 {
		f.Add(sender(i))
		g.Add(sender(i))
	}
	for bit := range uint64(9600) {
		testkit.MustEqual(t, fmt.Sprintf("bit %d", bit), f.(*bitmap).array.has(bit), g.array.has(bit))
	}
}

func TestShards(t *testing.T) {
	// h1 is f77273813e9e1dc9, by murmurhash3js-revisited.
	for shards, want := range map[int]int{1: 0, 2: 1, 4: 3, 16: 0xf, 256: 0xf7, 4096: 0xf77} {
		testkit.Equal(t, fmt.Sprintf("of %d shards", shards), Shard([]byte("promo@bulk.test"), shards), want)
	}
	var all Sharded
	for range 16 {
		f := testkit.Value(New("bits", 200, 0.001))(t)
		all = append(all, f)
	}
	for i := range 2000 {
		all.Add(sender(i))
	}
	for i := range 2000 {
		if part := all[Shard(sender(i), 16)]; !all.Has(sender(i)) || !part.Has(sender(i)) {
			t.Fatalf("key %d", i)
		}
	}
	if files := all.Files("bl"); all.Kind() != "bits" || len(files) != 16 || files[15].Path != "bl-15" {
		t.Errorf("%s, %v", all.Kind(), files)
	}
}

// The chunks of a filter are what ReadChain reads, in whatever size.
func TestChunks(t *testing.T) {
	f := testkit.Value(New("redisbloom", 1000, 0.01))(t)
	for i := range 1000 {
		f.Add(sender(i))
	}
	for _, size := range []int{1, 100, 1 << 20} {
		var head, all []byte
		chunks, ok := Chunks(f, size)
		for iterator, data := range chunks {
			if iterator == 1 {
				head = data
				continue
			}
			all = append(all, data...)
		}
		stated, failed := ChainSize(head)
		again, err := ReadChain(head, all)
		if !ok || err != nil || failed != nil || stated != uint64(len(all)) || !bytes.Equal(octets(t, again), octets(t, f)) {
			t.Errorf("chunks of %d: %v", size, err)
		}
	}
	chunks, _ := Chunks(f, 1)
	for range chunks {
		break // a caller may stop
	}
}

// What a header states is no size to trust: two links of 2^63 octets have 0 together.
func TestChainSize(t *testing.T) {
	head := func(sizes ...uint64) []byte {
		r := &redisBloom{redisBloomHead: redisBloomHead{Links: uint32(len(sizes))}}
		for _, s := range sizes {
			r.links = append(r.links, redisBloomLink{redisBloomSizes: redisBloomSizes{Bytes: s}})
		}
		return r.head()
	}
	for _, tt := range []struct {
		head []byte
		want string
	}{
		{head(8, 16), "24"},
		{head(maxFile-8, 8), strconv.Itoa(maxFile)},
		{head(maxFile, 1), "its header tells of more than"},
		{head(1<<63, 1<<63), "its header tells of more than"},
		{head(math.MaxUint64), "its header tells of more than"},
		{head(8)[:30], "its header tells of 1 links, and has 10 octets"},
		{head(), "its header tells of 0 links"},
		{nil, "ends within its header"},
	} {
		octets, err := ChainSize(tt.head)
		if got := fmt.Sprint(octets); err == nil && got != tt.want || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%x: %s, %v, want %q", tt.head, got, err, tt.want)
		}
	}
}

// Numbers come from a server, where other programs can have written them.
func FuzzStoredNumbers(f *testing.F) {
	f.Add("9585", "7", "1000", "0.01", "", []byte("x"))
	f.Add("4294967294", "65536", "", "", murmurHash, []byte{})
	f.Add("-1", "1e9", "\"", "NaN", "sha1", []byte{255})
	f.Fuzz(func(t *testing.T, size, hashes, expected, p, hash string, data []byte) {
		numbers := map[string]string{"size": size, "hashIterations": hashes, "expectedInsertions": expected, "falseProbability": p, "hash": hash}
		filter, err := ReadStored(data, maps.Clone(numbers))
		if err == nil {
			filter.Has([]byte("promo@bulk.test"))
			if _, again, ok := Stored(filter); !ok || again["hash"] != hash {
				t.Errorf("%v is %v", numbers, again)
			}
		}
	})
}
