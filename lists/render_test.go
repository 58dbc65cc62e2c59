package lists_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

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
			if got := strings.Join(got[:max(len(got)-1, 0)], " + "); got != tt.want {
				t.Errorf("%s line %q:\n got %s\nwant %s", s.Format, tt.line, got, tt.want)
			}
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
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}
