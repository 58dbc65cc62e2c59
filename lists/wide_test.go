package lists_test

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

func freeing(t testing.TB) *lists.Guard {
	s := lists.DefaultGuard()
	s.Frees = true
	return newGuard(t, s)
}

// TestExceptionsForEverybody: an exception that reaches all lists is judged as a block
// is, in each format; the same line in a list whose exceptions stay home is loaded.
func TestExceptionsForEverybody(t *testing.T) {
	for _, tt := range []struct{ rule, format, line, want string }{
		{"a top-level domain", "plain", "!com", "err public-suffix"},
		{"all below one", "plain", "!.co.uk", "err public-suffix"},
		{"a rule of adblock", "adblock", "@@||com^", "err public-suffix"},
		{"a Postfix key", "postfix", "com OK", "err public-suffix"},
		{"a Sendmail key", "sendmail", "From:com OK", "err public-suffix"},
		{"a record of a policy zone", "rpz", "com CNAME rpz-passthru.", ""},
		{"all below in a policy zone", "rpz", "*.com CNAME rpz-passthru.", "err public-suffix"},
		{"SpamAssassin's glob", "spamassassin", "welcomelist_from *@*.com", "err public-suffix"},
		{"with proof of the author", "spamassassin", "welcomelist_auth *@*.com", "err public-suffix"},
		{"a provider", "plain", "!gmail.com", "err protected"},
		{"a provider's name alone", "plain", "!=gmail.com", "err protected"},
		{"a mailbox there", "plain", "!anna@gmail.com", ""},
		{"a name", "plain", "!partner.example", ""},
		{"a network wider than /8", "plain", "!192.0.0.0/7", "err wide"},
		{"a range wider than /8", "plain", "!10.0.0.0-11.255.255.255", "err wide"},
		{"everybody", "plain", "!0.0.0.0/0", "err wide"},
		{"a /8", "plain", "!192.0.0.0/8", ""},
		{"half of one", "plain", "!192.0.0.0/9", ""},
		{"wider than /19", "plain", "!2001::/18", "err wide"},
		{"wider than /16", "plain", "!2000::/3", "err wide"},
		{"a /19", "plain", "!2001::/19", ""},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			text := tt.line + "\nlast.test" + tail[tt.format] + "\n"
			if tt.format == "spamassassin" {
				text = tt.line + "\nblocklist_from *@last.test\n"
			}
			for name, guard := range map[string]*lists.Guard{"all": freeing(t), "own": newGuard(t, lists.DefaultGuard())} {
				got, sum, err := items(t, text, lists.Settings{Format: tt.format, Guard: guard})
				if err != nil || len(got) < 2 {
					t.Fatal(got, err)
				}
				loaded := !strings.HasPrefix(got[0], "err ")
				switch {
				case name == "all" && tt.want != "" && got[0] != tt.want, name == "all" && tt.want == "" && !loaded:
					t.Errorf("exceptions = all: %s, want %q", got[0], tt.want)
				case name == "own" && !loaded && got[0] != "err too-broad":
					t.Errorf("exceptions = own: %s; what stays home is nobody else's business", got[0])
				case sum.Entries == 0:
					t.Error("the rest of the list is lost")
				}
			}
		})
	}
}

// TestNarrowExceptionsAddUp: what covers a wide network together counts as one line, in
// whatever pieces, and what lies elsewhere acts.
func TestNarrowExceptionsAddUp(t *testing.T) {
	pieces := func(network string, bits int, but ...int) (text string) {
		p := netip.MustParsePrefix(network)
		for i, a := 0, p.Addr(); p.Contains(a); i++ {
			n, _ := a.Prefix(bits)
			if !slices.Contains(but, i) {
				text += "!" + n.String() + "\n"
			}
			octets := a.AsSlice()
			for at, step := (bits-1)/8, 1<<(7-(bits-1)%8); step > 0; at-- {
				sum := int(octets[at]) + step
				octets[at], step = byte(sum), sum>>8
				if at == 0 {
					break
				}
			}
			next, _ := netip.AddrFromSlice(octets)
			if !a.Less(next) {
				break
			}
			a = next
		}
		return text
	}
	for _, tt := range []struct {
		name, text string
		refused    int
	}{
		{"two of /8", "!10.0.0.0/8\n!11.0.0.0/8\n", 2},
		{"two that are not one", "!11.0.0.0/8\n!12.0.0.0/8\n", 0},
		{"four of /9", pieces("10.0.0.0/7", 9), 4},
		{"512 of /16", pieces("10.0.0.0/7", 16), 512},
		{"with holes", pieces("10.0.0.0/7", 16, 3, 77, 300), 509},
		{"half of it", pieces("10.0.0.0/8", 16), 0},
		{"the same line again and again", strings.Repeat("!10.0.0.0/8\n", 9), 0},
		{"pieces of /26", pieces("10.0.0.0/18", 26), 0},
		{"IPv6", pieces("2001::/18", 24), 64},
		{"IPv6, half of it", pieces("2001::/19", 24), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := tt.text + "!203.0.113.0/24\nbulk.example\n"
			refused := 0
			elsewhere := false
			path := testkit.File(t, "list", text)
			_, err := lists.ReadFile(t.Context(), path, lists.Settings{Format: "plain", Guard: loose(t)}, func(it *lists.Item) error {
				if it.Kind == lists.Err && it.Class == lists.Wide {
					refused++
				}
				elsewhere = elsewhere || it.Name() == "203.0.113.0/24"
				return nil
			})
			if err != nil || refused != tt.refused || !elsewhere {
				t.Errorf("%d lines refused, want %d; elsewhere %v; %v", refused, tt.refused, elsewhere, err)
			}
		})
	}
	// A /7 in /25, more lines than one worker's share.
	var big strings.Builder
	for i := range 1 << 18 {
		fmt.Fprintf(&big, "!%d.%d.%d.%d/25\n", 10+i>>17, i>>9&255, i>>1&255, i&1<<7)
	}
	sum, err := lists.ReadFile(t.Context(), testkit.File(t, "list", big.String()+"bulk.example\n"), lists.Settings{Format: "plain", Guard: loose(t)}, func(*lists.Item) error { return nil })
	if err != nil || sum.Errors != 1<<18 || sum.Entries != 1 {
		t.Errorf("%d errors, %d entries, %v", sum.Errors, sum.Entries, err)
	}
}

// loose judges exceptions, and no file for its share of refused lines.
func loose(t testing.TB) *lists.Guard {
	s := lists.DefaultGuard()
	s.Frees, s.MaxBadRatio = true, 1
	return newGuard(t, s)
}

// A list of providers is a usual list of exceptions: its other lines act.
func TestProvidersAreNoPoisonAmongExceptions(t *testing.T) {
	_, sum, err := items(t, strings.Join(lists.ShippedProtected()[:8], "\n")+"\npartner.example\n", lists.Settings{Format: "plain", Action: lists.Allow, Guard: freeing(t)})
	if err != nil || sum.Errors != 8 || sum.Entries != 1 {
		t.Errorf("%d errors, %d entries, %v", sum.Errors, sum.Entries, err)
	}
}

// What `blockd add` asks for is judged by what is one's own, too.
func TestGuardOfOwnNetworks(t *testing.T) {
	s := lists.DefaultGuard()
	s.Frees, s.Mailboxes = true, []string{"postmaster"}
	s.Own = []lists.OwnNetwork{{Net: netip.MustParsePrefix("10.1.0.0/16"), What: "which is in smtp.trusted"}}
	guard := newGuard(t, s)
	for _, tt := range []struct {
		entry  string
		action lists.Action
		want   lists.Class
	}{
		{"10.1.2.3", lists.Block, lists.Protected}, {"10.0.0.0/8", lists.Block, lists.Protected}, {"10.2.0.0/16", lists.Block, ""},
		{"10.1.2.3", lists.Allow, ""}, {"postmaster@", lists.Block, lists.Protected}, {"Postmaster@", lists.Block, lists.Protected},
		{"postmaster@", lists.Allow, ""}, {"postmaster@bulk.example", lists.Block, ""}, {"offers@", lists.Block, ""},
		{"com", lists.Allow, lists.PublicSuffix}, {"gmail.com", lists.Allow, lists.Protected}, {"2000::/17", lists.Allow, lists.Wide},
		{"partner.example", lists.Allow, ""},
	} {
		_, err := lists.ParseEntry(tt.entry, lists.Settings{Action: tt.action, Guard: guard})
		if lists.Guarded(err) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), ": "+string(tt.want)+": ") {
			t.Errorf("%s %s: %v, want %q", tt.action, tt.entry, err, tt.want)
		}
	}
}

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
			testkit.Equal(t, fmt.Sprintf("refused lines %q", lines), names, len(lines))
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
