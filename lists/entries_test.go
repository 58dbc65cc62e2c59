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
			got, _, err := items(t, tt.line+"\n"+last+"\n", s)
			testkit.Must(t, err)
			testkit.Equal(t, fmt.Sprintf("%s line %q", s.Format, tt.line), strings.Join(got[:max(len(got)-1, 0)], " + "), tt.want)
		})
	}
}

// tail is what makes a name a whole line of a format.
var tail = map[string]string{"postfix": " OK", "sendmail": " OK", "rpz": " CNAME ."}

// lastLine is one entry of a format where a name begins no line.
var lastLine = map[string]string{
	"dnsmasq": "server=/last.test/", "unbound": "local-zone: last.test refuse",
	"spamassassin": "blocklist_from *@last.test", "rbldnsd:ip4set": "192.0.2.99", "drop": "192.0.2.99",
}

func equal(t testing.TB, got, want []string) {
	t.Helper()
	testkit.Equal(t, "entries", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
}
