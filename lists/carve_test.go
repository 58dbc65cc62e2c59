package lists_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

// namesOf is what a list makes of senders' domains, by its entries one after the other.
type namesOf []lists.Item

func (all namesOf) blocked(name string) bool {
	blocked := false
	for _, it := range all {
		key := it.Key.Text
		below := strings.HasSuffix(name, "."+key)
		matches := it.Scope != lists.Sub && name == key || it.Scope != lists.Exact && below
		if matches && it.Action == lists.Allow {
			return false
		}
		blocked = blocked || matches
	}
	return blocked
}

// TestMostSpecificNameDecides: of a file whose exceptions lie within its blocks each name is what the
// program makes of it that the format belongs to. What differs is refused by line.
func TestMostSpecificNameDecides(t *testing.T) {
	files, err := filepath.Glob("testdata/exceptions/*.want")
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for _, want := range files {
		list := strings.TrimSuffix(want, ".want")
		format := strings.TrimPrefix(filepath.Ext(list), ".")
		t.Run(format, func(t *testing.T) {
			var all namesOf
			sum, err := lists.ReadFile(t.Context(), list, lists.Settings{Format: format}, func(it *lists.Item) error {
				if it.Kind == lists.Domain {
					it.Key.Text = strings.Clone(it.Key.Text)
					all = append(all, *it)
				}
				return nil
			})
			testkit.Must(t, err)
			var lines []string
			for _, l := range sum.Dropped.First {
				lines = append(lines, fmt.Sprintf("line %d %s %s", l.Line, l.Class, l.Message))
			}
			f := testkit.Value(os.Open(want))(t)
			defer f.Close()
			names := 0
			for s := bufio.NewScanner(f); s.Scan(); {
				switch word, name, _ := strings.Cut(s.Text(), " "); word {
				case "#":
				case "line":
					if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, s.Text()) }) {
						t.Errorf("no %q among %q", s.Text(), lines)
					}
					names++
				default:
					if got, name := all.blocked(strings.TrimSpace(name)), strings.TrimSpace(name); got != (word == "blocked") {
						t.Errorf("%s is blocked: %t, want %s", name, got, word)
					}
				}
			}
			if names != len(lines) {
				t.Errorf("refused lines %q", lines)
			}
			for _, workers := range []int{2, 5} { // and several workers read the same
				n, err := lists.ReadBlocks(t.Context(), list, lists.Settings{Format: format}, workers, func(int, *lists.Item) error { return nil })
				if err != nil || n.Entries != sum.Entries || n.Errors != sum.Errors {
					t.Errorf("%d workers: %+v, %v", workers, n, err)
				}
			}
		})
	}
}

// Where nothing is taken out the entries are what they always were.
func TestOptionsThatTakeNothingOut(t *testing.T) {
	for format, text := range map[string]string{
		"dnsmasq": "address=/q.example/\nserver=/other.example/192.0.2.53\nserver=/example/#\n",
		"unbound": "local-zone: q.example refuse\nlocal-zone: other.example transparent\nlocal-zone: example transparent\nlocal-data: \"q2.example A 192.0.2.1\"\n",
		"rpz":     "q.example CNAME .\n*.q.example CNAME .\nother.example CNAME rpz-passthru.\nexample TXT x\n",
	} {
		got, _, err := items(t, text, lists.Settings{Format: format})
		testkit.Must(t, err)
		want := map[string][]string{
			"dnsmasq": {"domain q.example tree block", "err not-a-sink", "err not-a-sink"},
			"unbound": {"domain q.example tree block", "skip directive", "skip directive", "err not-a-sink"},
			"rpz":     {"domain q.example exact block", "domain q.example sub block", "domain other.example exact allow", "skip directive"},
		}[format]
		equal(t, got, want)
	}
	got, _, err := items(t, "*.q.example CNAME .\nok.q.example CNAME .\n", lists.Settings{Format: "rpz", Action: lists.Allow})
	testkit.Must(t, err)
	equal(t, got, []string{"domain q.example sub allow", "domain ok.q.example exact allow"})
}
