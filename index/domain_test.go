package index

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"blockd/lists"
	"blockd/mail/addr"
)

// TestLookupDomainIsWhatAllItsSendersHaveInCommon asks for a domain and compares
// with a sender there whose local-part no list has.
func TestLookupDomainIsWhatAllItsSendersHaveInCommon(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		entries := randomEntries(t, rng, 5, rng.IntN(600))
		ix := indexOf(t, seeded(byte(seed)), rowsNamed(5), entries)
		if seed%2 == 1 {
			allPerhaps(t, ix)
		}
		for range 200 {
			domain := randomDomain(rng)
			got, err := ix.LookupDomain(nil, domainKey(t, domain), testTime)
			want := model(entries).lookup(sender(t, "nobody-there@"+domain), testTime.Unix())
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: LookupDomain(%s) =\n%v, %v\nmodel says\n%v", seed, domain, got, err, want)
			}
		}
	}
}

// TestProbeTellsFilterAndStoreApart holds both answers against the entries.
func TestProbeTellsFilterAndStoreApart(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 4))
		entries := randomEntries(t, rng, 3, rng.IntN(300))
		for i := range 20 {
			entries = append(entries, netListed(nearNet(rng), listed{row: 2, line: 1000 + i}))
		}
		ix := indexOf(t, seeded(byte(seed)), rowsNamed(3), entries)
		perhaps := seed%2 == 1
		if perhaps {
			allPerhaps(t, ix)
		}
		asked, wrong := ix.asked.Load(), ix.falsePositives.Load()
		for range 100 {
			keys, ip := sender(t, randomSender(rng)).Keys(nil), nearIP(rng)
			probes, err := ix.Probe(keys, ip)
			if err != nil || len(probes) < len(keys) {
				t.Fatalf("%d probes of %d keys, %v", len(probes), len(keys), err)
			}
			for i, p := range probes {
				isNet := i >= len(keys)
				held := slices.ContainsFunc(entries, func(e listed) bool {
					return isNet && e.net == p.Net || !isNet && e.key == keys[i]
				})
				switch {
				case p.Listed != held, held && !p.Perhaps, perhaps && p.Perhaps != p.Asked, !p.Asked && p.Perhaps:
					t.Fatalf("seed %d: %+v, held: %v", seed, p, held)
				case isNet && !p.Net.Contains(ip), !isNet && p.Key != keys[i]:
					t.Fatalf("seed %d: probe %d is of %+v", seed, i, p)
				}
			}
		}
		if ix.asked.Load() != asked || ix.falsePositives.Load() != wrong {
			t.Error("a probe counted as a look-up")
		}
	}
	ix := indexOf(t, seeded(1), rowsNamed(1), []listed{{key: addr.Key{Text: "bulk.test", Kind: addr.Domain, Labels: 2}, scope: lists.Tree, line: 1}})
	if probes, err := ix.Probe(nil, netip.MustParseAddr("192.0.2.1")); err != nil || len(probes) != 0 {
		t.Errorf("networks where there are none: %v, %v", probes, err)
	}
}
