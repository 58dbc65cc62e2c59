package index

import (
	"bytes"
	"path/filepath"
	"strconv"
	"testing"

	"blockd/bloom"
	"blockd/index/internal/build"
	"blockd/internal/testkit/race"
	"blockd/lists"
	"blockd/mail/addr"
)

// hostileDomains are n names of which the first evil satisfy want.
func hostileDomains(n, evil int, want func(name []byte) bool) []listed {
	entries := make([]listed, 0, n)
	var name []byte
	for i := 0; len(entries) < n; i++ {
		name = append(strconv.AppendInt(append(name[:0], 'd'), int64(i), 10), ".some.name.of.a.usual.length.test"...)
		if len(entries) < evil && !want(name) {
			continue
		}
		entries = append(entries, listed{key: addr.Key{Text: string(name), Kind: addr.Domain, Labels: 8}, scope: lists.Exact, line: i + 1})
	}
	return entries
}

func draftOfHostile(t *testing.T, o Options, h build.Hooks, entries []listed) *Draft {
	t.Helper()
	d := draftOf(t, filepath.Join(t.TempDir(), "x.bdx"), o, h, rowsNamed(1), entries)
	t.Cleanup(d.Discard)
	for _, e := range entries {
		if got, err := d.Index().lookup(nil, []addr.Key{e.key}, 0); err != nil || len(got) != 1 || got[0].Line != e.line {
			t.Fatalf("lookup(%s) = %v, %v", e.key.Text, got, err)
		}
	}
	return d
}

// Whoever knows a seed can choose a thousand names for one page of 1,700.
func TestCrowdedPageIsReseeded(t *testing.T) {
	race.Skip(t)
	o := seeded(1)
	key := bloom.Seed(o.Seed.HashKey)
	entries := hostileDomains(100_000, 1000, func(name []byte) bool { return key.Sum(name).Hi>>53 == 0 })
	d := draftOfHostile(t, o, build.Hooks{}, entries)
	if d.Report.Reseeds != 1 || d.Report.Hash != "xxh3" {
		t.Errorf("%d reseeds, hash %s, want 1 and xxh3", d.Report.Reseeds, d.Report.Hash)
	}
	if d.Index().file.Hash.Key == key {
		t.Error("the known key is still in use")
	}
	if d.Report.Keys != 100_000 || d.Report.Entries != 100_000 || d.Report.Duplicates != 0 {
		t.Errorf("report %+v", d.Report)
	}
}

// Names that collide under every seed of XXH3 are not known; a weaker hash in
// its place has them.
func TestSeedIndependentCollisionsLeadToSipHash(t *testing.T) {
	o := seeded(2)
	weak := func(key []byte) bloom.Hash {
		if bytes.HasPrefix(key, []byte("d1")) {
			return bloom.Hash{Hi: 1, Lo: 1}
		}
		return bloom.Seed{}.Sum(key)
	}
	entries := hostileDomains(20_000, 1000, func(name []byte) bool { return name[1] == '1' })
	d := draftOfHostile(t, o, build.Hooks{Weak: weak}, entries)
	if d.Report.Reseeds != 3 || d.Report.Hash != "siphash" {
		t.Errorf("%d reseeds, hash %s, want 3 and siphash", d.Report.Reseeds, d.Report.Hash)
	}
}
