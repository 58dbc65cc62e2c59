package index

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"blockd/index/internal/build"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
)

// mixedSources are lists with duplicates, reasons, exceptions, all kinds of keys, a
// refused source and one of a format that one worker reads alone.
func mixedSources(t testing.TB, lines int) []Source {
	t.Helper()
	rng := rand.New(rand.NewPCG(11, 11))
	var sources []Source
	for n := range 3 {
		var b strings.Builder
		for range lines {
			mark := []string{"", "", "", "!"}[rng.IntN(4)]
			switch rng.IntN(8) {
			case 0:
				fmt.Fprintf(&b, "%soffers%d@\n", mark, rng.IntN(lines))
			case 1:
				fmt.Fprintf(&b, "198.51.%d.%d\n", rng.IntN(100), rng.IntN(250))
			case 2, 3, 4:
				fmt.Fprintf(&b, "%suser%d@d%d.test\n", mark, rng.IntN(2*lines), rng.IntN(100))
			default:
				fmt.Fprintf(&b, "%sd%d.example.test\n", mark, rng.IntN(2*lines))
			}
		}
		b.WriteString("#? pass nobody@clear.test\n")
		s := plain(fmt.Sprint("plain", n), testkit.File(t, fmt.Sprint(n, ".txt"), b.String()))
		if n > 0 {
			s.Settings.Reason = fmt.Sprint("list number ", n)
		}
		sources = append(sources, s)
	}
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "d%d.example.test REJECT reason %d\n", rng.IntN(2*lines), rng.IntN(lines)%(1+i))
	}
	access := plain("access", testkit.File(t, "access", b.String()))
	access.Settings.Format = "postfix"
	torn := plain("torn", testkit.File(t, "torn.gz", tornGzip(t)))
	torn.Settings.Reason = "of the torn list"
	missing := plain("later", filepath.Join(t.TempDir(), "absent.txt"))
	missing.Optional = true
	return append(sources, torn, access, missing)
}

func builtBytes(t testing.TB, sources []Source, o Options) ([]byte, Report) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.bdx")
	d := built(t, path, sources, o)
	publish(t, d)
	data := testkit.Read(t, path)
	if left := temporaryFiles(t, filepath.Dir(path)); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
	return data, d.Report
}

func TestSameBytesWhateverTheWorkersAndMemory(t *testing.T) {
	sources := mixedSources(t, 40_000)
	o := seeded(6)
	o.KeepGoing, o.Workers, o.Memory = true, 1, 1<<30
	want, report := builtBytes(t, sources, o)
	if report.Spilled != 0 || report.Duplicates < 1000 {
		t.Fatalf("the build to compare with: %+v", report)
	}
	for _, tt := range []struct {
		workers int
		memory  int64
		spills  bool
	}{{1, 1 << 20, true}, {2, 1 << 30, false}, {2, 2 << 20, true}, {3, 1 << 20, true}, {8, 3 << 20, true}, {8, 0, false}} {
		o.Workers, o.Memory = tt.workers, tt.memory
		got, report := builtBytes(t, sources, o)
		if report.Spilled > 0 != tt.spills {
			t.Errorf("%d workers, %d octets: %d octets spilled", tt.workers, tt.memory, report.Spilled)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d workers, %d octets: other bytes than one worker gives", tt.workers, tt.memory)
		}
	}
}

// A list of every entry twice has half the keys: the filter is sized by them, and
// a hole is where it might have ended.
func TestFilterIsSizedByKeys(t *testing.T) {
	var b strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&b, "d%d.test\nd%d.test\n", i, i)
	}
	_, r := builtBytes(t, []Source{plain("twice", testkit.File(t, "twice.txt", b.String()))}, Options{})
	if r.Keys != 100_000 || r.Duplicates != 100_000 || r.FilterBits > 12*100_000+256 {
		t.Errorf("%d keys, %d duplicates, filter of %d bits", r.Keys, r.Duplicates, r.FilterBits)
	}
}

func TestCrowdedBuildSpills(t *testing.T) {
	o := seeded(1)
	o.Memory = 1 << 20
	key := o.Seed.HashKey
	entries := hostileDomains(30_000, 1000, func(name []byte) bool {
		s := format.Hasher{Kind: format.HashXXH3, Key: key}
		return s.Sum(name).Hi>>53 == 0
	})
	d := draftOfHostile(t, o, build.Hooks{}, entries)
	if d.Report.Reseeds != 1 || d.Report.Spilled == 0 {
		t.Errorf("%d reseeds, %d octets spilled", d.Report.Reseeds, d.Report.Spilled)
	}
}

// The pages of a large file go past the system's cache, those of a small one do not.
func TestSameBytesPastTheCache(t *testing.T) {
	entries := manyDomains(60_000)
	var want []byte
	for _, direct := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "x.bdx")
		d := draftOf(t, path, seeded(1), build.Hooks{Direct: direct}, rowsNamed(1), entries)
		publish(t, d)
		data := testkit.Read(t, path)
		if direct && !bytes.Equal(data, want) {
			t.Error("other bytes past the cache")
		}
		want = data
	}
}
