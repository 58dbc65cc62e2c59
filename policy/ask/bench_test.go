package ask

import (
	"fmt"
	"testing"

	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/policy/verdict"
)

// BenchmarkClearSender is what a list of a million addresses and names adds to a sender that is not on its filter. The
// sender has four keys: the address, its local-part, the domain and its parent.
func BenchmarkClearSender(b *testing.B) {
	s, all := newSet(b, &scripted{answer: having()}, nil)
	f := NewFilter(1_000_000)
	for i := range 500_000 {
		f.Add(domain(i))
		f.Add(addr.Key{Text: fmt.Sprintf("u%d@b%d.example", i, i), Kind: addr.Address})
	}
	f.Add(addr.Key{Text: "offers@", Kind: addr.Local})
	f.Add(addr.Key{Text: "invalid", Kind: addr.Domain, Labels: 1})
	s.UseFilter(f)
	var senders []addr.Addr
	for i := 0; len(senders) < 1<<12; i++ {
		a, err := addr.Parse(fmt.Sprintf("someone.%d@c%d.example", i, i))
		testkit.Must(b, err)
		if all.Begin(a, addr.Key{}, verdict.EnvelopeSource) == nil {
			senders = append(senders, a)
		}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if all.Begin(senders[i&(len(senders)-1)], addr.Key{}, verdict.EnvelopeSource) != nil {
			b.Fatal("perhaps")
		}
		i++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4, "ns/key")
}
