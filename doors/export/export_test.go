package export

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"blockd/index"
	"blockd/internal/term"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/internal/testkit/race"
	"blockd/lists"
	"blockd/mail/addr"
)

// built is an index of plain lists whose exceptions lift the blocks of all.
func built(t *testing.T, files map[string]string) *index.Index {
	t.Helper()
	var sources []index.Source
	for _, name := range slices.Sorted(maps.Keys(files)) {
		s := indexes.Source(t, name, files[name])
		s.Exceptions = index.AllExceptions
		sources = append(sources, s)
	}
	return indexes.Build(t, sources...)
}

// exported is what a job writes, and what it tells.
func exported(t *testing.T, job Job) (text string, told *Result) {
	t.Helper()
	job.Progress = func(int64, int64) {}
	var b strings.Builder
	told, err := job.Write(t.Context(), &b)
	testkit.Must(t, err)
	return b.String(), told
}

// linesOf drops comments and blank lines.
func linesOf(text string) []string {
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(text), "\n"), func(l string) bool {
		return l == "" || l[0] == '#' || l[0] == ';'
	})
}

// held is the set of what an index holds, as "kind name scope action".
func held(t *testing.T, ix *index.Index) map[string]lists.Item {
	t.Helper()
	all := map[string]lists.Item{}
	for e, err := range ix.Entries(t.Context(), nil) {
		testkit.Must(t, err)
		all[what(&e.Item)] = e.Item
	}
	return all
}

func what(it *lists.Item) string {
	return fmt.Sprintf("%s %s %s %s", it.Kind, it.Name(), it.Scope, it.Action)
}

// ordinaryAddress is without quotes, and without marks of comments and patterns.
var ordinaryAddress = regexp.MustCompile("^[a-zö0-9._+=&'%{}|`-]+@[a-z0-9._-]*$")

// accessAddress is what an access table has as it is: no quotes, and no "#" at first.
var accessAddress = regexp.MustCompile("^[a-zö0-9._+=&'%{}|`!$*/?^~-][a-zö0-9._+=&'%{}|`!$*/?^~#-]*@[a-z0-9._-]*$")

// sayableAs is what must come back of an entry that was written in a format: the
// formats' manuals in short. Nothing: the format cannot say it.
func sayableAs(format string, it lists.Item) []lists.Item {
	name := it.Kind == lists.Domain && it.Key.Text[0] != '['
	plain := it.Action == lists.Block || it.Action == lists.Allow
	four := it.Net.IsValid() && it.Net.Addr().Is4()
	as := func(scopes ...lists.Scope) (all []lists.Item) {
		for _, s := range scopes {
			it.Scope = s
			all = append(all, it)
		}
		return all
	}
	ok := false
	switch format {
	case "plain":
		ok = plain
	case "entries":
		ok = it.Kind != lists.Glob && it.Kind != lists.Regexp
	case "hosts":
		if name && it.Action == lists.Block && it.Scope != lists.Sub {
			return as(lists.Exact)
		}
	case "rspamd":
		switch {
		case it.Action != lists.Block:
		case name && it.Scope != lists.Sub:
			return as(lists.Exact)
		case it.Kind == lists.Addr:
			ok = it.Scope == lists.Exact && ordinaryAddress.MatchString(it.Name())
		default:
			ok = it.Net.IsValid()
		}
	case "postfix":
		switch it.Kind {
		case lists.Addr:
			ok = accessAddress.MatchString(it.Name()) && (it.Scope == lists.Exact || it.Action != lists.Allow)
		case lists.Domain:
			ok = !name || name && (it.Scope == lists.Tree || it.Scope == lists.Sub && it.Action != lists.Allow)
		case lists.IP:
			ok = true
		case lists.CIDR:
			ok = four && it.Net.Bits()%8 == 0 || !four && it.Net.Bits()%16 == 0 && !slices.Contains(strings.Split(it.Net.Addr().StringExpanded(), ":")[:it.Net.Bits()/16], "0000")
		}
	case "rbldnsd":
		ok = plain && name
	case "rbldnsd:ip4set":
		ok = plain && four
	case "rbldnsd:combined":
		ok = plain && (name || four)
	case "rpz":
		last := it.Key.Text[strings.LastIndexByte(it.Key.Text, '.')+1:]
		if ok = plain && name && len(it.Key.Text) <= 190 && !strings.HasPrefix(last, "rpz-"); ok && it.Scope == lists.Tree {
			return as(lists.Exact, lists.Sub)
		}
	}
	if ok {
		return as(it.Scope)
	}
	return nil
}

var leftOut = regexp.MustCompile(`([0-9,]+)× `)

// comesBack exports an index in a format, compiles what was written, and compares.
func comesBack(t *testing.T, ix *index.Index, format string) {
	t.Helper()
	before := held(t, ix)
	want, unsaid, narrowed := map[string]bool{}, 0, 0
	for _, it := range before {
		said := sayableAs(format, it)
		if len(said) == 0 {
			unsaid++
		} else if len(said) == 1 && said[0].Scope != it.Scope {
			narrowed++
		}
		for _, s := range said {
			want[what(&s)] = true
		}
	}
	text, result := exported(t, Job{Index: ix, Format: format})
	told := result.String()
	testkit.Equal(t, "partial: "+told, result.Partial(), unsaid+narrowed > 0)
	counts := 0
	for _, m := range leftOut.FindAllStringSubmatch(told, -1) {
		n := testkit.Value(strconv.Atoi(strings.ReplaceAll(m[1], ",", "")))(t)
		counts += n
	}
	if wrote := term.Counted(len(before)-unsaid, "entry") + " written"; counts != unsaid || !strings.Contains(told, wrote) {
		t.Errorf("told %q; %d are left out, and %s", told, unsaid, wrote)
	}
	if len(want) == 0 {
		return // an empty file is refused by compile
	}
	have := held(t, indexes.Build(t, index.Source{List: "again", Path: testkit.File(t, "list", text), Settings: lists.Settings{Format: format, Patterns: true}}))
	for what := range have {
		if !want[what] && !(format == "rpz" && strings.HasSuffix(what, " allow")) { // a name between two others stops a wildcard
			t.Errorf("came back, and was not there: %s", what)
		}
	}
	for what := range want {
		if _, ok := have[what]; !ok {
			t.Errorf("did not come back: %s", what)
		}
	}
}

// TestExportOfRealListsComesBack takes real lists through every format.
func TestExportOfRealListsComesBack(t *testing.T) {
	race.Skip(t)
	dir := testkit.Shared(t, "lists")
	for _, tt := range []struct{ file, format string }{
		{"badd-boyz.domains", "plain"}, {"disposable_email_blocklist.conf", "plain"}, {"disposable-wildcard.json", "json"}, {"scam.hosts", "hosts"},
		{"blp-scam.hosts", "hosts"}, {"scam.adblock.txt", "adblock"}, {"ransomware.dnsmasq.conf", "dnsmasq"}, {"sw-scam.txt", "plain"},
		{"referrer-spammers.txt", "plain"}, {"spam-senders.txt", "plain"}, {"ipsum-level4.txt", "plain"}, {"cidr-mixed.txt", "plain"},
		{"rspamd/dmarc_whitelist.inc", "rspamd"}, {"rspamd/maillist.inc", "rspamd"}, {"converted/sender_access", "postfix"}, {"converted/access.sendmail", "sendmail"},
		{"converted/scam.unbound.conf", "unbound"}, {"converted/scam.dnset", "rbldnsd"}, {"converted/blocklist_from.cf", "spamassassin"},
		{"converted/scam.rpz.zone", "rpz"}, {"converted/spam-senders.crlf.csv", "csv"}, {"converted/spam-senders.exim-lsearch", "lsearch"},
	} {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel() // most of the time is waiting for the disk
			ix := indexes.Build(t, index.Source{List: "real", Path: filepath.Join(dir, tt.file), Settings: lists.Settings{Format: tt.format}})
			for _, format := range lists.WritableFormats() {
				t.Run(format, func(t *testing.T) { comesBack(t, ix, format) })
			}
		})
	}
}

// randomLines are entries of all kinds in the plain format, and in that of access
// tables, whose exceptions cover nothing that is blocked.
func randomLines(rng *rand.Rand, n int) (plain, access string) {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	local := func() string {
		text := pick("a", "promo", "x1", "jörg")
		for range rng.IntN(4) {
			text += pick("!", "#", "$", "%", "&", "'", "*", "+", "-", "/", "=", "?", "^", "_", "`", "{", "|", "}", "~", "b", "7")
		}
		if rng.IntN(8) == 0 {
			return pick(`" `, `"`, `"#`, `"a\"`, `"\\`, `"(`, `":`) + text + `"`
		}
		return text + "z"
	}
	name := func() string {
		return pick("", "a.", "_dmarc.", "0.", "xn--bcher-kva.", "-.", "127.0.0.1.", strings.Repeat("long.", 38)) +
			fmt.Sprintf("n%d", rng.IntN(50)) + pick(".test", ".test", ".bücher", ".rpz-ip", ".rpz-", ".example")
	}
	entry := func(exception bool) string {
		at, v4, v6 := name(), "198.51", "2001:db8"
		if exception {
			at, v4, v6 = "ok."+at+"-free", "203.0", "2001:db9"
		}
		switch rng.IntN(9) {
		case 0:
			return local() + pick("", "x") + "@" + at
		case 1:
			return pick("offers", "a.b", "x+y", "#", "a'b")[:1] + map[bool]string{false: "q@", true: "free@"}[exception]
		case 2:
			return pick("=", ".", "") + at
		case 3:
			return pick("@[", "x@[") + pick(v4+".100.7]", "ipv6:"+v6+"::7]")
		case 4:
			return fmt.Sprintf("%s.%d.%d", v4, rng.IntN(4), rng.IntN(256))
		case 5:
			return fmt.Sprintf("%s.%d.0/%d", v4, rng.IntN(256), 17+rng.IntN(14))
		case 6:
			return fmt.Sprintf("%s:%x:%x::/%d", v6, rng.IntN(3), rng.IntN(3), 32+rng.IntN(4)*16)
		case 7:
			return fmt.Sprintf("%s:%x::%x", v6, rng.IntN(3), 1+rng.IntN(99))
		}
		if exception {
			return pick("ok*@a.test-free", "/^ok[0-9]+@a/")
		}
		return pick(fmt.Sprintf("promo%d*@bulk.test", rng.IntN(99)), fmt.Sprintf("/^promo%d[#;/]/", rng.IntN(99)), fmt.Sprintf("bulk*%d.test", rng.IntN(9)))
	}
	for range n {
		if rng.IntN(4) > 0 {
			plain += entry(false) + "\n"
		} else {
			plain += "!" + entry(true) + "\n"
		}
		access += fmt.Sprintf("d%d.test %s\n", rng.IntN(99), pick("DEFER later", "450 4.7.1 $ # x", "DISCARD", "REJECT go ; away", "554 5.7.1 no"))
		access += fmt.Sprintf("u%d@d.test %s\n", rng.IntN(99), pick("DEFER", "DISCARD quietly", "REJECT"))
	}
	return plain, access
}

func TestExportOfRandomEntriesComesBack(t *testing.T) {
	race.Skip(t)
	for seed := range uint64(4) {
		plain, access := randomLines(rand.New(rand.NewPCG(seed, 4)), 400)
		ix := indexes.Build(t,
			index.Source{List: "plain", Path: testkit.File(t, "plain.txt", plain), Exceptions: index.AllExceptions, Settings: lists.Settings{Format: "plain", Patterns: true}},
			index.Source{List: "access", Path: testkit.File(t, "access", access), Settings: lists.Settings{Format: "postfix"}})
		kinds := map[string]int{}
		for _, it := range held(t, ix) {
			kinds[it.Kind.String()+" "+it.Action.String()]++
		}
		if len(kinds) < 13 {
			t.Fatalf("seed %d has only %v", seed, kinds)
		}
		for _, format := range lists.WritableFormats() {
			t.Run(fmt.Sprintf("%d/%s", seed, format), func(t *testing.T) { comesBack(t, ix, format) })
		}
	}
}

// nearestRefuses is what a program makes of names that puts the one first that says more:
// of an exact name and those above it the longest; an exception before a block.
func nearestRefuses(items []lists.Item, name string) (blocked bool) {
	for of, own := name, true; ; own = false {
		var here []lists.Action
		for _, it := range items {
			if it.Key.Text == of && (own && it.Scope != lists.Sub || !own && it.Scope != lists.Exact) {
				here = append(here, it.Action)
			}
		}
		if len(here) > 0 {
			return !slices.Contains(here, lists.Allow)
		}
		_, above, more := strings.Cut(of, ".")
		if of = above; !more {
			return false
		}
	}
}

// TestExportRefusesLess: whatever exceptions and blocks lie above each other, a
// program that puts the nearest first refuses nobody whom blockd lets pass.
func TestExportRefusesLess(t *testing.T) {
	race.Skip(t)
	rng := rand.New(rand.NewPCG(5, 5))
	names := []string{"test", "a.test", "b.a.test", "c.b.a.test", "d.c.b.a.test", "e.d.c.b.a.test"}
	refusedThere, refusedHere := 0, 0
	for range 60 {
		var text string
		for range 1 + rng.IntN(6) {
			text += []string{"", "", "!"}[rng.IntN(3)] + []string{"", "=", "."}[rng.IntN(3)] + names[1+rng.IntN(len(names)-2)] + "\n"
		}
		ix := built(t, map[string]string{"l": text})
		for _, format := range []string{"rbldnsd", "rpz", "postfix", "hosts", "rspamd"} {
			if format == "postfix" && strings.Contains(text, "!=") || format == "postfix" && strings.Contains(text, "!.") {
				continue // exceptions inside a block that it cannot say: told, and the block stays
			}
			list, _ := exported(t, Job{Index: ix, Format: format})
			file := testkit.File(t, "list", list)
			var items []lists.Item
			owners := map[string]lists.Action{}
			if _, err := lists.ReadFile(t.Context(), file, lists.Settings{Format: format}, func(it *lists.Item) error {
				if it.Kind != lists.Domain {
					return nil
				}
				kept := *it
				kept.Key.Text = strings.Clone(it.Key.Text)
				items = append(items, kept)
				if owner := fmt.Sprint(it.Name(), it.Scope == lists.Sub); format == "rpz" {
					if is, ok := owners[owner]; ok && is != it.Action {
						t.Errorf("two answers for %s: a server refuses the zone\n%s", owner, text)
					}
					owners[owner] = it.Action
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if (format == "hosts" || format == "rspamd") && strings.Contains(text, "!") {
				continue // as for postfix
			}
			for _, name := range names {
				a := testkit.Value(addr.Parse("x@" + name))(t)
				matches := testkit.Value(ix.Lookup(nil, a, time.Now()))(t)
				here := len(matches) > 0 && !slices.ContainsFunc(matches, func(m index.Match) bool { return m.Action == lists.Allow })
				there := nearestRefuses(items, name)
				if there && !here {
					t.Fatalf("%s refuses %s, blockd does not:\n%s", format, name, text)
				}
				if there {
					refusedThere++
				}
				if here {
					refusedHere++
				}
			}
		}
	}
	if refusedThere*10 < refusedHere*7 {
		t.Errorf("of %d that blockd refuses, %d are refused there: exceptions cost too much", refusedHere, refusedThere)
	}
	t.Logf("blockd refuses %d, the others %d of them", refusedHere, refusedThere)
}

// TestExportOfNetworksUnderExceptions: a network that an exception covers is not
// written, however narrow it is.
func TestExportOfNetworksUnderExceptions(t *testing.T) {
	ix := built(t, map[string]string{"l": "198.51.0.0/16\n!198.51.100.0/24\n198.51.100.7\n198.51.100.0/25\n203.0.113.7\n!203.0.113.7\n203.0.113.8\n"})
	for format, want := range map[string][]string{
		"rbldnsd:ip4set": {"198.51.0.0/16", "!198.51.100.0/24", "!203.0.113.7", "203.0.113.8"},
		"postfix":        {"198.51 REJECT", "198.51.100 OK", "203.0.113.7 OK", "203.0.113.8 REJECT"},
		"rspamd":         {"198.51.0.0/16", "203.0.113.8"},
	} {
		out, told := exported(t, Job{Index: ix, Format: format})
		if have := linesOf(out); !slices.Equal(have, want) || !strings.Contains(told.String(), "3 under exceptions left out") {
			t.Errorf("%s: %q, want %q; %s", format, have, want, told)
		}
	}
}

// TestExportOfAListUnderExceptionsOfOthers: the exceptions of lists that are not
// named count all the same.
func TestExportOfAListUnderExceptionsOfOthers(t *testing.T) {
	ix := built(t, map[string]string{"bad": "a.test\nb.test\n", "good": "!a.test\n"})
	out, told := exported(t, Job{Index: ix, Format: "plain", Lists: []string{"bad"}})
	if have := linesOf(out); !slices.Equal(have, []string{"b.test"}) || !strings.Contains(told.String(), "1 under exceptions left out") {
		t.Errorf("%q; %s", have, told)
	}
}
