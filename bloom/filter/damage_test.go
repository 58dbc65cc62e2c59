package filter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

// small is a filter of each kind with 50 keys, as it is read.
func small(t testing.TB, kind string) (c contents, header int) {
	t.Helper()
	f := testkit.Value(New(kind, 50, 0.01))(t)
	for i := range 50 {
		f.Add(sender(i))
	}
	all := octets(t, f)
	switch kind {
	case "redisson", "bitmap":
		n := bytes.Index(all, []byte(`{"name"`))
		return contents{data: all[:n:n], config: all[n:]}, 0
	case "redisbloom":
		return contents{data: all}, chunkHead + redisBloomHeadSize + redisBloomLinkSize + chunkHead
	case "bits":
		return contents{data: all}, bitsHead
	}
	return contents{data: all}, guavaHead
}

// answers holds a filter that could be read to its octets: it asks it, and writes it again.
func answers(t *testing.T, what string, f Filter, c contents) {
	t.Helper()
	for i := range 100 {
		f.Has(sender(i))
	}
	written := octets(t, f)
	if r, ok := f.(*bitmap); ok {
		again, err := read(contents{data: r.array, config: written[len(r.array):]}, "")
		if err != nil {
			t.Fatalf("%s: written again: %v", what, err)
		}
		for i := range 100 {
			if f.Has(sender(i)) != again.Has(sender(i)) {
				t.Fatalf("%s: written again it answers otherwise", what)
			}
		}
		return
	}
	if !bytes.Equal(written, c.data) {
		t.Errorf("%s: read and written again it is another file", what)
	}
}

// allocated is how many octets fn allocates.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A damaged header gives an error, or the filter that it then describes; never more memory
// than the file has.
func TestDamage(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			whole, header := small(t, k.name)
			damaged, accepted := 0, 0
			try := func(what string, c contents) {
				var f Filter
				var err error
				n, bound := uint64(math.MaxUint64), uint64(len(c.data)+len(c.config))+8192
				for tries := 0; n > bound && tries < 3; tries++ { // what the runtime allocates meanwhile is counted too, and not each time
					own := contents{slices.Clone(c.data), c.config}
					n = allocated(func() { f, err = read(own, k.ending) })
				}
				if n > bound {
					t.Errorf("%s: %d octets allocated for %d", what, n, len(c.data))
				}
				if damaged++; err == nil {
					accepted++
					answers(t, what, f, c)
				}
			}
			for bit := range header * 8 {
				data := slices.Clone(whole.data)
				data[bit/8] ^= 1 << (bit % 8)
				try(fmt.Sprintf("octet %d, bit %d", bit/8, bit%8), contents{data, whole.config})
			}
			for i := range header {
				data := slices.Clone(whole.data)
				data[i] = ^data[i]
				try(fmt.Sprintf("octet %d", i), contents{data, whole.config})
			}
			for n := range whole.data {
				try(fmt.Sprintf("%d octets", n), contents{slices.Clone(whole.data[:n]), whole.config})
			}
			for bit := range len(whole.config) * 8 {
				config := slices.Clone(whole.config)
				config[bit/8] ^= 1 << (bit % 8)
				try("config "+string(config), contents{whole.data, config})
			}
			for n := range whole.config {
				try("config "+string(whole.config[:n]), contents{whole.data, whole.config[:n:n]})
			}
			t.Logf("%d damaged files, %d of them valid as they read", damaged, accepted)
		})
	}
}

// A header of many links without data takes no memory for them.
func TestLinksWithoutData(t *testing.T) {
	const links = 100_000
	head := binary.LittleEndian.AppendUint32(make([]byte, 8), links)
	head = append(head, make([]byte, redisBloomHeadSize-len(head)+links*redisBloomLinkSize)...)
	var b bytes.Buffer
	testkit.Must(t, writeChunk(&b, 1, head))
	var err error
	if n := allocated(func() { _, err = read(contents{data: b.Bytes()}, ".rbd") }); err == nil || n > 8192 {
		t.Errorf("%d octets allocated, %v", n, err)
	}
}

// A file that is cut off, or is longer than its filter, is no filter.
func TestLengths(t *testing.T) {
	for _, k := range kinds {
		if k.name == "redisson" || k.name == "bitmap" {
			continue // a bitmap ends with its last bit
		}
		whole, _ := small(t, k.name)
		for n := range whole.data {
			if _, err := read(contents{data: slices.Clone(whole.data[:n])}, k.ending); err == nil {
				t.Errorf("%s: %d octets of %d are a filter", k.name, n, len(whole.data))
			}
		}
		if _, err := read(contents{data: append(whole.data, 0)}, k.ending); err == nil {
			t.Errorf("%s: an octet after the end is not seen", k.name)
		}
	}
}

// The contents say what a file is, whatever its name; no file is of two kinds.
func TestKindByContents(t *testing.T) {
	for _, k := range kinds {
		whole, _ := small(t, k.name)
		f := testkit.Value(read(whole, ".txt"))(t)
		testkit.Equal(t, "kind", f.Kind(), k.name)
		for _, other := range kinds {
			testkit.Equal(t, fmt.Sprintf("%s is taken for %s", k.name, other.name), other.is(whole), other.name == k.name)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	whole, _ := small(t, "redisson")
	testkit.Write(t, filepath.Join(dir, "bl.bitmap"), whole.data)
	testkit.Write(t, filepath.Join(dir, "kryo.bitmap"), whole.data)
	testkit.Write(t, filepath.Join(dir, "kryo.json"), strings.Replace(string(whole.config), `{`, `{"codec":"org.redisson.codec.Kryo5Codec",`, 1))
	testkit.Write(t, filepath.Join(dir, "x.bf"), "\x01\x07\x00\x00\x00\x02........")
	testkit.Write(t, filepath.Join(dir, "x.txt"), "one@bulk.example\n")
	testkit.Write(t, filepath.Join(dir, "chunks", "a-1.chunk"), "x")
	testkit.Write(t, filepath.Join(dir, "chunks", "b-1.chunk"), "x")
	testkit.Write(t, filepath.Join(dir, "empty", "x"), "x")
	for name, want := range map[string]string{
		"bl.bitmap":   "its size and hashes stand in bl.json, which is missing",
		"kryo.bitmap": "its codec is Kryo5Codec, which makes octets of a key that only Java knows; use StringCodec",
		"x.bf":        "as guava: its header tells of 2 longs, and 8 octets follow",
		"x.txt":       "no filter of a known kind by its contents; an ending can say which it should be: .bitmap, .bf, .rbd, .bits",
		"chunks":      "has the chunks of several filters; name one, such as " + filepath.Join(dir, "chunks", "a"),
		"chunks/a":    "its header",
		"empty":       "has no files NAME-ITERATOR.chunk",
		"gone":        "no such file",
	} {
		if _, err := Open(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	sparse := testkit.Write(t, filepath.Join(dir, "sparse.bf"), "")
	if err := os.Truncate(sparse, 1<<40); err != nil {
		t.Log(err) // a file system without files of this size
	} else if _, err := Open(sparse); err == nil || !strings.Contains(err.Error(), "more than any filter has") {
		t.Errorf("a file of 1 TiB: %v", err)
	}
	if _, err := Open(os.DevNull); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a device: %v", err)
	}
}

// What was written as OUT is read as OUT, with its ending or without.
func TestOpenByTheNameOfExport(t *testing.T) {
	for _, k := range kinds {
		for _, out := range []string{"bl", "bl" + k.ending, "bl.json"} {
			if out == "bl.json" && k.name != "redisson" && k.name != "bitmap" {
				continue
			}
			f := testkit.Value(New(k.name, 1, 0.01))(t)
			out = filepath.Join(t.TempDir(), out)
			for _, file := range f.Files(out) {
				var b bytes.Buffer
				testkit.Must(t, file.Write(&b))
				testkit.Write(t, file.Path, b.String())
			}
			testkit.Equal(t, fmt.Sprintf("as %s", filepath.Base(out)), testkit.Value(Open(out))(t).Kind(), k.name)
		}
	}
}

// The numbers of a Redisson filter are those of its hash in Redis, which are texts there.
func TestRedissonNumbers(t *testing.T) {
	for config, want := range map[string]string{
		`{"size":80,"hashIterations":7,"expectedInsertions":8,"falseProbability":0.01}`:           "",
		`{"size":"80","hashIterations":"7","expectedInsertions":"8","falseProbability":"1.0E-4"}`: "",
		`{"size":80,"hashIterations":7}`:     "",
		`{"size":80.5,"hashIterations":7}`:   `size: want a number, have "80.5"`,
		`{"size":80,"hashIterations":"-7"}`:  `hashIterations: want a number, have "-7"`,
		`{"size":"many","hashIterations":7}`: "its .json",
		`{"hashIterations":7}`:               "a size of 0",
		`null`:                               "0 hashIterations",
		`{"size":80,"hashIterations":7,"codec":"org.redisson.codec.MarshallingCodec"}`: "its codec is MarshallingCodec",
	} {
		f, err := read(contents{make([]byte, 10), []byte(config)}, ".bitmap")
		if want == "" && (err != nil || f.(*bitmap).Size != 80 || f.(*bitmap).HashIterations != 7) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

func TestNewErrors(t *testing.T) {
	for _, tt := range []struct {
		kind string
		n    uint64
		p    float64
		want string
	}{
		{"cuckoo", 1, 0.01, `no kind of filter "cuckoo"; want one of bitmap, bits, guava, redisbloom, redisson`},
		{"guava", 1, 0, "want a rate"},
		{"guava", 1, 1, "want a rate"},
		{"redisson", 1 << 31, 0.01, "Redisson has room for 4294967294"},
		{"guava", 1 << 35, 0.01, "Guava has room for 137438953408"},
		{"bits", 1 << 60, 0.01, "bits-and-blooms has room for 1099511627776"},
		{"redisbloom", 1 << 60, 0.01, "RedisBloom has room for 1099511627776"},
	} {
		if _, err := New(tt.kind, tt.n, tt.p); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %d %g: %v, want %q", tt.kind, tt.n, tt.p, err, tt.want)
		}
	}
	for _, k := range Kinds() { // none and few keys are served too
		for _, p := range []float64{MinRate, 0.5, 0.999999} {
			if f, err := New(k, 0, p); err != nil {
				t.Error(k, err)
			} else if f.Add([]byte("x")); !f.Has([]byte("x")) {
				t.Errorf("%s at %g loses its key", k, p)
			}
		}
	}
}

// FuzzRead gives files of any contents to the readers: they answer, and what they take is
// written again as it was.
func FuzzRead(f *testing.F) {
	for n, k := range kinds {
		whole, _ := small(f, k.name)
		f.Add(whole.data, uint8(n))
	}
	f.Fuzz(func(t *testing.T, data []byte, n uint8) {
		k := kinds[int(n)%len(kinds)]
		if k.name == "redisson" || k.name == "bitmap" {
			return
		}
		got, err := k.read(contents{data: slices.Clone(data)})
		if err != nil {
			return
		}
		got.Has([]byte("promo@bulk.example"))
		written := octets(t, got)
		if k.name != "redisbloom" { // whose chunks may be cut otherwise
			if !bytes.Equal(written, data) {
				t.Fatalf("read and written again it is another file")
			}
			return
		}
		again, err := k.read(contents{data: slices.Clone(written)})
		if err != nil || !bytes.Equal(octets(t, again), written) {
			t.Fatalf("what was written cannot be read again: %v", err)
		}
	})
}

// FuzzRedisson gives it any config beside a bitmap.
func FuzzRedisson(f *testing.F) {
	whole, _ := small(f, "redisson")
	f.Add(whole.data, whole.config)
	f.Fuzz(func(t *testing.T, data, config []byte) {
		got, err := readBitmap(contents{data: data, config: config})
		if err != nil {
			return
		}
		written := octets(t, got)
		again, err := readBitmap(contents{data: data, config: written[len(data):]})
		if key := []byte("promo@bulk.example"); err != nil || again.Has(key) != got.Has(key) {
			t.Fatalf("what was written answers otherwise: %v", err)
		}
	})
}
