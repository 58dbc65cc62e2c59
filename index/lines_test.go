package index

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
	"blockd/mail/addr"
)

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
			if have[i] != want[i] {
				t.Fatalf("line %d is %q, want %q", i, have[i], want[i])
			}
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
	if err != nil || held != 2 {
		t.Errorf("%d lines of the other list, %v", held, err)
	}
	enough := errors.New("enough")
	if err := ix.Lines(t.Context(), 0, 1, nil, func(int, []byte) error { return enough }); err != enough {
		t.Errorf("an error of use: %v", err)
	}
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
	if err := draft.Index().Lines(t.Context(), 0, 1, func(int, []byte) bool { return false }, nil); err != nil {
		t.Errorf("nobody wanted it: %v", err)
	}
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
