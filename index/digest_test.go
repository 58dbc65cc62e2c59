package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/mail/digest"
)

// An address that a list names is found by its digests, one that it does not name is not.
func TestAddressesAreFoundByTheirDigests(t *testing.T) {
	block := plain("block", testkit.File(t, "block.txt", strings.Join([]string{
		"promo@bulk.test", "!friend@bulk.test", "Grüße@bücher.test", `"odd one"@bulk.test`, "other.test", "offers@", "198.51.100.7", "twice@bulk.test", "twice@bulk.test",
	}, "\n")+"\n"))
	allow := plain("allow", testkit.File(t, "allow.txt", "!promo@bulk.test\n"))
	ix := published(t, filepath.Join(t.TempDir(), "x.bdx"), []Source{block, allow}, digest.MD5, digest.SHA1, digest.SHA256)
	for _, tt := range []struct{ hashed, want string }{
		{"promo@bulk.test", "promo@bulk.test"},
		{"friend@bulk.test", "friend@bulk.test"},
		{"grüße@xn--bcher-kva.test", "grüße@xn--bcher-kva.test"},
		{"grüße@bücher.test", "grüße@xn--bcher-kva.test"},
		{`"odd one"@bulk.test`, `"odd one"@bulk.test`},
		{"Promo@bulk.test", ""},
		{"x@other.test", ""},
		{"other.test", ""},
		{"offers@", ""},
		{"offers@bulk.test", ""},
		{"", ""},
	} {
		for a := range ix.Hashes().All() {
			got, found, err := ix.AddressOf(digest.Of(a, tt.hashed))
			if err != nil || got.String() != tt.want || found != (tt.want != "") {
				t.Errorf("AddressOf(%v of %q) = %q, %v, %v; want %q", a, tt.hashed, got, found, err, tt.want)
			}
		}
	}
	// Five addresses, one of them in two spellings.
	keys, entries := ix.Counts()
	testkit.Got(keys, entries, ix.Digests())(t, "keys, entries and digests", 8, 9, 3*6)
	testkit.Should(t, ix.Verify(t.Context()))
}

func TestNoDigestsWithoutTheirAlgorithm(t *testing.T) {
	list := plain("block", testkit.File(t, "block.txt", "promo@bulk.test\n"))
	for _, hashes := range [][]digest.Algorithm{nil, {digest.SHA1}} {
		ix := published(t, filepath.Join(t.TempDir(), "x.bdx"), []Source{list}, hashes...)
		if _, found, err := ix.AddressOf(digest.Of(digest.MD5, "promo@bulk.test")); found || !errors.Is(err, ErrNoDigests) {
			t.Errorf("hashes %v: found %v, error %v", ix.Hashes(), found, err)
		}
		if _, _, err := ix.AddressOf(digest.Digest{}); !errors.Is(err, ErrNoDigests) {
			t.Errorf("the zero digest: %v", err)
		}
	}
	// A list without addresses can be asked all the same.
	none := plain("none", testkit.File(t, "none.txt", "bulk.test\n"))
	ix := published(t, filepath.Join(t.TempDir(), "x.bdx"), []Source{none}, digest.MD5)
	if _, found, err := ix.AddressOf(digest.Of(digest.MD5, "promo@bulk.test")); found || err != nil {
		t.Errorf("found %v, error %v", found, err)
	}
}

// What lists hold, count and give back does not depend on digests; the file is the same whatever
// made it; and without digests it has no trace of them: TestGolden holds its octets.
func TestDigestsChangeNothingElse(t *testing.T) {
	sources := mixedSources(t, 3000)
	o := seeded(6)
	o.KeepGoing = true
	bare, bareReport := builtBytes(t, sources, o)
	o.Hashes = digest.SetOf(digest.SHA1)
	var first []byte
	for _, workers := range []int{1, 3} {
		o.Workers, o.Memory = workers, int64(4-workers)<<20
		data, report := builtBytes(t, sources, o)
		if first == nil {
			first = data
		} else if !bytes.Equal(first, data) {
			t.Error("other octets from other workers")
		}
		if report.Digests == 0 || report.Keys != bareReport.Keys || report.Entries != bareReport.Entries || report.Duplicates != bareReport.Duplicates {
			t.Errorf("report %+v, without digests %+v", report, bareReport)
		}
	}
	if sectionRow(t, bare, format.SecDigests) != nil {
		t.Error("a section of digests where there are none")
	}
	row := sectionRow(t, first, format.SecDigests)
	testkit.MustEqual(t, "the section is there", row != nil, true)
	testkit.Equal(t, "flag bit 0, by which an older blockd refuses the file and builds it anew", binary.LittleEndian.Uint32(row[4:]), 1)
	folder := t.TempDir()
	testkit.Write(t, filepath.Join(folder, "bare.bdx"), string(bare))
	testkit.Write(t, filepath.Join(folder, "digests.bdx"), string(first))
	var all [2]answers
	for i, name := range []string{"bare.bdx", "digests.bdx"} {
		ix := opened(t, filepath.Join(folder, name))
		all[i] = answersOf(t, ix, 5)
		all[i].digests, all[i].hashed = 0, nil
	}
	if !reflect.DeepEqual(all[0], all[1]) {
		t.Error(differ(all[1], all[0]))
	}
}

// sectionRow is the row of a section in the header of a file, nil if there is none.
func sectionRow(t *testing.T, data []byte, kind int) []byte {
	t.Helper()
	for i := range format.MaxSections {
		row := data[format.SectionsAt+i*format.SectionBytes:][:format.SectionBytes]
		if binary.LittleEndian.Uint32(row) == uint32(kind) {
			return row
		}
	}
	return nil
}

// Other hashes are no small change, and need no source to be parsed again.
func TestOtherHashesAreBuiltFromTheCache(t *testing.T) {
	list := plain("block", testkit.File(t, "block.txt", "promo@bulk.test\n"))
	path := filepath.Join(t.TempDir(), "x.bdx")
	ix := published(t, path, []Source{list})
	o := Options{Cache: path + CacheSuffix, Hashes: digest.SetOf(digest.SHA1)}
	if _, _, err := ix.Update(t.Context(), []Source{list}, o); !errors.Is(err, ErrTooDifferent) || !strings.Contains(err.Error(), "digests by sha1 instead of none") {
		t.Errorf("Update: %v", err)
	}
	d := built(t, path, []Source{list}, o)
	testkit.Equal(t, "sources from the cache", d.Report.Cached, 1)
	a, found, err := d.Index().AddressOf(digest.Of(digest.SHA1, "promo@bulk.test"))
	testkit.Got(err, found, a.String())(t, "AddressOf", nil, true, "promo@bulk.test")
}

// An address whose text with U-labels is longer than a key may be is found by the other one.
func TestLongAddressesHaveDigests(t *testing.T) {
	label := strings.Repeat("𠀀", 50)
	long := "x@" + label + "." + label + ".test"
	a := testkit.Value(addr.Parse(long))(t)
	key, ok := a.Key()
	if unicode, _ := addr.Unicode(key.Text); !ok || len(unicode) <= format.MaxKey-2 {
		t.Fatalf("%q proves nothing", unicode)
	}
	list := plain("block", testkit.File(t, "block.txt", fmt.Sprintln(long)))
	ix := published(t, filepath.Join(t.TempDir(), "x.bdx"), []Source{list}, digest.SHA1)
	if got, found, err := ix.AddressOf(digest.Of(digest.SHA1, key.Text)); err != nil || !found || got != a {
		t.Errorf("AddressOf = %v, %v, %v", got, found, err)
	}
}
