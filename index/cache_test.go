package index

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
)

// old makes the files of sources so old that their stamps tell every change.
func old(t testing.TB, sources []Source) {
	t.Helper()
	for _, s := range sources {
		then := time.Now().Add(-time.Hour)
		if err := os.Chtimes(s.Path, then, then); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// segments are the files of a cache.
func segments(t testing.TB, folder string) (names []string) {
	t.Helper()
	files := testkit.Value(os.ReadDir(folder))(t)
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

func TestSegmentsGiveTheSameBytes(t *testing.T) {
	sources := mixedSources(t, 30_000)
	patterns := plain("patterns", testkit.File(t, "patterns.txt", strings.Repeat("# a comment of a usual length\n", 3000)+
		"x*@shop.test\n198.51.100.0/24\n2001:db8::/32\n#? pass <> y@shop.test\n"))
	sources = append(sources, patterns)
	o := seeded(6)
	o.KeepGoing = true
	want, _ := builtBytes(t, sources, o)
	o.Cache = filepath.Join(t.TempDir(), "cache")
	for round, cached := range []int{0, 5, 5} {
		o.Workers = 1 + round
		got, report := builtBytes(t, sources, o)
		testkit.Got(report.Cached, len(report.Notes))(t, fmt.Sprintf("round %d: from segments, and notes %q", round, report.Notes), cached, 0)
		if !bytes.Equal(got, want) {
			t.Errorf("round %d: other bytes than without a cache", round)
		}
	}
	info := testkit.Value(os.Stat(o.Cache))(t)
	testkit.Equal(t, "folder of the cache", info.Mode().Perm(), 0o700)
}

// longList is a list that is worth a segment.
func longList(t testing.TB, name string) Source {
	return plain(name, testkit.File(t, name+".txt", strings.Repeat("# a comment\n", 6000)+name+".test\n"))
}

func rewrite(t testing.TB, s Source, text string) {
	t.Helper()
	testkit.Write(t, s.Path, strings.Repeat("# a comment\n", 6000)+text)
}

func TestWhatAChangeOfSourceOrSettingsCosts(t *testing.T) {
	a, b := longList(t, "a"), longList(t, "b")
	small := plain("small", testkit.File(t, "small.txt", "small.test\n"))
	o := Options{Cache: filepath.Join(t.TempDir(), "cache")}
	build := func(want int, sources ...Source) *Index {
		t.Helper()
		path := filepath.Join(t.TempDir(), "x.bdx")
		d := testkit.Value(Build(t.Context(), path, sources, o))(t)
		testkit.Equal(t, fmt.Sprintf("sources from segments, with the notes %q", d.Report.Notes), d.Report.Cached, want)
		publish(t, d)
		return d.Index()
	}
	build(0, a, b, small)
	build(3, a, b, small)
	testkit.Equal(t, "files", len(segments(t, o.Cache)), 4)
	rewrite(t, b, "c.test\n") // of the same size, and perhaps within a tick of the clock
	ix := build(2, a, b, small)
	testkit.Equal(t, "Lookup after a change", len(testkit.Value(ix.Lookup(nil, sender(t, "x@c.test"), testTime))(t)), 1)
	testkit.Equal(t, "Lookup of what was removed", len(testkit.Value(ix.Lookup(nil, sender(t, "x@b.test"), testTime))(t)), 0)
	testkit.Equal(t, "files", len(segments(t, o.Cache)), 4)
	a.Settings.Reason = "another"
	build(2, a, b, small)
	old(t, []Source{a, b})
	build(2, a, b)
	build(2, a, b) // by stamps alone
	build(2, b, a)
	d := testkit.Value(Build(t.Context(), filepath.Join(t.TempDir(), "x.bdx"), []Source{longList(t, "d"), a, b}, o))(t)
	d.Discard()
	testkit.Equal(t, "files after a draft that was discarded", len(segments(t, o.Cache)), 3)
	build(1, a)
	testkit.Equal(t, "files", len(segments(t, o.Cache)), 2)
}

// Whatever happens to the files of the cache, the index is the same.
func TestDamagedSegmentsAreDropped(t *testing.T) {
	race.Skip(t)
	sources := mixedSources(t, 4000)
	sources = slices.DeleteFunc(sources, func(s Source) bool { return s.List == "torn" })
	o := seeded(8)
	want, _ := builtBytes(t, sources, o)
	o.Cache = filepath.Join(t.TempDir(), "cache")
	builtBytes(t, sources, o)
	for _, name := range segments(t, o.Cache) {
		path := filepath.Join(o.Cache, name)
		data := testkit.Read(t, path)
		for _, damage := range []struct {
			name string
			data func() []byte
		}{
			{"first octet", func() []byte { d := bytes.Clone(data); d[0] ^= 1; return d }},
			{"in the middle", func() []byte { d := bytes.Clone(data); d[len(d)/2] ^= 1; return d }},
			{"last octet", func() []byte { d := bytes.Clone(data); d[len(d)-1] ^= 0x80; return d }},
			{"tail", func() []byte { d := bytes.Clone(data); d[len(d)-30] ^= 0x80; return d }},
			{"cut off", func() []byte { return data[:len(data)-1] }},
			{"empty", func() []byte { return nil }},
			{"another one", func() []byte { return bytes.Repeat([]byte{1}, 100) }},
		} {
			testkit.Write(t, path, damage.data())
			got, report := builtBytes(t, sources, o)
			if !bytes.Equal(got, want) {
				t.Fatalf("%s, %s: other bytes than without a cache", name, damage.name)
			}
			if len(report.Notes) == 0 && damage.name != "last octet" {
				t.Errorf("%s, %s: no note", name, damage.name)
			}
		}
		builtBytes(t, sources, o)
	}
}

func TestRefusedSourceKeepsItsLastGoodEntries(t *testing.T) {
	a, b := longList(t, "a"), plain("b", testkit.File(t, "b.txt", "b.test\n#? block x@b.test\n"))
	o := Options{Cache: filepath.Join(t.TempDir(), "cache"), LastGood: true}
	path := filepath.Join(t.TempDir(), "x.bdx")
	build := func(wantRefused string, sources ...Source) *Index {
		t.Helper()
		d := built(t, path, sources, o)
		publish(t, d)
		for _, row := range d.Report.Lists {
			switch refused := row.Source.List == wantRefused; {
			case refused != (row.Refused != nil), refused != row.LastGood, row.Summary.Verdict != lists.Loaded:
				t.Errorf("%s: refused %v, last good %t, summary %+v", row.Source.List, row.Refused, row.LastGood, row.Summary)
			}
		}
		return d.Index()
	}
	holds := func(ix *Index, names ...string) {
		t.Helper()
		for _, name := range []string{"a", "a2", "b", "b2"} {
			got := testkit.Value(ix.Lookup(nil, sender(t, "x@"+name+".test"), testTime))(t)
			testkit.Equal(t, fmt.Sprintf("%s: %v; want %v", name, got, names), (len(got) > 0), slices.Contains(names, name))
		}
	}
	holds(build("", a, b), "a", "b")
	write := func(text string) {
		t.Helper()
		testkit.Write(t, b.Path, text)
	}
	rewrite(t, a, "a2.test\n")
	write("b2.test\n\x00\x00\x00")
	holds(build("b", a, b), "a2", "b") // a binary file
	write("b2.test\n#? block x@b.test\n")
	holds(build("b", a, b), "a2", "b") // fails its own test
	testkit.Must(t, os.Remove(b.Path))
	rewrite(t, a, "a.test\n")
	holds(build("b", a, b), "a", "b") // gone
	write("b2.test\n")
	holds(build("", a, b), "a", "b2")

	// What never was good is refused.
	_, err := Build(t.Context(), path, []Source{a, b, plain("c", filepath.Join(t.TempDir(), "none"))}, o)
	if refused := (*SourcesError)(nil); !errors.As(err, &refused) || len(refused.Errs) != 1 {
		t.Errorf("Build = %v", err)
	}
}
