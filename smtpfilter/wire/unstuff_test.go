package wire

import (
	"math/rand/v2"
	"strings"
	"testing"
)

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
