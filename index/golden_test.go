package index

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"blockd/index/internal/build"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
)

var update = flag.Bool("update", false, "write the golden files anew: only for a new format version")

// goldenRows and goldenEntries have every field of the format in use.
func goldenRows() []ListInfo {
	yes := true
	return []ListInfo{
		{
			Source: Source{List: "block", Path: "lists/block.txt", Settings: lists.Settings{
				Format: "plain", Reason: "spam", Subdomains: &yes, MaxBytes: 1 << 30}},
			Summary: lists.Summary{Format: "plain", Lines: 90, Entries: 70, Errors: 2, Skipped: 3,
				Verdict: lists.Loaded, Hash: [16]byte{1, 2, 3, 15: 16}, Size: 1234},
			Guard: 0xfedcba9876543210, NetworkEntries: 4,
		},
		{
			Source:  Source{List: "allow", Path: "lists/allow.csv", Settings: lists.Settings{Format: "csv:2", Action: lists.Allow}, Mode: Shadow},
			Summary: lists.Summary{Format: "csv:2", Lines: 2, Entries: 2, Verdict: lists.Loaded, Size: 20},
		},
		{
			Source:  Source{List: "later", Path: "lists/later.txt", Optional: true},
			Summary: lists.Summary{Format: "auto", Verdict: lists.Refused, Why: "missing: no such file"},
		},
	}
}

func goldenEntries(t testing.TB) []listed {
	address, ok := sender(t, "promo@shop.test").Key()
	local, err := addr.LocalKey("offers")
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	bulk := domainKey(t, "bulk.test")
	entries := []listed{
		{row: 0, key: bulk, scope: lists.Tree, action: lists.Block, line: 1, reason: "spam", expiry: 0},
		{row: 0, key: bulk, scope: lists.Exact, action: lists.Discard, line: 2, reason: "551 5.7.1 Not here", expiry: 0},
		{row: 0, key: bulk, scope: lists.Tree, action: lists.Block, line: 3, reason: "repeated", expiry: 0},
		{row: 0, key: domainKey(t, "mx.bulk.test"), scope: lists.Sub, action: lists.Tempfail, line: 4, reason: "", expiry: testTime.Unix() + 86_400},
		{row: 0, key: address, scope: lists.Exact, action: lists.Block, line: 5, reason: "spam", expiry: 0},
		{row: 0, key: local, scope: lists.Local, action: lists.Block, line: 70_000, reason: "grüße", expiry: 0},
		{row: 0, key: domainKey(t, "[198.51.100.23]"), scope: lists.Exact, action: lists.Block, line: 7, reason: "", expiry: 0},
		{row: 1, key: bulk, scope: lists.Sub, action: lists.Allow, line: 1, reason: "", expiry: 0},
		{row: 1, key: domainKey(t, "xn--bcher-kva.test"), scope: lists.Tree, action: lists.Allow, line: 2, reason: "", expiry: 0},
	}
	for i := range 60 {
		entries = append(entries, listed{key: domainKey(t, manyName(i)), scope: lists.Tree, line: 100 + i})
	}
	return entries
}

// A file of this format version opens and answers for ever, and the same input,
// hash key, build id and time give the same bytes.
func TestGoldenFiles(t *testing.T) {
	for _, tt := range []struct {
		file string
		sip  bool
		old  bool // of the version before, which is read and never written
	}{{"v3-xxh3.bdx", false, false}, {"v3-siphash.bdx", true, false}, {"v2-xxh3.bdx", false, true}, {"v2-siphash.bdx", true, true}} {
		t.Run(tt.file, func(t *testing.T) {
			golden := filepath.Join(testkit.Root(t), "testdata/indexes/golden", tt.file)
			o := seeded(77)
			o.SipHash = tt.sip
			path := filepath.Join(t.TempDir(), "x.bdx")
			d := draftOf(t, path, o, build.Hooks{}, goldenRows(), goldenEntries(t))
			publish(t, d)
			built := testkit.Read(t, path)
			if *update && !tt.old {
				testkit.Write(t, golden, built)
			}
			want := testkit.Read(t, golden)
			if !tt.old && !bytes.Equal(built, want) {
				t.Errorf("a build differs from %s: the format's version must change with it", golden)
			}

			ix := opened(t, golden)
			testkit.Should(t, ix.Verify(t.Context()))
			if got := ix.Lists(); !reflect.DeepEqual(got, goldenRows()) {
				t.Errorf("list table\n%+v\nwant\n%+v", got, goldenRows())
			}
			if ix.Generation() != "4d010000000000000000000000000000" || !ix.Built().Equal(testTime) {
				t.Errorf("generation %s built %v", ix.Generation(), ix.Built())
			}
			entries := model(goldenEntries(t))
			for _, text := range []string{"x@bulk.test", "x@mx.bulk.test", "x@a.mx.bulk.test", "promo@shop.test", "offers@other.test",
				"x@[198.51.100.23]", "x@sub.xn--bcher-kva.test", "offers@" + manyName(7), "x@clear.test"} {
				a := sender(t, text)
				got, err := ix.Lookup(nil, a, testTime)
				if want := entries.lookup(a, testTime.Unix()); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("Lookup(%s) = %v, %v, want %v", text, got, err, want)
				}
			}
		})
	}
}

// The pages of version 1 hold their slots otherwise: a reader that took such a file
// for its own would have an error for whom it lists, and let them through.
func TestFileOfAnEarlierVersionIsRefused(t *testing.T) {
	golden := filepath.Join(testkit.Root(t), "testdata/indexes/golden", "v1-xxh3.bdx")
	ix, err := Open(golden)
	want := "index " + golden + ": damaged index: offset 8: format version 1, this program reads 3"
	if ix != nil || !errors.Is(err, ErrCorrupt) || err.Error() != want {
		t.Errorf("Open = %t, %v, want %s", ix != nil, err, want)
	}
}

func TestSameInputGivesSameBytes(t *testing.T) {
	source := plain("a", testkit.File(t, "a.txt", "bulk.test\npromo@shop.test\nshop.test # x\n"))
	var files [2][]byte
	for i := range files {
		path := filepath.Join(t.TempDir(), "x.bdx")
		publish(t, built(t, path, []Source{source}, seeded(5)))
		files[i] = testkit.Read(t, path)
	}
	if !bytes.Equal(files[0], files[1]) {
		t.Error("two builds with one seed differ")
	}
	a := built(t, filepath.Join(t.TempDir(), "x.bdx"), []Source{source}, Options{})
	b := built(t, filepath.Join(t.TempDir(), "x.bdx"), []Source{source}, Options{})
	if a.Index().file.Hash.Key == b.Index().file.Hash.Key || a.Index().Generation() == b.Index().Generation() {
		t.Error("two builds without a seed have one hash key or one generation")
	}
}

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
	nothingLeft(t, filepath.Dir(path))
	return data, d.Report
}

func TestSameBytesWhateverTheWorkersAndMemory(t *testing.T) {
	sources := mixedSources(t, 40_000)
	o := seeded(6)
	o.KeepGoing, o.Workers, o.Memory = true, 1, 1<<30
	want, report := builtBytes(t, sources, o)
	testkit.MustEqual(t, "the build to compare with", report.Spilled, 0)
	testkit.AtLeast(t, "the build to compare with", report.Duplicates, 1000)
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
	testkit.Equal(t, "keys and duplicates", [...]uint64{r.Keys, r.Duplicates}, [...]uint64{100_000, 100_000})
	testkit.AtMost(t, "bits of the filter", r.FilterBits, 12*100_000+256)
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
	testkit.Equal(t, "reseeds", d.Report.Reseeds, 1)
	testkit.AtLeast(t, "octets spilled", d.Report.Spilled, 1)
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
