package build

import (
	"fmt"
	"path/filepath"
	"testing"

	"blockd/bloom"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
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
	b := testkit.Value(New(filepath.Join(t.TempDir(), "x.bdx"), sources, Options{Workers: 1}, Hooks{Weak: same}))(t)
	b.Rows = make([]format.ListInfo, len(names))
	testkit.Must(t, b.open())
	defer b.Close()
	for i, name := range names {
		key := testkit.Value(addr.DomainKey(name))(t)
		b.in.Begin(i)
		testkit.Must(t, b.in.Workers[0].Take(&lists.Item{Kind: lists.Domain, Key: key}, 0))
		b.in.End(i, true)
	}
	testkit.Must(t, b.in.records.finish())
	if _, err := b.in.numberReasons(); err != nil {
		t.Fatal(err)
	}
	parts := b.in.records.reader(t.Context())
	defer parts.end()
	m := merger{in: b.in, parts: parts, rows: b.Rows, worth: format.NewWorthCounter(b.Rows)}
	testkit.Must(t, m.merge(0, 1<<b.in.records.bits))
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
