package index

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"blockd/index/internal/build"
	"blockd/index/internal/format"
	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
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
	return Options{Seed: &build.Seed{BuildID: [16]byte{n, 1}, HashKey: [16]byte{n, 2}, Built: testTime}}
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

// tryDraft builds from entries instead of files.
func tryDraft(t testing.TB, path string, o Options, h build.Hooks, rows []ListInfo, entries []listed) (*Draft, error) {
	t.Helper()
	h.Rows, h.Entries = rows, func(in *build.Intake) error { return takeIn(in, entries) }
	return newDraft(t.Context(), path, nil, o, h)
}

// draftOf is tryDraft where that succeeds. The draft ends with the test.
func draftOf(t testing.TB, path string, o Options, h build.Hooks, rows []ListInfo, entries []listed) *Draft {
	t.Helper()
	d := testkit.Value(tryDraft(t, path, o, h, rows, entries))(t)
	t.Cleanup(d.Discard)
	return d
}

// built is the draft of sources, which ends with the test.
func built(t testing.TB, path string, sources []Source, o Options) *Draft {
	t.Helper()
	d := testkit.Value(Build(t.Context(), path, sources, o))(t)
	t.Cleanup(d.Discard)
	return d
}

func publish(t testing.TB, d *Draft) {
	t.Helper()
	testkit.Must(t, d.Publish())
}

func opened(t testing.TB, path string) *Index {
	t.Helper()
	return testkit.Value(Open(path))(t)
}

// indexOf builds, publishes and opens an index of entries.
func indexOf(t testing.TB, o Options, rows []ListInfo, entries []listed) *Index {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.bdx")
	publish(t, draftOf(t, path, o, build.Hooks{}, rows, entries))
	return opened(t, path)
}

func domainKey(t testing.TB, name string) addr.Key {
	t.Helper()
	return testkit.Value(addr.DomainKey(name))(t)
}

func sender(t testing.TB, text string) addr.Addr {
	t.Helper()
	return testkit.Value(addr.Parse(text))(t)
}

// takeIn takes entries in as a build does: row by row, each line by some worker.
func takeIn(in *build.Intake, entries []listed) error {
	byRow := map[int][]listed{}
	for _, e := range entries {
		byRow[e.row] = append(byRow[e.row], e)
	}
	for _, row := range slices.Sorted(maps.Keys(byRow)) {
		in.Begin(row)
		for _, e := range byRow[row] {
			it := lists.Item{Kind: format.KeyKind(e.key.Kind), Key: e.key, Line: e.line, Scope: e.scope, Action: e.action, Reason: e.reason}
			switch {
			case e.net.IsValid():
				it.Kind, it.Net = format.NetKind(e.net), e.net
			case e.pattern != "":
				it.Kind, it.Pattern = patternKind(e.pattern), e.pattern
			}
			if err := in.Workers[max(e.line, 0)%len(in.Workers)].Take(&it, e.expiry); err != nil {
				return err
			}
		}
		in.End(row, true)
	}
	return nil
}
