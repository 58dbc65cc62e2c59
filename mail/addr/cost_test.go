package addr

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"blockd/internal/testkit"
)

func TestAllocations(t *testing.T) {
	tests := []struct {
		name, in string
		want     float64
	}{
		{"canonical address", "promo@mail.bulk.test", 0},
		{"canonical address in brackets", "<promo@mail.bulk.test>", 0},
		{"source route", "<@relay.test:promo@mail.bulk.test>", 0},
		{"trailing dot", "promo@mail.bulk.test.", 0},
		{"null", "<>", 0},
		{"capitals", "Promo@Mail.Bulk.TEST", 1},
	}
	dst := make([]Key, 0, MaxKeys)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := testing.AllocsPerRun(100, func() {
				a := testkit.Value(Parse(tt.in))(t)
				dst = a.Keys(dst[:0])
			})
			testkit.Equal(t, fmt.Sprintf("Parse(%q) and Keys: allocations", tt.in), got, tt.want)
		})
	}
	path := []byte(`<@relay.test:"Odd One"@Mail.Bulk.TEST> SIZE=1`)
	if got := testing.AllocsPerRun(100, func() {
		if _, _, err := ParsePath(path); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("ParsePath(%q): %v allocations, want 0", path, got)
	}
	domain := "mail.bulk.test"
	if got := testing.AllocsPerRun(100, func() {
		if _, err := DomainKey(domain); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("DomainKey(%q): %v allocations, want 0", domain, got)
	}
}

// BenchmarkParse parses senders of different forms, whose dots a processor cannot learn
// by heart, and makes their keys.
func BenchmarkParse(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	senders := make([]string, 1<<16)
	for i := range senders {
		part := func() string { return strings.Repeat("ne", 1+rng.IntN(4)) + "lk"[:rng.IntN(3)] }
		senders[i] = fmt.Sprintf("%s.%s%d@%s-%s.%s", part(), part(), rng.IntN(1e5), part(), part(),
			[]string{"com", "example", "info", "net", "de"}[rng.IntN(5)])
	}
	dst := make([]Key, 0, MaxKeys)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		a, err := Parse(senders[i&(1<<16-1)])
		if err != nil {
			b.Fatal(err)
		}
		dst = a.Keys(dst[:0])
	}
}
