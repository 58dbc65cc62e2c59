package index

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"blockd/addr"
	"blockd/lists"
)

// testTime is when all builds of these tests begin.
var testTime = time.Unix(1_790_000_000, 0)

// listed is one entry as a test puts it into a build.
type listed struct {
	row    int
	key    addr.Key
	scope  lists.Scope
	action lists.Action
	line   int
	reason string
	expiry int64
	net    netip.Prefix // of an entry for client addresses, in place of key

	pattern string // of a pattern, as lint prints it, in place of key
}

// seeded are options under which a build is reproducible.
func seeded(n byte) Options {
	return Options{Seed: &Seed{BuildID: [16]byte{n, 1}, HashKey: [16]byte{n, 2}, Built: testTime}}
}

// rowsNamed makes a list table for entries that no file holds.
func rowsNamed(n int) []ListInfo {
	rows := make([]ListInfo, n)
	for i := range rows {
		rows[i].Source = Source{List: fmt.Sprintf("list%d", i), Path: fmt.Sprintf("lists/%d.txt", i)}
		rows[i].Summary.Verdict = lists.Loaded
	}
	return rows
}

// draftOf builds from entries instead of files.
func draftOf(t testing.TB, path string, o Options, h hooks, rows []ListInfo, entries []listed) (*Draft, error) {
	t.Helper()
	b, err := newBuilder(o, h)
	if err != nil {
		return nil, err
	}
	b.rows = rows
	if err := b.open(path, len(rows), 0); err != nil {
		return nil, err
	}
	defer b.close()
	b.take = func(context.Context) error {
		err := takeIn(t, b, entries)
		if err := b.in.records.finish(); err != nil {
			t.Fatal(err)
		}
		return err
	}
	if err := b.take(t.Context()); err != nil {
		return nil, err
	}
	lock, err := lockPath(path)
	if err != nil {
		return nil, err
	}
	d, err := b.draft(t.Context(), path, lock)
	if err != nil {
		lock.Close()
	}
	return d, err
}

// indexOf builds, publishes and opens an index of entries.
func indexOf(t testing.TB, o Options, rows []ListInfo, entries []listed) *Index {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.bdx")
	d, err := draftOf(t, path, o, hooks{}, rows, entries)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Publish(); err != nil {
		t.Fatal(err)
	}
	ix, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return ix
}

func domainKey(t testing.TB, name string) addr.Key {
	t.Helper()
	k, err := addr.DomainKey(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sender(t testing.TB, text string) addr.Addr {
	t.Helper()
	a, err := addr.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// takeIn takes entries in as readAll does: row by row, each line by some worker.
func takeIn(t testing.TB, b *builder, entries []listed) error {
	t.Helper()
	byRow := map[int][]listed{}
	for _, e := range entries {
		byRow[e.row] = append(byRow[e.row], e)
	}
	for _, row := range slices.Sorted(maps.Keys(byRow)) {
		b.in.begin(row)
		for _, e := range byRow[row] {
			it := lists.Item{Line: e.line, Scope: e.scope, Action: e.action, Reason: e.reason, Net: e.net}
			w := &b.in.workers[max(e.line, 0)%len(b.in.workers)]
			err := error(nil)
			switch {
			case it.Net.IsValid():
				err = w.addNetwork(e.expiry, &it)
			case e.pattern != "":
				it.Kind, it.Pattern = patternKind(e.pattern), e.pattern
				err = w.addPattern(e.expiry, &it)
			default:
				err = w.add(e.key, e.expiry, &it)
			}
			if err != nil {
				return err
			}
		}
		b.in.end(row, true)
	}
	return nil
}
