package lists_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

// entryLines reads a file of the format entries and returns what it says of each entry.
func entryLines(t *testing.T, text string, workers int) ([]string, error) {
	t.Helper()
	said := make([][]string, workers)
	_, err := lists.ReadBlocks(t.Context(), testkit.File(t, "list", text), lists.Settings{Format: "entries"}, workers, func(i int, it *lists.Item) error {
		if it.Kind != lists.Skip {
			said[i] = append(said[i], fmt.Sprintf("%d: %s %d %q", it.Line, show(it), it.Expires, it.Origin))
		}
		return nil
	})
	return slices.Concat(said...), err
}

// TestEntriesKeepAllFields: a line says when its entry ends, and which row of which table it was.
func TestEntriesKeepAllFields(t *testing.T) {
	text := lists.EntriesHead + "\n" +
		"a@bulk.test\tb\tx\t1893456000\trow 7\\t\tby\\\\hand\n" +
		"b@bulk.test\tb\tx\t\t\t\n" +
		"bulk.test\td\tt\t1\tpeople.txt:12\t\n"
	got, err := entryLines(t, text, 1)
	want := []string{
		`2: addr a@bulk.test exact block "by\\hand" 1893456000 "row 7\t"`,
		`3: addr b@bulk.test exact block 0 ""`,
		`4: domain bulk.test tree discard warn-action 1 "people.txt:12"`,
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
}

// TestEntriesTakeNamesOfDigits: what other formats take for a name is one here, too, and no damage.
func TestEntriesTakeNamesOfDigits(t *testing.T) {
	got, err := entryLines(t, lists.EntriesHead+"\n1-2.3-4\tb\tt\t\t\t\n", 1)
	if want := []string{`2: domain 1-2.3-4 tree block 0 ""`}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
}

// TestEntriesOfExceptions: in a list of exceptions an entry that refuses is refused by itself, as in other formats.
func TestEntriesOfExceptions(t *testing.T) {
	text := lists.EntriesHead + "\na.test\ta\tt\t\t\t\nb.test\tb\tt\t\t\t\nc.test\tp\tt\t\t\t\n"
	got, sum, err := items(t, text, lists.Settings{Action: lists.Allow})
	want := []string{"skip header", "domain a.test tree allow", "err unsupported-action", "domain c.test tree allow-if-auth"}
	if err != nil || !slices.Equal(got, want) || sum.Errors != 1 {
		t.Errorf("%q, %+v, %v", got, sum, err)
	}
}

// TestEntriesAcrossBlocks breaks the order at a random line of a file of many blocks. Several workers find the line
// that one does, wherever blocks end.
func TestEntriesAcrossBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	lines := make([]string, 40_000)
	for i := range lines {
		lines[i] = fmt.Sprintf("user.%06d@bulk.test\tb\tx\t\t\t%s\n", i, strings.Repeat("r", rng.IntN(60)))
	}
	for range 8 {
		at := rng.IntN(len(lines) - 1)
		broken := slices.Clone(lines)
		broken[at], broken[at+1] = broken[at+1], broken[at]
		if later := rng.IntN(len(lines)); later > at+1 {
			broken[later] = "\n"
		}
		for _, workers := range []int{1, 3} {
			_, err := entryLines(t, lists.EntriesHead+"\n"+strings.Join(broken, ""), workers)
			if fe, ok := errors.AsType[*lists.FileError](err); !ok || fe.Line != at+3 || fe.Class != lists.Entries {
				t.Fatalf("%d workers: %v, want line %d", workers, err, at+3)
			}
		}
	}
	testkit.Value(entryLines(t, lists.EntriesHead+"\n"+strings.Join(lines, ""), 3))(t)
}

// TestEntriesAreWrittenOnce: of two with one key, action and scope the one that ends last stays.
func TestEntriesAreWrittenOnce(t *testing.T) {
	var b bytes.Buffer
	w := testkit.Value(lists.NewWriter(&b, "entries", "no comment in such a file"))(t)
	for _, e := range []struct {
		expires int64
		origin  string
	}{{90, "ends first"}, {1000, "ends last"}, {999, "ends before"}} {
		it := testkit.Value(lists.ParseEntry("bulk.test", lists.Settings{}))(t)
		it.Expires, it.Origin, it.Reason = e.expires, e.origin, "tab\tend\\t"
		testkit.Value(w.Write(&it))(t)
		it.Action, it.Expires = lists.Allow, e.expires%999
		testkit.Value(w.Write(&it))(t)
	}
	const said = `tab\tend\\t`
	want := lists.EntriesHead + "\nbulk.test\ta\tt\t\tends before\t" + said + "\nbulk.test\tb\tt\t1000\tends last\t" + said + "\n"
	if err := w.Close(); err != nil || b.String() != want {
		t.Errorf("%q, %v; want %q", b.String(), err, want)
	}
}

// TestEntriesThatReachTooFar: a file of entries is not refused for what the guard keeps out of it. The copy of a database is many such files, one
// of which may hold nothing else.
func TestEntriesThatReachTooFar(t *testing.T) {
	guard := testkit.Value(lists.NewGuard(lists.DefaultGuard()))(t)
	for name, text := range map[string]string{"alone": "com\tb\tt\t\t\t\n", "beside others": "bulk.test\tb\tt\t\t\t\ncom\tb\tt\t\t\t\n"} {
		got, sum, err := items(t, lists.EntriesHead+"\n"+text, lists.Settings{Guard: guard})
		if err != nil || sum.Errors != 1 || sum.Verdict == lists.Refused || got[len(got)-1] != "err public-suffix" {
			t.Errorf("%s: %q, %+v, %v", name, got, sum, err)
		}
	}
	providers := ""
	for _, name := range []string{"aol.com", "gmail.com", "gmx.de", "hotmail.com", "outlook.com", "yahoo.com"} {
		providers += name + "\tb\tt\t\t\t\n"
	}
	if _, _, err := items(t, lists.EntriesHead+"\n"+providers, lists.Settings{Guard: guard}); err == nil {
		t.Error("a list of providers is taken")
	}
}

// show prints an item as the tables of this package's tests have it:
//
//	domain bulk.test sub block
//	addr promo@bulk.test exact allow dup
//	domain bulk.test sub tempfail "450 4.7.1 try later"
//	err unsupported
func show(it *lists.Item) string {
	if it.Kind == lists.Err || it.Kind == lists.Skip {
		return fmt.Sprintf("%s %s", it.Kind, it.Class)
	}
	s := fmt.Sprintf("%s %s %s %s", it.Kind, it.Name(), it.Scope, it.Action)
	if it.Reason != "" {
		s += fmt.Sprintf(" %q", it.Reason)
	}
	if it.Class != "" {
		s += " " + string(it.Class)
	}
	return s
}

// items reads text as s says and returns what show makes of its items.
func items(t testing.TB, text string, s lists.Settings) ([]string, lists.Summary, error) {
	t.Helper()
	var got []string
	sum, err := lists.ReadFile(t.Context(), testkit.File(t, "list", text), s, func(it *lists.Item) error {
		got = append(got, show(it))
		return nil
	})
	return got, sum, err
}

// rows is a table of lines of one format and what each means; items of one line
// are separated by " + ".
type rows []struct{ name, line, want string }

func (rs rows) run(t *testing.T, s lists.Settings) {
	t.Helper()
	for _, tt := range rs {
		t.Run(tt.name, func(t *testing.T) {
			// A second line keeps a file with one bad line from being refused whole.
			last, ok := lastLine[s.Format]
			if !ok {
				last = "last.test" + tail[s.Format]
			}
			got := taken(t, tt.line+"\n"+last+"\n", s)
			testkit.Equal(t, fmt.Sprintf("%s line %q", s.Format, tt.line), strings.Join(got[:max(len(got)-1, 0)], " + "), tt.want)
		})
	}
}

// tail is what makes a name a whole line of a format.
var tail = map[string]string{"postfix": " OK", "sendmail": " OK", "rpz": " CNAME ."}

// lastLine is one entry of a format where a name begins no line.
var lastLine = map[string]string{
	"dnsmasq": "server=/last.test/", "unbound": "local-zone: last.test refuse",
	"spamassassin": "blocklist_from *@last.test", "rbldnsd:ip4set": "192.0.2.99", "rbldnsd:ip4trie": "192.0.2.99", "rbldnsd:ip4tset": "192.0.2.99", "rbldnsd:ip6trie": "2001:db8:99::1", "rbldnsd:ip6tset": "2001:db8:99::1", "drop": "192.0.2.99",
}

// taken reads a list that must be taken.
func taken(t testing.TB, text string, settings lists.Settings) []string {
	t.Helper()
	got, _, err := items(t, text, settings)
	testkit.Must(t, err)
	return got
}

func equal(t testing.TB, got, want []string) {
	t.Helper()
	testkit.Equal(t, "entries", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
}

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
	return testkit.Value(lists.NewGuard(lists.DefaultGuard()))(t)
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

// TestOwnedJSONSaysItsActionOnce: one that lets pass, of records further below or beside, becomes no block; "*" is no
// member that a record has for itself.
func TestOwnedJSONSaysItsActionOnce(t *testing.T) {
	for text, format := range map[string]string{
		`{"action":"allow","data":[{"owner":"anna@here.example","entry":"bulk.example"}]}`:                                "json:data[].entry",
		`{"data":[{"owner":"anna@here.example","entry":"bulk.example"}],"Action":"allow"}`:                                "json:data[].entry",
		`{"owner":"anna@here.example","domains":[{"owner":"anna@here.example","entry":"bulk.example"}],"action":"allow"}`: "json",
	} {
		got, sum, err := ownedItems(t, text, lists.Settings{Format: format})
		if err == nil || !strings.Contains(sum.Why, "of what is below it") {
			t.Errorf("%s: %s, %q", text, sum.Why, got)
		}
	}
	got, _, err := ownedItems(t, `[{"owner":"anna@here.example","action":"allow","sender":"bulk.example","reason":"x"}]`, lists.Settings{Format: "json:[].*"})
	if want := []string{"1 anna@here.example bulk.example tree allow x"}; err != nil || !slices.Equal(got, want) {
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
