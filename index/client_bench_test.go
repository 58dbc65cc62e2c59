package index

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"blockd/internal/testkit"
)

// benchNets writes a list of n networks of IPv4, of /16 to /32 and some IPv6.
func benchNets(b *testing.B, n int) string {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "nets.txt"))
	if err != nil {
		b.Fatal(err)
	}
	w, rng := bufio.NewWriter(f), rand.New(rand.NewPCG(1, 2))
	for i := range n {
		var octets [16]byte
		binary.BigEndian.PutUint32(octets[:], rng.Uint32()|1<<24)
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte(octets[:4])), 16+rng.IntN(17))
		if i%10 == 0 {
			binary.BigEndian.PutUint64(octets[:], 0x20010db8<<32|uint64(rng.Uint32()))
			p = netip.PrefixFrom(netip.AddrFrom16(octets), 32+8*rng.IntN(9))
		}
		fmt.Fprintln(w, p.Masked())
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	return f.Name()
}

func BenchmarkLookupClient(b *testing.B) {
	path := filepath.Join(b.TempDir(), "nets.bdx")
	d, err := Build(b.Context(), path, []Source{plain("nets", benchNets(b, 1_000_000))}, seeded(1))
	if err != nil {
		b.Fatal(err)
	}
	if err := d.Publish(); err != nil {
		b.Fatal(err)
	}
	b.Run("open and first answer", func(b *testing.B) {
		defer testkit.ReportCPU(b)()
		for b.Loop() {
			ix, err := Open(path)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := ix.LookupClient(nil, netip.AddrFrom4([4]byte{198, 51, 100, 7}), testTime); err != nil {
				b.Fatal(err)
			}
		}
	})
	ix, err := Open(path)
	if err != nil {
		b.Fatal(err)
	}
	if err := ix.Promote(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, bm := range []struct {
		name string
		ip   func(rng *rand.Rand) netip.Addr
	}{
		{"IPv4", func(rng *rand.Rand) netip.Addr {
			return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, rng.Uint32())))
		}},
		{"IPv6", func(rng *rand.Rand) netip.Addr {
			return netip.AddrFrom16([16]byte(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 0x20010db8<<32|uint64(rng.Uint32())), rng.Uint64())))
		}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(3, 4))
			ips := make([]netip.Addr, 1<<12)
			for i := range ips {
				ips[i] = bm.ip(rng)
			}
			var dst []Match
			matches := 0
			b.ReportAllocs()
			b.ResetTimer()
			defer testkit.ReportCPU(b)()
			for i := 0; b.Loop(); i++ {
				if dst, err = ix.LookupClient(dst[:0], ips[i%len(ips)], testTime); err != nil {
					b.Fatal(err)
				}
				matches += len(dst)
			}
			b.ReportMetric(float64(matches)/float64(b.N), "matches/op")
		})
	}
}

func BenchmarkOpenWithPatterns(b *testing.B) {
	list := filepath.Join(b.TempDir(), "patterns.txt")
	f, err := os.Create(list)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 2500 {
		fmt.Fprintf(f, "/^.*@.*\\.bulk-%d-[0-9]+\\.example$/\n/^newsletter[0-9]*@(mx|mail)?%d\\./\n/(promo|offers)-%d[a-z]?@/\n*@*.shop%d*.test\n", i, i, i, i)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	source := plain("patterns", list)
	source.Settings.Patterns = true
	path := filepath.Join(b.TempDir(), "patterns.bdx")
	d, err := Build(b.Context(), path, []Source{source}, seeded(1))
	if err != nil {
		b.Fatal(err)
	}
	if err := d.Publish(); err != nil {
		b.Fatal(err)
	}
	a := sender(b, "anna.maria@mail.firm.test")
	b.Run("open and first answer", func(b *testing.B) {
		b.ReportAllocs()
		defer testkit.ReportCPU(b)()
		for b.Loop() {
			ix, err := Open(path)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := ix.Lookup(nil, a, testTime); err != nil {
				b.Fatal(err)
			}
		}
	})
	ix, err := Open(path)
	if err != nil {
		b.Fatal(err)
	}
	var dst []Match
	b.Run("clear sender", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dst, _ = ix.Lookup(dst[:0], a, testTime)
		}
	})
}
