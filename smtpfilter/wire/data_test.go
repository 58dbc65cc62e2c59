package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// plainScan is the slow, obvious judge of Data: the end is the first
// CRLF.CRLF, the fault the first bare octet before it; -1 where there is none.
// A CR at the very end of the input is neither: nobody knows yet.
func plainScan(input []byte) (end, fault int) {
	stream := append([]byte("\r\n"), input...) // the CRLF of DATA
	end, fault = -1, -1
	if i := bytes.Index(stream, []byte("\r\n.\r\n")); i >= 0 {
		end = i + 5 - 2
	}
	for i := 2; i < len(stream) && (end < 0 || i < end+2) && fault < 0; i++ {
		switch {
		case stream[i] == 0,
			stream[i] == '\n' && stream[i-1] != '\r',
			stream[i] == '\r' && i+1 < len(stream) && stream[i+1] != '\n':
			fault = i - 2
		}
	}
	return end, fault
}

// scanInPieces feeds input to a Data as a session would: a buffer gets the next
// piece, whose size comes from next, and keeps what was not settled.
func scanInPieces(t *testing.T, input []byte, next func() int) (end, fault int, settled []byte) {
	t.Helper()
	var d Data
	var buffer []byte
	fault = -1
	for {
		n, done, err := d.Scan(buffer)
		if n < 0 || n > len(buffer) {
			t.Fatalf("Scan settled %d of %d octets", n, len(buffer))
		}
		settled = append(settled, buffer[:n]...)
		buffer = buffer[n:]
		switch {
		case done && err != nil:
			t.Fatal("done with an error")
		case done:
			if want := plainSize(settled); fault < 0 && d.Size() != want {
				t.Fatalf("Size of %.200q = %d, want %d", settled, d.Size(), want)
			}
			return len(settled), fault, settled
		case err != nil && (fault >= 0 || !errors.Is(err, ErrBare)):
			t.Fatalf("unexpected error: %v", err)
		case err != nil:
			fault = len(settled)
			continue
		}
		if len(buffer) > 1 {
			t.Fatalf("%d octets left unsettled: %q", len(buffer), buffer)
		}
		if len(input) == 0 {
			return -1, fault, settled
		}
		k := min(max(next(), 1), len(input))
		buffer = append(bytes.Clone(buffer), input[:k]...)
		input = input[k:]
	}
}

// plainSize is the judge of Size: the message as its reader gets it.
func plainSize(data []byte) int64 {
	body := strings.TrimSuffix("\r\n"+string(data), ".\r\n")
	return int64(len(strings.ReplaceAll(body, "\r\n.", "\r\n"))) - int64(len("\r\n"))
}

func compareScan(t *testing.T, input []byte, next func() int) {
	t.Helper()
	wantEnd, wantFault := plainScan(input)
	end, fault, settled := scanInPieces(t, input, next)
	if end != wantEnd || fault != wantFault {
		t.Fatalf("Scan(%.200q): end %d, fault %d; want %d, %d", input, end, fault, wantEnd, wantFault)
	}
	if !bytes.HasPrefix(input, settled) {
		t.Fatalf("Scan(%.200q) settled %.200q: output is not the input", input, settled)
	}
}

func TestDataFindsTheEnd(t *testing.T) {
	tests := []struct{ name, input string }{
		{"empty message", ".\r\n"},
		{"one line", "hello\r\n.\r\n"},
		{"commands behind the dot", "hello\r\n.\r\nMAIL FROM:<>\r\n"},
		{"stuffed dot", "..\r\n.\r\n"},
		{"dot and text", ".x\r\n.\r\n"},
		{"dot at the end of a line", "x.\r\n.\r\n"},
		{"no end", "hello\r\n."},
		{"P5b: CR CR LF, then the real end", "a\r\r\n.\r\nQUIT\r\n"},
		{"P5b: body that ends in a bare CR", "a\r\r\n.\r\n"},
		{"bare CR directly before the end", "a\r.\r\n.\r\n"},
		{"bare LF", "a\nb\r\n.\r\n"},
		{"bare LF as first octet", "\n.\r\n.\r\n"},
		{"NUL as first octet", "\x00\r\n.\r\n"},
		{"NUL between CR and LF", "a\r\x00\n.\r\n.\r\n"},
		{"NUL behind the end", ".\r\n\x00"},
		{"bare LF behind the end", ".\r\n\n"},
		{"LF.LF", "a\n.\nb\r\n.\r\n"},
		{"LF.CRLF", "a\n.\r\nb\r\n.\r\n"},
		{"CR.CR", "a\r.\rb\r\n.\r\n"},
		{"CR.CRLF", "a\r.\r\nb\r\n.\r\n"},
		{"CRLF.LF", "a\r\n.\nb\r\n.\r\n"},
		{"CRLF.CR", "a\r\n.\rb\r\n.\r\n"},
		{"CRLF.CRCRLF", "a\r\n.\r\r\nb\r\n.\r\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for size := 1; size <= len(tt.input); size++ {
				compareScan(t, []byte(tt.input), func() int { return size })
			}
		})
	}
}

// smuggled are the sequences that some server has taken for the end of data:
// each must be refused as bare, wherever buffers are cut.
func smuggled() []string {
	return []string{
		"\n.\n", "\n.\r\n", "\r\n.\n", "\r.\r", "\r.\r\n", "\r\n.\r", "\r.\n", "\n.\r",
		"\r\n.\r\r\n", "\r\r\n.\r\r\n", "\n\n.\r\n", "\r\n\x00.\r\n", "\r\n.\x00\r\n",
	}
}

// TestP5SmugglingMatrix puts every sequence at every border that a buffer has
// here (4,096 and 32,768 octets) and at plain places.
func TestP5SmugglingMatrix(t *testing.T) {
	for _, seq := range smuggled() {
		for _, before := range []int{0, 1, 70, 998, 4090, 4093, 4094, 4095, 4096, 4097, 32764, 32766, 32767, 32768, 32769} {
			for _, long := range []bool{false, true} {
				head := bytes.Repeat([]byte("x"), before)
				if !long {
					for i := 70; i+1 < before; i += 72 {
						head[i], head[i+1] = '\r', '\n'
					}
				}
				input := bytes.Join([][]byte{head, []byte(seq), []byte("MAIL FROM:<smuggled@bad.example>\r\n.\r\n")}, nil)
				sizes := []int{4096, 32768, len(input)}
				if before < 5000 {
					sizes = append(sizes, 1)
				}
				for _, size := range sizes {
					end, fault, settled := scanInPieces(t, input, func() int { return size })
					if fault < 0 || end != len(input) {
						t.Fatalf("%q behind %d octets, pieces of %d: fault %d, end %d of %d", seq, before, size, fault, end, len(input))
					}
					if forwarded := settled[:fault]; bytes.Contains(forwarded[min(before, fault):], []byte("MAIL")) {
						t.Fatalf("%q: settled %q before the fault", seq, forwarded)
					}
				}
			}
		}
	}
}

func TestDataAgreesWithPlainSearch(t *testing.T) {
	const letters = "\r\n.\r\n.\r\n.a\x00"
	for seed := range uint64(20000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		input := make([]byte, rng.IntN(24))
		for i := range input {
			input[i] = letters[rng.IntN(len(letters))]
		}
		compareScan(t, input, func() int { return 1 + rng.IntN(5) })
	}
}

func FuzzData(f *testing.F) {
	for _, seq := range smuggled() {
		f.Add([]byte("a"+seq+"b\r\n.\r\nQUIT\r\n"), uint64(1))
	}
	f.Add([]byte("Subject: x\r\n\r\n..\r\n.\r\n"), uint64(2))
	f.Add([]byte(".\r\n"), uint64(3))
	f.Fuzz(func(t *testing.T, input []byte, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 1))
		compareScan(t, input, func() int { return 1 + rng.IntN(1+rng.IntN(64)) })
	})
}

func TestScanDoesNotAllocate(t *testing.T) {
	body := []byte(strings.Repeat("a line of the usual length, as people and programs write it\r\n", 500))
	if n := testing.AllocsPerRun(100, func() {
		var d Data
		if _, _, err := d.Scan(body); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Scan allocates %v times, want 0", n)
	}
}

func ExampleData() {
	var d Data
	in := []byte("Subject: hello\r\n\r\nhello\r\n.\r\nQUIT\r\n")
	n, done, err := d.Scan(in)
	fmt.Printf("%q %v %v\n", in[n:], done, err)
	// Output: "QUIT\r\n" true <nil>
}

// TestUnstuffAgreesWithReplace cuts random data anywhere.
func TestUnstuffAgreesWithReplace(t *testing.T) {
	pieces := []string{"\r\n", "..", "x", "\r\n..", "a line of text", "."}
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var b strings.Builder
		for range rng.IntN(12) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		b.WriteString("\r\n.\r\n")
		data := b.String()
		end, fault := plainScan([]byte(data))
		if fault >= 0 {
			continue
		}
		data = data[:end]
		body := strings.TrimSuffix("\r\n"+data, ".\r\n")
		want := strings.ReplaceAll(body, "\r\n.", "\r\n")[2:] + "\r\n"

		var u Unstuff
		var got []byte
		for rest := []byte(data); len(rest) > 0; {
			n := 1 + rng.IntN(len(rest))
			for p := rest[:n]; len(p) > 0; {
				var text []byte
				text, p = u.Next(p)
				got = append(got, text...)
			}
			rest = rest[n:]
		}
		if string(got) != want {
			t.Fatalf("seed %d: %q gives %q, want %q", seed, data, got, want)
		}
	}
}

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
