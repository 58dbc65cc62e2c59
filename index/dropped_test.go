package index

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"blockd/lists"
)

// Which lines were refused is known alike after a parse, from a segment, after an update, and of an
// index file that is opened again.
func TestRefusedLinesAreToldFromAnySource(t *testing.T) {
	list := longList(t, "a")
	bad := ""
	for i := range 12 {
		bad += fmt.Sprintf("no entry %d\n", i)
	}
	rewrite(t, list, "a.test\n"+bad+"*glob.test\n")
	other := longList(t, "b")
	sources := []Source{list, other}
	old(t, sources)
	o := Options{Cache: filepath.Join(t.TempDir(), "cache")}
	path := filepath.Join(t.TempDir(), "lists.bdx")

	var want lists.Dropped
	for round, how := range []string{"parsed", "from a segment"} {
		d, err := Build(t.Context(), path, sources, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Publish(); err != nil {
			t.Fatal(err)
		}
		opened, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if want.Classes == nil {
			want = d.Report.Lists[0].Summary.Dropped
			if want.Count(lists.Syntax) != 12 || want.Count(lists.Unsupported) != 1 || len(want.First) != 10 || want.First[9].Line != 6011 {
				t.Fatalf("refused lines %+v", want)
			}
		}
		if d.Report.Cached != 2*round {
			t.Errorf("%s: %d sources from segments", how, d.Report.Cached)
		}
		for _, table := range [][]ListInfo{d.Report.Lists, d.Index().Lists(), opened.Lists()} {
			if got := table[0].Summary.Dropped; !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %+v, want %+v", how, got, want)
			}
			if got := table[1].Summary.Dropped; got.Total() != 0 || got.First != nil {
				t.Errorf("%s: a sound list with %+v", how, got)
			}
		}
	}
	ix, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	rewrite(t, list, "a.test\nb..test\n"+bad)
	updated, _, err := ix.Update(t.Context(), sources, o)
	if err != nil {
		t.Fatal(err)
	}
	if got := updated.Lists()[0].Summary.Dropped; got.Count(lists.Syntax) != 13 || got.Count(lists.Unsupported) != 0 || got.First[0].Text != "b..test" {
		t.Errorf("updated: %+v", got)
	}
}

func TestDamagedRefusedLinesAreNotRead(t *testing.T) {
	rows := make([]ListInfo, 3)
	rows[1].Summary.Dropped = lists.Dropped{
		Classes: []lists.ClassCount{{Class: lists.IDNA, Lines: 1}, {Class: lists.Syntax, Lines: 2}},
		First:   []lists.DroppedLine{{Line: 7, Class: lists.Syntax, Message: "m", Text: "t"}},
	}
	b, items := encodeDropped(rows)
	got := make([]ListInfo, 3)
	if err := decodeDropped(b, items, got); err != nil || !reflect.DeepEqual(got, rows) {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := range b {
		if decodeDropped(b[:n], items, got) == nil {
			t.Errorf("the first %d of %d octets are read", n, len(b))
		}
	}
	for _, tt := range []struct {
		name  string
		b     []byte
		items uint64
		rows  int
	}{
		{"row that is not there", b, items, 1},
		{"octets behind the last row", append([]byte(nil), append(b, 0)...), items, 3},
		{"row that is there twice", append([]byte(nil), append(b, b...)...), 2 * items, 3},
		{"classes out of order", []byte("\x00\x02\x01b\x01\x01a\x01\x00"), 1, 3},
		{"more classes than there are", []byte("\x00" + strings.Repeat("\xff", 8) + "\x01"), 1, 3},
		{"more lines than are kept", []byte("\x00\x00\x0b"), 1, 3},
	} {
		if err := decodeDropped(tt.b, tt.items, make([]ListInfo, tt.rows)); err == nil {
			t.Errorf("%s: no error", tt.name)
		}
	}
}
