package history

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

// TestOctets holds what is done with eight octets at a time against what is done with one.
func TestOctets(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	letters := [...]string{"abcxyzABCXYZ019@[`{. \t\n\x0b\x09\x7f\x00", "aZ\n\x80\xff\x0a\x8a\x01\x0b", "\n\x0b", "az"}
	for range 20_000 {
		from := letters[r.IntN(len(letters))]
		text := make([]byte, r.IntN(40))
		for i := range text {
			text[i] = from[r.IntN(len(from))]
		}
		if got, want := lastEnd(text), bytes.LastIndexByte(text, '\n'); got != want {
			t.Fatalf("lastEnd(%q) is %d, want %d", text, got, want)
		}
		is := !bytes.ContainsFunc(text, func(c rune) bool { return c >= 0x80 })
		low, ascii := lowered([]byte("x"), text)
		if ascii != is || is && string(low) != "x"+strings.ToLower(string(text)) {
			t.Fatalf("lowered(%q) is %q, %t", text, low, ascii)
		}
	}
}

// BenchmarkPassed looks for what no decision has, among two million, and for what few have.
//
//	go test ./records/history -run '^$' -bench Passed -benchtime 3x
func BenchmarkPassed(b *testing.B) {
	const decisions = 2_000_000
	folder := tenMillion(b, decisions)
	for _, q := range []Query{{Text: "no-such-text"}, {Recipient: "somebody.77@here.example"}, {Client: netip.MustParsePrefix("192.0.2.1/32")}} {
		b.Run(q.Text+q.Recipient+q.Client.String(), func(b *testing.B) {
			for b.Loop() {
				if _, err := Search(b.Context(), folder, q); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(decisions)*float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}
