package index

import (
	"bytes"
	"errors"
	"flag"
	"path/filepath"
	"reflect"
	"testing"

	"blockd/index/internal/build"
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
