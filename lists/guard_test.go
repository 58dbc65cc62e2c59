package lists_test

import (
	"bufio"
	"errors"
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

func newGuard(t testing.TB, s lists.GuardSettings) *lists.Guard {
	t.Helper()
	return testkit.Value(lists.NewGuard(s))(t)
}

func TestGuardJudgesEntries(t *testing.T) {
	s := lists.DefaultGuard()
	s.Protected = append(s.Protected, "Mail.Here.Example.", "bücher.example", "a.b.c.test")
	s.Force = []string{"forced.example", "gmail.com", "com"}
	defaults := newGuard(t, s)
	s.AllowPublicSuffix = true
	allowed := newGuard(t, s)
	tests := []struct {
		rule         string
		format, line string
		want         string // by defaults
		allowed      string // with allow_public_suffix; "" = the same
	}{
		{"a top-level domain", "plain", "shop", "err public-suffix", "domain shop tree block public-suffix"},
		{"all below a top-level domain", "plain", "*.shop", "err public-suffix", "domain shop sub block public-suffix"},
		{"an unknown single label", "plain", "mailhost", "err public-suffix", "domain mailhost tree block public-suffix"},
		{"a rule of the ICANN section", "plain", "com.tr", "err public-suffix", "domain com.tr tree block public-suffix"},
		{"in capitals and with a dot", "plain", "COM.TR.", "err public-suffix", "domain com.tr tree block public-suffix"},
		{"in its own letters", "plain", "公司.cn", "err public-suffix", "domain xn--55qx5d.cn tree block public-suffix"},
		{"exact entries are not checked", "plain", "=com.tr", "domain com.tr exact block", ""},
		{"nor are senders at a suffix", "plain", "x@com.tr", "addr x@com.tr exact block", ""},
		{"exceptions are told of", "plain", "!com.tr", "domain com.tr tree allow public-suffix", ""},
		{"a suffix of the private section is loaded", "plain", "github.io", "domain github.io tree block public-suffix", ""},
		{"a registered name", "plain", "bulk.test", "domain bulk.test tree block", ""},
		{"a format whose names are exact", "hosts", "0.0.0.0 com.tr", "domain com.tr exact block", ""},
		{"one suffix refuses its whole line", "hosts", "0.0.0.0 bulk.test gmail.com zoho.com", "err protected", ""},
		{"a suffix that is deferred only", "postfix", "com.tr 450 later", "err public-suffix", `domain com.tr tree tempfail "450 later" public-suffix`},
		{"public-suffix goes before warn-action", "postfix", "github.io DISCARD", "domain github.io tree discard public-suffix", ""},
		{"a suffix that is allowed by its value", "postfix", "com.tr OK", "domain com.tr tree allow public-suffix", ""},
		{"a network", "plain", "198.51.100.0/24", "cidr 198.51.100.0/24 tree block", ""},

		{"a mailbox provider with all below", "plain", "outlook.com", "err protected", ""},
		{"exactly a mailbox provider", "plain", "=outlook.com", "err protected", ""},
		{"all senders at a mailbox provider", "plain", "*@outlook.com", "err protected", ""},
		{"names below it, but not itself", "plain", "*.outlook.com", "domain outlook.com sub block", ""},
		{"a name below it", "plain", "spam.outlook.com", "domain spam.outlook.com tree block", ""},
		{"a name with the same end", "plain", "notoutlook.com", "domain notoutlook.com tree block", ""},
		{"one mailbox there", "plain", "x@outlook.com", "addr x@outlook.com exact block", ""},
		{"one local-part at any domain", "plain", "offers@", "addr offers@ local block", ""},
		{"an exception for it", "plain", "!outlook.com", "domain outlook.com tree allow", ""},
		{"a parent of a protected name", "plain", "here.example", "err protected", ""},
		{"names below a parent", "plain", ".here.example", "err protected", ""},
		{"a grandparent", "plain", "c.test", "err protected", ""},
		{"exactly a parent", "plain", "=here.example", "domain here.example exact block", ""},
		{"a protected name in its own letters", "plain", "BÜCHER.example", "err protected", ""},
		{"deferring it", "postfix", "outlook.com DEFER", "err protected", ""},

		{"forced", "plain", "gmail.com", "domain gmail.com tree block protected", ""},
		{"forced is the entry that is named, not what is below", "plain", "googlemail.com", "err protected", ""},
		{"force is about protected domains only", "plain", "com", "err public-suffix", "domain com tree block public-suffix"},
		{"force of what needs none", "plain", "forced.example", "domain forced.example tree block", ""},
		{"a forced suffix still may not cover others", "plain", "net", "err public-suffix", "err protected"},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if tt.allowed == "" {
				tt.allowed = tt.want
			}
			for guard, want := range map[*lists.Guard]string{defaults: tt.want, allowed: tt.allowed} {
				s := lists.Settings{Format: tt.format, Guard: guard}
				got := taken(t, tt.line+"\nlast.test"+tail[tt.format]+"\n", s)
				testkit.Equal(t, tt.line, strings.Join(got[:max(len(got)-1, 0)], " + "), want)
			}
		})
	}
}

// An allow list of providers that is judged as one that reaches nobody else: see
// TestExceptionsForEverybody.
func TestGuardAndAListOfExceptions(t *testing.T) {
	s := lists.Settings{Format: "plain", Action: lists.Allow, Guard: newGuard(t, lists.DefaultGuard())}
	_, sum, err := items(t, strings.Join(lists.ShippedProtected(), "\n")+"\ncom\n", s)
	if err != nil || sum.Errors > 0 {
		t.Errorf("%d errors, %v", sum.Errors, err)
	}
}

func TestGuardSettings(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    lists.GuardSettings
		want string
	}{
		{"protected", lists.GuardSettings{Protected: []string{"a.test", "x@b.test"}}, "protected: "},
		{"force", lists.GuardSettings{Force: []string{"*.test"}}, "force: "},
	} {
		if _, err := lists.NewGuard(tt.s); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q...", tt.name, err, tt.want)
		}
	}
	id := func(change func(*lists.GuardSettings)) uint64 {
		s := lists.DefaultGuard()
		change(&s)
		return newGuard(t, s).ID()
	}
	same := id(func(*lists.GuardSettings) {})
	for what, change := range map[string]func(*lists.GuardSettings){
		"bounds":             func(s *lists.GuardSettings) { s.MaxProtected, s.MaxBadRatio = 1, 0.5 },
		"order":              func(s *lists.GuardSettings) { slices.Reverse(s.Protected) },
		"spelling and twice": func(s *lists.GuardSettings) { s.Protected = append(s.Protected, "GMAIL.com.") },
	} {
		testkit.Equal(t, fmt.Sprintf("%s change the ID: a generation would be built anew for nothing", what), id(change), same)
	}
	seen := map[uint64]string{0: "nil", same: "default"}
	for what, change := range map[string]func(*lists.GuardSettings){
		"suffixes":      func(s *lists.GuardSettings) { s.AllowPublicSuffix = true },
		"one more":      func(s *lists.GuardSettings) { s.Protected = append(s.Protected, "here.example") },
		"one less":      func(s *lists.GuardSettings) { s.Protected = s.Protected[1:] },
		"force":         func(s *lists.GuardSettings) { s.Force = []string{"here.example"} },
		"force of more": func(s *lists.GuardSettings) { s.Force = []string{"here.example", "gmail.com"} },
	} {
		if other, taken := seen[id(change)]; taken {
			t.Errorf("%s and %s have one ID", what, other)
		}
		seen[id(change)] = what
	}
	testkit.Equal(t, "the nil Guard has an ID", (*lists.Guard)(nil).ID(), 0)
}

// TestShippedProtected reviews the table by what can be checked: every name is a
// registered one in canonical form and stands once.
func TestShippedProtected(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range lists.ShippedProtected() {
		if seen[name] {
			t.Errorf("%s stands twice", name)
		}
		seen[name] = true
		if lists.RegistrableDomain(name) != name {
			t.Errorf("%s is no registered name", name)
		}
	}
	if len(seen) < 40 || !seen["gmail.com"] || !seen["outlook.com"] || !seen["t-online.de"] || !seen["qq.com"] {
		t.Errorf("%d names", len(seen))
	}
}

// TestGuardRefusesFiles holds the bounds of whole files, each at its limit.
func TestGuardRefusesFiles(t *testing.T) {
	numbered := func(n int, form string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, form+"\n", i)
		}
		return b.String()
	}
	const protected5 = "gmail.com\n=gmail.com\nyahoo.com\naol.com\nweb.de\n"
	loose := lists.DefaultGuard()
	loose.MaxProtected, loose.MaxBadRatio = 6, 1
	strict := lists.DefaultGuard()
	strict.MaxProtected, strict.MaxBadRatio = 0, 0
	forced := lists.DefaultGuard()
	forced.Force = []string{"gmail.com", "yahoo.com"}
	tests := []struct {
		rule, format, text string
		guard              lists.GuardSettings
		want               string // of Why; "" = loaded
	}{
		{"five protected", "plain", "bulk.test\n" + protected5, lists.DefaultGuard(), ""},
		{"six protected", "plain", "bulk.test\n" + protected5 + "mail.ru\n", lists.DefaultGuard(),
			"protected: entries that cover a protected domain: 6, more than max_protected = 5; a list of providers, or poisoned; the first is line 2: gmail.com"},
		{"six where six may be", "plain", "bulk.test\n" + protected5 + "mail.ru\n", loose, ""},
		{"one where none may be", "plain", "bulk.test\nMAIL.ru\n", strict,
			"protected: entries that cover a protected domain: 1, more than max_protected = 0; a list of providers, or poisoned; the first is line 2: mail.ru"},
		{"forced ones do not count", "plain", protected5 + "mail.ru\nqq.com\n", forced, ""},
		{"nothing else: the better reason is said", "plain", protected5 + "mail.ru\n", lists.DefaultGuard(), "protected: entries that cover a protected domain: 6"},
		{"nothing else, and not too many", "plain", "gmail.com\n", lists.DefaultGuard(), "only-errors: 1 refused lines"},

		{"26 bad of 104", "plain", numbered(78, "n%d.test") + numbered(26, "bad line %d"), lists.DefaultGuard(), ""},
		{"27 bad of 104", "plain", numbered(77, "n%d.test") + numbered(27, "bad line %d"), lists.DefaultGuard(),
			"bad-ratio: 27 of 104 lines are refused, more than max_bad_ratio = 0.25; the first is line 78: syntax: more than one word; write one entry a line"},
		{"99 lines say nothing", "plain", numbered(9, "n%d.test") + numbered(90, "bad line %d"), lists.DefaultGuard(), ""},
		{"100 lines do", "plain", numbered(10, "n%d.test") + numbered(90, "bad line %d"), lists.DefaultGuard(), "bad-ratio: 90 of 100"},
		{"comments and blank lines are none", "plain", numbered(9, "n%d.test") + numbered(90, "bad line %d") + numbered(50, "# %d") + "\n\n", lists.DefaultGuard(), ""},
		{"nor do they dilute", "plain", numbered(70, "n%d.test") + numbered(30, "bad line %d") + numbered(500, "# %d"), lists.DefaultGuard(), "bad-ratio: 30 of 100"},
		{"unsupported is not bad", "adblock", numbered(10, "||n%d.test^") + numbered(500, "##.ad%d"), lists.DefaultGuard(), ""},
		{"but is a line", "adblock", numbered(10, "||n%d.test^") + numbered(500, "##.ad%d") + numbered(30, "||co.uk^$all,%d\x01"), lists.DefaultGuard(), ""},
		{"suffixes are bad", "plain", numbered(100, "n%d.test") + numbered(40, "tld%d"), lists.DefaultGuard(), "bad-ratio: 40 of 140"},
		{"no bad line at all", "plain", numbered(100, "n%d.test") + "bad line\n", strict, "bad-ratio: 1 of 101"},
		{"every line may be bad", "plain", "n.test\n" + numbered(999, "bad line %d"), loose, ""},
		{"elements of JSON count like lines", "json", `["a.test"` + strings.Repeat(",\n7", 150) + "]", lists.DefaultGuard(), "bad-ratio: 150 of 151"},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			_, sum, err := items(t, tt.text, lists.Settings{Format: tt.format, Guard: newGuard(t, tt.guard)})
			if (err != nil) != (tt.want != "") || !strings.HasPrefix(sum.Why, tt.want) {
				t.Errorf("why %q, error %v, want %q", sum.Why, err, tt.want)
			}
			var refused *lists.FileError
			if err != nil && !errors.As(err, &refused) {
				t.Errorf("error %T, want a FileError", err)
			}
			if _, _, err := items(t, tt.text, lists.Settings{Format: tt.format}); err != nil && !strings.Contains(err.Error(), "only-errors") {
				t.Errorf("without a guard: %v", err)
			}
		})
	}
}

// slowGuard is what a Guard must say of an entry, written down as the rules are.
func slowGuard(entry string, scope lists.Scope, protected []string) bool {
	for _, p := range protected {
		below := strings.HasSuffix(p, "."+entry)
		switch scope {
		case lists.Exact:
			below = entry == p
		case lists.Tree:
			below = below || entry == p
		}
		if below {
			return true
		}
	}
	return false
}

// TestGuardAgreesWithItsRules asks about every name above and beside protected
// ones, in every scope.
func TestGuardAgreesWithItsRules(t *testing.T) {
	s := lists.DefaultGuard()
	s.Protected = append(s.Protected, "x.y.z.example", "z.example", "y.z.example", "deep.mail.gmail.com")
	s.AllowPublicSuffix = true
	guard := newGuard(t, s)
	var names []string
	for _, p := range s.Protected {
		for name := p; ; {
			names = append(names, name, "a."+name, "not"+name)
			_, parent, more := strings.Cut(name, ".")
			if !more {
				break
			}
			name = parent
		}
	}
	for _, name := range names {
		for scope, form := range map[lists.Scope]string{lists.Exact: "=%s", lists.Tree: "%s", lists.Sub: ".%s"} {
			got := taken(t, fmt.Sprintf(form+"\nlast.test\n", name), lists.Settings{Format: "plain", Guard: guard})
			if want := slowGuard(name, scope, s.Protected); (got[0] == "err protected") != want {
				t.Errorf("%s as %s: %s, want protected: %t", name, scope, got[0], want)
			}
		}
	}
}

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
		got := taken(t, text, lists.Settings{Format: format})
		want := map[string][]string{
			"dnsmasq": {"domain q.example tree block", "err not-a-sink", "err not-a-sink"},
			"unbound": {"domain q.example tree block", "skip directive", "skip directive", "err not-a-sink"},
			"rpz":     {"domain q.example exact block", "domain q.example sub block", "domain other.example exact allow", "skip directive"},
		}[format]
		equal(t, got, want)
	}
	got := taken(t, "*.q.example CNAME .\nok.q.example CNAME .\n", lists.Settings{Format: "rpz", Action: lists.Allow})
	equal(t, got, []string{"domain q.example sub allow", "domain ok.q.example exact allow"})
}

// TestOwnClients: what a list says of this machine's own clients is refused by line, and the rest acts, however much
// of it that is.
func TestOwnClients(t *testing.T) {
	level1 := "0.0.0.0/8\n10.0.0.0/8\n100.64.0.0/10\n127.0.0.0/8\n169.254.0.0/16\n172.16.0.0/12\n192.0.0.0/24\n192.168.0.0/16\n198.51.100.0/24\n::1\nfd00::/8\nfe80::1\n"
	s := lists.DefaultGuard()
	s.Own = append(s.Own, lists.OwnNetwork{Net: netip.MustParsePrefix("203.0.113.0/28"), What: "which is in smtp.trusted"})
	level1 += "203.0.113.7\n203.0.113.64/26\n::ffff:127.0.0.1\n10.0.0.1 - 10.0.0.9\n10.0.0.8-9\n192.0.0.0/8\npostmaster@\n" + strings.Repeat("127.0.0.1\n", 200)
	want := []string{"cidr 0.0.0.0/8 tree block", "cidr 192.0.0.0/24 tree block", "cidr 198.51.100.0/24 tree block", "cidr 203.0.113.64/26 tree block"}
	var entries, refused []string
	read := func(format, text string, s lists.GuardSettings) lists.Summary {
		t.Helper()
		entries, refused = nil, nil
		got, sum, err := items(t, text, lists.Settings{Format: format, Guard: newGuard(t, s)})
		testkit.Must(t, err)
		for _, it := range got {
			if strings.HasPrefix(it, "err ") {
				refused = append(refused, it)
			} else {
				entries = append(entries, it)
			}
		}
		return sum
	}
	sum := read("plain", level1, s)
	testkit.EqualSlices(t, "entries", entries, want)
	if len(refused) != 215 || refused[0] != "err protected" || sum.Errors != 215 {
		t.Errorf("%d refused lines, %d errors: %.200q", len(refused), sum.Errors, refused)
	}
	read("json", `["127.0.0.1","198.51.100.7"]`, s)
	testkit.EqualSlices(t, "json", append(entries, refused...), []string{"ip 198.51.100.7 exact block", "err protected"})
	read("postfix", "127 REJECT\n10.1 REJECT\n198.51.100 REJECT\n", s)
	testkit.EqualSlices(t, "postfix", entries, []string{"cidr 198.51.100.0/24 tree block"})
	read("plain", "!127.0.0.0/8\n!10.0.0.1\n", s)
	testkit.EqualSlices(t, "exceptions", entries, []string{"cidr 127.0.0.0/8 tree allow", "ip 10.0.0.1 exact allow"})

	s.Force = []string{"10.0.0.0/8", "127.0.0.9", "here.example"}
	read("plain", "10.0.0.0/8\n10.1.2.3\n127.0.0.9\n127.0.0.8\n192.168.1.1\n", s)
	testkit.EqualSlices(t, "by force", entries, []string{"cidr 10.0.0.0/8 tree block protected", "ip 10.1.2.3 exact block protected", "ip 127.0.0.9 exact block protected"})
}
