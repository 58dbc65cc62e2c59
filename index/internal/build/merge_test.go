package build

import (
	"fmt"
	"path/filepath"
	"testing"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/lists"
	"blockd/mail/addr"
)

// The same two sources of keys under equal hashes are merged by comparing keys.
func TestEqualHashesAreNotEqualKeys(t *testing.T) {
	same := func([]byte) bloom.Hash { return bloom.Hash{Hi: 7, Lo: 7} }
	names := []string{"b.test", "a.test", "b.test", "c.test", "a.test"}
	sources := make([]format.Source, len(names))
	for i, name := range names {
		sources[i].List = name
	}
	b, err := New(filepath.Join(t.TempDir(), "x.bdx"), sources, Options{Workers: 1}, Hooks{Weak: same})
	if err != nil {
		t.Fatal(err)
	}
	b.Rows = make([]format.ListInfo, len(names))
	if err := b.open(); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i, name := range names {
		key, err := addr.DomainKey(name)
		if err != nil {
			t.Fatal(err)
		}
		b.in.Begin(i)
		if err := b.in.Workers[0].Take(&lists.Item{Kind: lists.Domain, Key: key}, 0); err != nil {
			t.Fatal(err)
		}
		b.in.End(i, true)
	}
	if err := b.in.records.finish(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.in.numberReasons(); err != nil {
		t.Fatal(err)
	}
	parts := b.in.records.reader(t.Context())
	defer parts.end()
	m := merger{in: b.in, parts: parts, rows: b.Rows, worth: format.NewWorthCounter(b.Rows)}
	if err := m.merge(0, 1<<b.in.records.bits); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range m.records {
		c := format.Cursor{Rest: m.buf[p.At : p.At+p.N]}
		text := string(c.Key())
		count, _ := c.Sources()
		for range count {
			text += fmt.Sprint(" ", c.Entry().Row)
		}
		got = append(got, text)
	}
	n := m.counts
	if want := "[a.test 1 4 b.test 0 2 c.test 3]"; fmt.Sprint(got) != want || n.Keys != 3 || n.Entries != 5 {
		t.Errorf("merged %v with %d keys, %d entries, want %s", got, n.Keys, n.Entries, want)
	}
}
