package lists_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

// ownedItems reads a list per recipient.
func ownedItems(t *testing.T, text string, s lists.Settings) (said []string, sum lists.Summary, err error) {
	t.Helper()
	s.PerRecipient = true
	sum, err = lists.ReadFile(t.Context(), testkit.File(t, "list", text), s, func(it *lists.Item) error {
		switch it.Kind {
		case lists.Skip:
		case lists.Err:
			said = append(said, fmt.Sprintf("%d err %s", it.Line, it.Class))
		default:
			said = append(said, strings.TrimSpace(fmt.Sprintf("%d %s %s %s %s", it.Line, it.Name(), it.Scope, it.Action, it.Reason)))
		}
		return nil
	})
	return said, sum, err
}

func TestOwnedCSV(t *testing.T) {
	text := "owner,entry,action,reason\n" +
		"Anna@Here.Example,promo@bulk.example,block,too much mail\n" +
		"anna@here.example,=shop.example,allow,\n" +
		"anna@here.example,.com,block\n" +
		"@here.example,gmail.com,,\n" +
		"bob@here.example,offers@,BLOCK,\n" +
		"bob@here.example,recipient:bob+shop@here.example,block,\n" +
		",promo@bulk.example,block,\n" +
		"a b,promo@bulk.example,block,\n" +
		"bob@here.example,,block,\n" +
		"bob@here.example,192.0.2.1,block,\n" +
		"bob@here.example,x.example,tempfail,\n" +
		"bob@here.example,x.example,forbid,\n" +
		"bob@here.example,recipient:bob+x@here.example,allow,\n" +
		"bob@here.example,*,block,\n"
	got, sum, err := ownedItems(t, text, lists.Settings{Format: "csv:entry", Guard: defaultGuard(t)})
	want := []string{
		"2 anna@here.example promo@bulk.example exact block too much mail",
		"3 anna@here.example shop.example exact allow",
		"4 anna@here.example com sub block",
		"5 here.example gmail.com tree block",
		"6 bob@here.example offers@ local block",
		"7 bob@here.example recipient:bob+shop@here.example exact block",
		"8 err owner", "9 err owner", "10 err syntax", "11 err unsupported", "12 err unsupported-action", "13 err unsupported-action",
		"14 err unsupported-action", "15 err too-broad",
	}
	if err != nil || !slices.Equal(got, want) || sum.Entries != 6 {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
}

// defaultGuard is the guard of a list that nothing is said of.
func defaultGuard(t *testing.T) *lists.Guard {
	t.Helper()
	g := testkit.Value(lists.NewGuard(lists.DefaultGuard()))(t)
	return g
}

// TestOwnersColumnIsNeverDropped: entries of single recipients would be everybody's.
func TestOwnersColumnIsNeverDropped(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		s    lists.Settings
		want lists.Class
	}{
		"csv without per_recipient":     {"owner,entry\nanna@here.example,bulk.example\n", lists.Settings{Format: "csv:entry"}, lists.NoColumn},
		"csv without owners":            {"entry,action\nbulk.example,block\n", lists.Settings{Format: "csv:entry", PerRecipient: true}, lists.NoColumn},
		"entries without per_recipient": {lists.EntriesHead + "\nanna@here.example bulk.example\tb\tt\t\t\t\n", lists.Settings{Format: "entries"}, lists.Entries},
		"plain without owners":          {"bulk.example\n", lists.Settings{Format: "plain", PerRecipient: true}, lists.Owner},
	} {
		path := testkit.File(t, "list", c.text)
		testkit.Equal(t, fmt.Sprintf("%s: class", name), refused(t, path, c.s), c.want)
	}
}

func TestOwnedJSON(t *testing.T) {
	text := `[{"owner": "anna@here.example", "entry": "promo@bulk.example", "action": "block", "reason": "x", "id": 7},
		{"owner": "here.example", "entry": "=shop.example", "action": "allow", "more": {"a": [1]}},
		{"entry": "promo@bulk.example"}, {"owner": "here.example"}, {"owner": 7, "entry": "bulk.example"},
		"bulk.example"]`
	got, _, err := ownedItems(t, text, lists.Settings{Format: "json:entry"})
	want := []string{
		"1 anna@here.example promo@bulk.example exact block x",
		"2 here.example shop.example exact allow",
		"3 err owner", "3 err syntax", "3 err syntax", "4 err owner",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
}

// TestFileOfOneOwner: the file of a user may have any format.
func TestFileOfOneOwner(t *testing.T) {
	anna := lists.Item{Kind: lists.Addr}
	testkit.Must(t, anna.SetOwner("anna@here.example"))
	for format, text := range map[string]string{
		"plain":     "# mine\nbulk.example\n!press@bulk.example\n",
		"postfix":   "# mine\nbulk.example REJECT\npress@bulk.example OK\n",
		"csv:entry": "entry,action\nbulk.example,block\npress@bulk.example,allow\n",
	} {
		got, _, err := ownedItems(t, text, lists.Settings{Format: format, Owner: anna.Owner})
		want := []string{"2 anna@here.example bulk.example tree block", "3 anna@here.example press@bulk.example exact allow"}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v", format, got, err)
		}
	}
	got, sum, err := ownedItems(t, "a.example\nb.example\n\nc.example\nd.example\n", lists.Settings{Format: "plain", Owner: anna.Owner, MaxPerOwner: 2})
	if err != nil || sum.Entries != 2 || sum.Errors != 2 || !strings.Contains(strings.Join(got, "\n"), "4 err owner-full") {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestEntriesOfOwners: what is written reads as the same entries, and the lines of an owner are counted across blocks, by
// any number of workers, in a file of many blocks.
func TestEntriesOfOwners(t *testing.T) {
	var text bytes.Buffer
	w := testkit.Value(lists.NewWriter(&text, "entries", ""))(t)
	want, full := 0, 0
	const most = 7_000
	for owner, n := range []int{20_000, 3, 5, 9_000, 1, 30_000, 7_000, 7_001} {
		want, full = want+min(n, most), full+max(n-most, 0)
		for i := range n {
			it := testkit.Value(lists.ParseEntry(fmt.Sprintf("sender-%05d@bulk.example", i), lists.Settings{}))(t)
			testkit.Must(t, it.SetOwner(fmt.Sprintf("user%d@here.example", owner)))
			testkit.Value(w.Write(&it))(t)
		}
	}
	testkit.Must(t, w.Close())
	path := testkit.File(t, "list", text.String())
	s := lists.Settings{Format: "entries", PerRecipient: true, MaxPerOwner: most}
	for _, workers := range []int{1, 3} {
		got := make([]int, workers)
		sum, err := lists.ReadBlocks(t.Context(), path, s, workers, func(i int, it *lists.Item) error {
			if it.Owner.Text != "" {
				got[i]++
			}
			return nil
		})
		n := 0
		for _, g := range got {
			n += g
		}
		if err != nil || sum.Entries != want || n != want || sum.Errors != full {
			t.Errorf("%d workers: %d entries, %d with an owner, %d refused, %v; want %d and %d", workers, sum.Entries, n, sum.Errors, err, want, full)
		}
	}
}

// TestExportsSayNoOwnedEntry: no format but blockd's own has a word for it.
func TestExportsSayNoOwnedEntry(t *testing.T) {
	owned := testkit.Value(lists.ParseEntry("bulk.example", lists.Settings{}))(t)
	testkit.Must(t, owned.SetOwner("anna@here.example"))
	recipient, err := lists.ParseEntry("recipient:Anna+Shop@here.example", lists.Settings{})
	if err != nil || recipient.Name() != "recipient:anna+shop@here.example" {
		t.Fatal(recipient.Name(), err)
	}
	for _, format := range lists.WritableFormats() {
		for _, it := range []lists.Item{owned, recipient} {
			var out bytes.Buffer
			w := testkit.Value(lists.NewWriter(&out, format, ""))(t)
			if _, err := w.Write(&it); (err == nil) != (format == "entries") {
				t.Errorf("%s: %s: %v", format, it.Name(), err)
			}
		}
	}
}

func FuzzOwnedEntries(f *testing.F) {
	f.Add("anna@here.example", "promo@bulk.example", "block", "x")
	f.Add(`"a b"@here.example`, `"x y"@bulk.example`, "allow", "")
	f.Add("@here.example", "recipient:anna+shop@here.example", "", "")
	f.Add(`"recipient:x"@here.example`, `"recipient:x"@bulk.example`, "", "")
	f.Add("[192.0.2.1]", "@[192.0.2.1]", "allow", "")
	f.Fuzz(func(t *testing.T, owner, entry, action, reason string) {
		it, err := lists.ParseEntry(entry, lists.Settings{Reason: reason})
		if err != nil {
			return
		}
		if a, ok := lists.EntryAction(action); ok {
			it.Action = a
		}
		if it.SetOwner(owner) != nil {
			return
		}
		line, ok := lists.AppendEntryLine(nil, &it)
		if !ok {
			t.Fatalf("no line for %s", it.Name())
		}
		if got := string(lists.OwnerOfLine(line)); got != it.Owner.Text {
			t.Fatalf("OwnerOfLine(%q) = %q, want %q", line, got, it.Owner.Text)
		}
		if got := string(lists.OwnerOfLine(lists.EntryLineID(line))); got != it.Owner.Text {
			t.Fatalf("OwnerOfLine of the id of %q = %q, want %q", line, got, it.Owner.Text)
		}
		found := 0
		text := lists.EntriesHead + "\n" + string(line)
		_, err = lists.Read(t.Context(), strings.NewReader(text), int64(len(text)), "x", lists.Settings{Format: "entries", PerRecipient: true}, func(got *lists.Item) error {
			if got.Kind == lists.Skip {
				return nil
			}
			found++
			if got.Owner != it.Owner || got.Key != it.Key || got.Kind != it.Kind || got.Scope != it.Scope || got.Action != it.Action || got.Name() != it.Name() {
				t.Fatalf("%q reads as %+v, want %+v", line, got, it)
			}
			return nil
		})
		if err != nil || found != 1 {
			t.Fatalf("%q gives %d entries, %v", line, found, err)
		}
	})
}
