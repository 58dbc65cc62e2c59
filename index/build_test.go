package index

import (
	"fmt"
	"path/filepath"
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
	for _, e := range entries {
		it := lists.Item{Line: e.line, Scope: e.scope, Action: e.action, Reason: e.reason}
		if err := b.add(e.row, e.key, e.expiry, &it); err != nil {
			return nil, err
		}
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
