package filter

import (
	"bytes"
	"slices"
	"testing"
)

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
