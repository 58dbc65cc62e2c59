package filter

import (
	"bytes"
	"testing"

	"github.com/bits-and-blooms/bloom/v3"

	"blockd/internal/testkit"
)

// The library itself writes what we write, and reads it.
func TestBitsAndBlooms(t *testing.T) {
	ours := testkit.Value(New("bits", 10_000, 0.01))(t)
	theirs := bloom.NewWithEstimates(10_000, 0.01)
	long := bytes.Repeat([]byte("x"), 300)
	for i := range 10_000 {
		ours.Add(append(sender(i), long[:i%300]...))
		theirs.Add(append(sender(i), long[:i%300]...))
	}
	var written bytes.Buffer
	testkit.Value(theirs.WriteTo(&written))(t)
	if !bytes.Equal(octets(t, ours), written.Bytes()) {
		t.Fatal("we write other octets than bits-and-blooms")
	}
	var again bloom.BloomFilter
	testkit.Value(again.ReadFrom(bytes.NewReader(octets(t, ours))))(t)
	f := testkit.Value(read(contents{data: written.Bytes()}, ""))(t)
	for i := range 110_000 {
		if key := append(sender(i), long[:i%300]...); f.Has(key) != again.Test(key) {
			t.Fatalf("key %d: we say %v", i, f.Has(key))
		}
	}
}

// A filter that From has made of words ends within its set.
func TestBitsFrom(t *testing.T) {
	theirs := bloom.FromWithM(make([]uint64, 20), 1201, 5)
	for i := range 100 {
		theirs.Add(sender(i))
	}
	var written bytes.Buffer
	testkit.Value(theirs.WriteTo(&written))(t)
	f := testkit.Value(read(contents{data: written.Bytes()}, ""))(t)
	for i := range 10_000 {
		if f.Has(sender(i)) != theirs.Test(sender(i)) {
			t.Fatalf("key %d: we say %v", i, f.Has(sender(i)))
		}
	}
}
