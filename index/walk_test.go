package index

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
)

// walked is an entry as a test compares it.
func walked(row, line int, kind lists.Kind, name string, scope lists.Scope, action lists.Action, reason string) string {
	return fmt.Sprintf("%d:%d %s %s %s %s %q", row, line, kind, name, scope, action, reason)
}

func walkAll(t *testing.T, ix *Index, want func(int) bool) (all []string, again int) {
	t.Helper()
	for e, err := range ix.Entries(t.Context(), want) {
		testkit.Must(t, err)
		if e.Again {
			again++
		}
		all = append(all, walked(e.Row, e.Item.Line, e.Item.Kind, e.Item.Name(), e.Item.Scope, e.Item.Action, e.Item.Reason))
	}
	if want == nil {
		checkUnordered(t, ix, all, again)
		checkLines(t, ix)
	}
	return all, again
}

// checkUnordered holds that the walk in no order has the same entries.
func checkUnordered(t *testing.T, ix *Index, want []string, wantAgain int) {
	t.Helper()
	var all []string
	for e, err := range ix.Unordered(t.Context()) {
		testkit.Must(t, err)
		if e.Again {
			wantAgain--
		}
		all = append(all, walked(e.Row, e.Item.Line, e.Item.Kind, e.Item.Name(), e.Item.Scope, e.Item.Action, e.Item.Reason))
	}
	slices.Sort(all)
	if !slices.Equal(all, slices.Sorted(slices.Values(want))) || wantAgain != 0 {
		t.Errorf("%d entries in no order, %d in order, %d more of them again", len(all), len(want), wantAgain)
	}
}

// TestEntriesAreWhatWasRead: what Build read comes back, of every kind, in the order
// of the lists and of their lines.
func TestEntriesAreWhatWasRead(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	dir := t.TempDir()
	var sources []Source
	var want []string
	agains := 0
	held := map[string]bool{}
	for row := range 3 {
		text := ""
		for range 3000 {
			n := rng.IntN(2000)
			mark := []string{"", "", "!"}[rng.IntN(3)]
			text += mark + []string{
				fmt.Sprintf("x%d@bulk.test", n), fmt.Sprintf("offers%d@", n), fmt.Sprintf("n%d.test", n), fmt.Sprintf("=n%d.test", n), fmt.Sprintf(".n%d.test", n),
				fmt.Sprintf("198.51.%d.%d", n%256, n/256), fmt.Sprintf("10.%d.%d.0/24", n%256, n/256), fmt.Sprintf("2001:db8:%x::/48", n),
				fmt.Sprintf("promo%d*@bulk.test", n), fmt.Sprintf("/^promo%d@/", n), "no entry at all",
			}[rng.IntN(11)] + "\n"
		}
		path := testkit.Write(t, filepath.Join(dir, fmt.Sprintf("l%d.txt", row)), text)
		s := Source{List: fmt.Sprintf("l%d", row), Path: path, Settings: lists.Settings{Format: "plain", Patterns: true, Reason: fmt.Sprintf("by %d", row)}}
		sources = append(sources, s)
		seen := map[string]bool{}
		if _, err := lists.ReadFile(t.Context(), path, s.Settings, func(it *lists.Item) error {
			if it.Kind == lists.Err || it.Kind == lists.Skip {
				return nil
			}
			key := fmt.Sprint(it.Kind, it.Name(), it.Scope, it.Action)
			if !seen[key] { // a file's repetition is one entry
				want = append(want, walked(row, it.Line, it.Kind, it.Name(), it.Scope, it.Action, it.Reason))
				if held[key] {
					agains++
				}
			}
			seen[key], held[key] = true, true
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	draft := built(t, filepath.Join(dir, "x.bdx"), sources, Options{})
	have, again := walkAll(t, draft.Index(), nil)
	if !slices.Equal(have, want) {
		t.Errorf("%d entries, want %d", len(have), len(want))
		for i := range min(len(have), len(want)) {
			testkit.MustEqual(t, fmt.Sprintf("entry %d", i), have[i], want[i])
		}
	}
	testkit.Equal(t, "entries that are there before", again, agains)
	testkit.AtLeast(t, "entries that are there before", agains, 1)
	some, _ := walkAll(t, draft.Index(), func(row int) bool { return row == 1 })
	if rest := slices.DeleteFunc(want, func(s string) bool { return s[0] != '1' }); !slices.Equal(some, rest) {
		t.Errorf("of one row: %d entries, want %d", len(some), len(rest))
	}
}

// TestEntriesThatExpire: one that is soon gone stands for no other.
func TestEntriesThatExpire(t *testing.T) {
	soon := time.Now().Add(time.Hour).Unix()
	for _, tt := range []struct {
		first, second int64
		again         bool
	}{{0, 0, true}, {0, soon, true}, {soon, 0, false}, {soon, soon, false}} {
		ix := indexOf(t, seeded(1), rowsNamed(2), []listed{
			{row: 0, line: 1, key: domainKey(t, "bulk.test"), scope: lists.Tree, expiry: tt.first},
			{row: 1, line: 1, key: domainKey(t, "bulk.test"), scope: lists.Tree, expiry: tt.second},
		})
		var all []Entry
		for e, err := range ix.Entries(t.Context(), nil) {
			testkit.Must(t, err)
			all = append(all, e)
		}
		if len(all) != 2 || all[0].Again || all[1].Again != tt.again || all[0].Expires.IsZero() != (tt.first == 0) ||
			tt.second != 0 && all[1].Expires.Unix() != tt.second {
			t.Errorf("%+v: %+v", tt, all)
		}
	}
}

// TestEntriesEnd: with their context, with their caller, and with a damaged page.
func TestEntriesEnd(t *testing.T) {
	ix := indexOf(t, seeded(1), rowsNamed(1), []listed{{line: 1, key: domainKey(t, "bulk.test")}, {line: 2, key: domainKey(t, "other.test")}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n := 0
	for _, err := range ix.Entries(ctx, nil) {
		if n++; !errors.Is(err, context.Canceled) {
			t.Errorf("entry or error %d after the end: %v", n, err)
		}
	}
	testkit.Equal(t, "entries and errors after the end", n, 1)
	n = 0
	for range ix.Entries(t.Context(), nil) {
		n++
		break
	}
	testkit.Equal(t, "entries after the caller has enough", n, 1)
}

// TestEntriesOfADamagedFile: whatever bit flips, a walk has all entries as they
// were, or ends with an error.
func TestEntriesOfADamagedFile(t *testing.T) {
	s := newFullSpecimen(t, 300)
	whole := opened(t, s.path)
	want, _ := walkAll(t, whole, nil)
	testkit.AtLeast(t, "entries", len(want), 300)
	lines := testkit.Value(linesOf(t.Context(), whole))(t)
	testkit.AtLeast(t, "lines", len(lines), 300)
	rng := rand.New(rand.NewPCG(3, 3))
	caught := 0
	for range 400 {
		data := slices.Clone(s.data)
		at := rng.IntN(len(data))
		data[at] ^= 1 << rng.IntN(8)
		s.write(t, data)
		ix, err := Open(s.path)
		if err != nil {
			continue
		}
		var have []string
		for e, err := range ix.Entries(t.Context(), nil) {
			if err != nil {
				if !errors.Is(err, ErrRead) {
					t.Fatalf("octet %d: %v", at, err)
				}
				caught++
				have = want
				break
			}
			have = append(have, walked(e.Row, e.Item.Line, e.Item.Kind, e.Item.Name(), e.Item.Scope, e.Item.Action, e.Item.Reason))
		}
		if !slices.Equal(have, want) {
			t.Fatalf("octet %d: other entries, and no error", at)
		}
		switch got, err := linesOf(t.Context(), ix); {
		case err != nil && !errors.Is(err, ErrRead):
			t.Fatalf("octet %d: %v", at, err)
		case err == nil && !slices.Equal(got, lines):
			t.Fatalf("octet %d: other lines, and no error", at)
		}
	}
	testkit.AtLeast(t, "walks that met the damage", caught, 1)
}

// checkLines holds that Lines has the entries of Unordered and OwnedEntries, those that can be lines, each in one part.
func checkLines(t testing.TB, ix *Index) (patterns int) {
	t.Helper()
	var want []string
	named := map[string]bool{}
	tell := func(e Entry, err error) bool {
		testkit.Must(t, err)
		line, ok := lists.AppendEntryLine(nil, &e.Item)
		if !ok {
			patterns++
			return true
		}
		want = append(want, fmt.Sprintf("%d:%s", e.Row, line))
		named[e.Item.Name()] = true
		return true
	}
	ix.Unordered(t.Context())(tell)
	ix.OwnedEntries(t.Context(), addr.Key{})(tell)
	const parts = 3
	var have []string
	for part := range parts {
		last, seen := "", map[string]bool{}
		err := ix.Lines(t.Context(), part, parts, func(_ int, key []byte) bool { return named[string(key)] }, func(row int, line []byte) error {
			key, _, _ := strings.Cut(string(line), "\t")
			if key != last && seen[key] {
				t.Errorf("%s comes twice, with others between", key)
			}
			last, seen[key] = key, true
			have = append(have, fmt.Sprintf("%d:%s", row, line))
			return nil
		})
		testkit.Must(t, err)
	}
	slices.Sort(want)
	slices.Sort(have)
	if !slices.Equal(have, want) {
		t.Errorf("%d lines, want %d", len(have), len(want))
		for i := range min(len(have), len(want)) {
			testkit.MustEqual(t, fmt.Sprintf("line %d", i), have[i], want[i])
		}
	}
	return patterns
}

// Lines has what people have as entries: everybody's, those of owners, those about recipients; what is held is not among them.
func TestLinesAreWhatWasRead(t *testing.T) {
	dir := t.TempDir()
	users := "owner,entry,action,reason\nanna@here.example,bulk.example,block,enough\nanna@here.example,friend@bulk.example,allow,\nhere.example,promo@,block,\n"
	many := ""
	for n := range 5000 {
		many += fmt.Sprintf("x%d@bulk.test\n", n)
	}
	sources := []Source{
		{List: "users", Path: testkit.Write(t, filepath.Join(dir, "users.csv"), users), Settings: lists.Settings{Format: "csv:entry", PerRecipient: true}},
		{List: "all", Path: testkit.Write(t, filepath.Join(dir, "all.txt"), "recipient:left@here.example # gone\nbulk.example # a\\b\n!anna@bulk.example\n\"odd one\"@bulk.example\nbücher.example\n198.51.100.7\n2001:db8::/32\n"+many), Settings: lists.Settings{Format: "plain"}},
		{List: "more", Path: testkit.Write(t, filepath.Join(dir, "more.txt"), "bulk.example # another\nx7@bulk.test\n"), Settings: lists.Settings{Format: "plain"}},
	}
	draft := built(t, filepath.Join(dir, "x.bdx"), sources, Options{})
	ix := draft.Index()
	checkLines(t, ix)
	ix.Withhold(map[HeldEntry]bool{{"all", lists.Addr, lists.Exact, "x7@bulk.test"}: true, {"all", lists.Domain, lists.Tree, "bulk.example"}: true})
	checkLines(t, ix)
	held := 0
	err := ix.Lines(t.Context(), 0, 1, nil, func(row int, line []byte) error {
		if key, _, _ := strings.Cut(string(line), "\t"); row == 1 && (key == "x7@bulk.test" || key == "bulk.example") {
			t.Errorf("%q is held", line)
		} else if key == "x7@bulk.test" || key == "bulk.example" {
			held++
		}
		return nil
	})
	testkit.Got(err, held)(t, "lines of the other list", nil, 2)
	enough := errors.New("enough")
	testkit.Equal(t, "an error of use", ix.Lines(t.Context(), 0, 1, nil, func(int, []byte) error { return enough }), enough)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := ix.Lines(ended, 0, 1, nil, func(int, []byte) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("of a context that has ended: %v", err)
	}
}

func TestLinesTellAPattern(t *testing.T) {
	dir := t.TempDir()
	path := testkit.Write(t, filepath.Join(dir, "l.txt"), "promo*@bulk.test\n")
	draft := built(t, filepath.Join(dir, "x.bdx"), []Source{{List: "l", Path: path, Settings: lists.Settings{Format: "plain", Patterns: true}}}, Options{})
	var no *NoLineError
	if err := draft.Index().Lines(t.Context(), 0, 1, nil, func(int, []byte) error { return nil }); !errors.As(err, &no) || no.Name != "promo*@bulk.test" {
		t.Errorf("error %v", err)
	}
	testkit.IsError(t, "nobody wanted it", draft.Index().Lines(t.Context(), 0, 1, func(int, []byte) bool { return false }, nil), nil)
}

// linesOf are the lines of all entries that a list can have as they are: no patterns, and no network that is wider than any list's.
func linesOf(ctx context.Context, ix *Index) (all []string, err error) {
	err = ix.Lines(ctx, 0, 1, func(_ int, key []byte) bool {
		_, err := lists.ParseEntry(string(key), lists.Settings{})
		return err == nil
	}, func(_ int, line []byte) error {
		all = append(all, string(line))
		return nil
	})
	return all, err
}
