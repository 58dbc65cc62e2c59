package wire

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

func TestChunkTakesExactlyItsOctets(t *testing.T) {
	tests := []struct {
		name  string
		size  int64
		input string
		want  string
	}{
		{"nothing", 0, "QUIT\r\n", ""},
		{"less than there is", 3, "abcQUIT\r\n", "abc"},
		{"all there is", 3, "abc", "abc"},
		{"more than there is", 9, "abc", "abc"},
		{"any octet", 6, "\x00\n.\r\n.\r\n", "\x00\n.\r\n."},
		{"32 bits are not enough", 1 << 32, "abc", "abc"},
		{"63 bits", math.MaxInt64, "abc", "abc"},
		{"a size that is none", -1, "abc", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for piece := 1; piece <= len(tt.input); piece++ {
				c := NewChunk(tt.size)
				var got []byte
				for rest := []byte(tt.input); len(rest) > 0; {
					n := min(piece, len(rest))
					got = append(got, c.Take(rest[:n])...)
					rest = rest[n:]
				}
				if left := max(tt.size, 0) - int64(len(got)); string(got) != tt.want || c.Left() != left {
					t.Errorf("in pieces of %d: took %q, %d left; want %q, %d", piece, got, c.Left(), tt.want, left)
				}
			}
		})
	}
}

// FuzzChunk reads a stream of chunks as a session does, and the same stream with
// nothing but slices: each must see the same chunks and the same rest.
func FuzzChunk(f *testing.F) {
	f.Add([]byte("5 hello0 6 QUIT\r\n"), uint64(1))
	f.Add([]byte("10 short"), uint64(2))
	f.Add([]byte("9223372036854775807 all of it"), uint64(3))
	f.Add([]byte("3 abc4294967296 abc"), uint64(4))
	f.Add([]byte("1 2 3 4 5 "), uint64(5))
	f.Fuzz(func(t *testing.T, input []byte, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 0))
		rest := input
		for {
			head, body, ok := bytes.Cut(rest, []byte(" "))
			size, err := strconv.ParseInt(string(head), 10, 64)
			if !ok || err != nil || size < 0 {
				return
			}
			n := int(min(size, int64(len(body)))) // the judge
			c := NewChunk(size)
			var got []byte
			stream := body
			for c.Left() > 0 && len(stream) > 0 {
				k := 1 + rng.IntN(len(stream))
				taken := c.Take(stream[:k])
				got = append(got, taken...)
				stream = stream[len(taken):]
			}
			if !bytes.Equal(got, body[:n]) || !bytes.Equal(stream, body[n:]) || c.Left() != size-int64(n) {
				t.Fatalf("chunk of %d: took %q and left %q, %d to come; want %q, %q, %d",
					size, got, stream, c.Left(), body[:n], body[n:], size-int64(n))
			}
			rest = body[n:]
		}
	})
}
