package lists_test

import (
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

func TestPatternsOfPlain(t *testing.T) {
	rows{
		{"expression between slashes", `/^promo[0-9]+@/`, "regexp /^promo[0-9]+@/ exact block"},
		{"expression behind ~", `~\.bulk-[0-9]+\.test$`, `regexp /\.bulk-[0-9]+\.test$/ exact block`},
		{"expression behind ^", `^promo[0-9]+@`, "regexp /^promo[0-9]+@/ exact block"},
		{"flags that change nothing", `/promo/ius`, "regexp /promo/ exact block"},
		{"blanks in slashes", `/"win big"@/`, `regexp /"win big"@/ exact block`},
		{"comment behind", `/promo[0-9]/ # since May`, "regexp /promo[0-9]/ exact block"},
		{"exception", `!/^press[0-9]@/`, "regexp /^press[0-9]@/ exact allow"},
		{"glob at the end of a local-part", "Promo*@Bulk.TEST.", "glob promo*@bulk.test exact block"},
		{"glob at its beginning", "*-promo@bulk.test", "glob *-promo@bulk.test exact block"},
		{"in a glob ? is one character", "promo?*@bulk.test", "glob promo?*@bulk.test exact block"},
		{"glob in a name", "a@mx*.bulk.test", "glob a@mx*.bulk.test exact block"},
		{"glob of a local-part at any domain", "promo-*@", "glob promo-*@* exact block"},
		{"a name is one of senders", "bulk*.test", "glob *@bulk*.test exact block"},
		{"as an exact name", "=bulk*.test", "glob *@bulk*.test exact block"},
		{"with an at sign", "@bulk*.test", "glob *@bulk*.test exact block"},
		{"as names below", "*.bulk*.test", "glob *@*.bulk*.test exact block"},
		{"as names below, with an at sign", "*@*.bulk*.test", "glob *@*.bulk*.test exact block"},
		{"exception of a name", "!news*.test", "glob *@news*.test exact allow"},

		{"a lone ? is an ordinary character", "a?b@bulk.test", "addr a?b@bulk.test exact block"},
		{"so is * within a local-part", "a*b@bulk.test", "addr a*b@bulk.test exact block"},
		{"the forms of a name stay what they are", "*@bulk.test", "domain bulk.test exact block"},
		{"an address that begins with a slash", "/x/y@bulk.test", "addr /x/y@bulk.test exact block"},

		{"matches everything", "/.*/", "err too-broad"},
		{"matches everything, searched for", "~@", "err too-broad"},
		{"empty expression", "//", "skip comment"},
		{"matches everything, as a glob", "*@*", "err too-broad"},
		{"nearly everything", "/[0-9]/", "err too-broad"},
		{"look-ahead", "/a(?=b)/", "err unsupported"},
		{"back-reference", `/(a)\1/`, "err unsupported"},
		{"a flag that changes the meaning", "/a b c/x", "err unsupported"},
		{"open group", "/(promo/", "err syntax"},
		{"over 1,000 octets", "/" + strings.Repeat("promo", 201) + "/", "err too-long"},
		{"two addresses", "a*@b.test, c*@d.test", "err syntax"},
		{"two at signs", "a*@b@c.test", "err syntax"},
		{"a path in a name", "bulk*.test/x", "err syntax"},
		{"U-label in a pattern of a name", "bücher*.test", "err syntax"},
		{"nothing between two dots", "bulk*..test", "err syntax"},
		{"pasted forms are none", "Win <promo*@bulk.test>", "err unsupported"},
	}.run(t, lists.Settings{Format: "plain", Patterns: true})
}

func TestPatternsOfOtherFormats(t *testing.T) {
	for format, rs := range map[string]rows{
		"rspamd": {
			{"expression with a value", `/(^|\.)groups\.bulk\.test$/i 3.0`, `regexp /(^|\.)groups\.bulk\.test$/ exact block`},
			{"expression with blanks", `/win big/ sym`, "regexp /win big/ exact block"},
			{"glob of a name", "*.bulk.test", "glob *@*.bulk.test exact block"},
			{"glob of an address", "promo*@bulk.test 1", "glob promo*@bulk.test exact block"},
			{"matches everything", "*", "err too-broad"},
			{"octets that are not UTF-8", "/\xff/", "err bad-utf8"},
		},
		"spamassassin": {
			{"star", "blocklist_from promo*@bulk.test", "glob promo*@bulk.test exact block"},
			{"question mark", "blocklist_from promo?@bulk.test", "glob promo?@bulk.test exact block"},
			{"without an at sign it is of the whole address", "blocklist_from *bulk.test", "glob *bulk.test exact block"},
			{"exception", "welcomelist_from press*@bulk.test", "glob press*@bulk.test exact allow"},
			{"all of a name stays a domain", "blocklist_from *@bulk.test", "domain bulk.test exact block"},
		},
		"lsearch": {
			{"expression", `^promo[0-9]+@bulk\.test$: gone`, `regexp /^promo[0-9]+@bulk\.test$/ exact block "gone"`},
			{"quoted", `"^(?:promo|offers)[0-9]+@": gone`, `regexp /^(?:promo|offers)[0-9]+@/ exact block "gone"`},
			{"glob", "*@bulk*.test", "glob *@bulk*.test exact block"},
		},
		"csv": {
			{"expression", `/^promo[0-9]+@/`, "regexp /^promo[0-9]+@/ exact block"},
		},
	} {
		t.Run(format, func(t *testing.T) { rs.run(t, lists.Settings{Format: format, Patterns: true}) })
	}
}

func TestUndeclaredPatternsAreUnsupported(t *testing.T) {
	for format, lines := range map[string][]string{
		"plain":        {"/promo/", "~promo", "^promo", "promo*@bulk.test", "bulk*.test", "a@mx*.bulk.test", "promo-*@"},
		"rspamd":       {"/promo/", "*.bulk.test", "promo*@bulk.test"},
		"spamassassin": {"blocklist_from promo?@bulk.test", "blocklist_from *bulk.test"},
		"lsearch":      {"^promo: x", "*@bulk*.test"},
	} {
		for _, line := range lines {
			rows{{line, line, "err unsupported"}}.run(t, lists.Settings{Format: format})
		}
	}
}

func TestTakenBackPattern(t *testing.T) {
	text := "blocklist_from promo*@bulk.test news*@bulk.test\nunblocklist_from promo*@bulk.test\n"
	got, _, err := items(t, text, lists.Settings{Format: "spamassassin", Patterns: true})
	testkit.Must(t, err)
	equal(t, got, []string{"skip directive", "glob news*@bulk.test exact block", "skip directive"})
}

func TestGuardJudgesPatterns(t *testing.T) {
	own := lists.DefaultGuard()
	own.Protected = append(own.Protected, "here.test")
	forced := own
	forced.Force = []string{"gmail.com"}
	open := own
	open.AllowPublicSuffix = true
	tests := []struct {
		rule  string
		guard lists.GuardSettings
		line  string
		want  string
	}{
		{"all of a protected domain", own, `/@gmail\.com$/`, "err protected"},
		{"all of it, as a glob", own, "*@gmai*.com", "err protected"},
		{"what people there are called", own, `/^anna\.weber@/`, "err protected"},
		{"one's own domain", own, `/@here\./`, "err protected"},
		{"some of its senders", own, `/^promo[0-9]+@gmail\.com$/`, `regexp /^promo[0-9]+@gmail\.com$/ exact block`},
		{"by force", forced, `/@gmail\.com$/`, `regexp /@gmail\.com$/ exact block protected`},
		{"a public suffix", own, `/\.shop$/`, "err public-suffix"},
		{"a public suffix, as a glob", own, "*@*.c*", "err public-suffix"},
		{"a public suffix, allowed", open, `/\.shop$/`, `regexp /\.shop$/ exact block public-suffix`},
		{"exceptions cover what they like", own, `!/@gmail\.com$/`, `regexp /@gmail\.com$/ exact allow`},
		{"a name nobody protects", own, `/\.bulk-[0-9]+\.test$/`, `regexp /\.bulk-[0-9]+\.test$/ exact block`},
	}
	for _, tt := range tests {
		rows{{tt.rule, tt.line, tt.want}}.run(t, lists.Settings{Format: "plain", Patterns: true, Guard: newGuard(t, tt.guard)})
	}
}

func TestPatternsAreBounded(t *testing.T) {
	numbered := func(n int, form string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, form+"\n", i)
		}
		return b.String()
	}
	s := lists.Settings{Format: "plain", Patterns: true}
	if _, sum, err := items(t, numbered(10_000, "promo%d*@bulk.test"), s); err != nil || sum.Entries != 10_000 {
		t.Errorf("10,000 patterns: %d entries, %v", sum.Entries, err)
	}
	if _, sum, err := items(t, numbered(10_001, "promo%d*@bulk.test"), s); err == nil || sum.Why != "too-big: more than 10000 patterns in one file" {
		t.Errorf("10,001 patterns: %v, why %q", err, sum.Why)
	}
	// Each is short enough by itself.
	if _, sum, err := items(t, numbered(700, `/@promo%d(a?b?c?d?){100}x/`), s); err == nil || sum.Why != "too-big: expressions of more than 500000 steps in one file" {
		t.Errorf("700 expressions of some 800 steps each: %v, why %q", err, sum.Why)
	}
	got, sum, err := items(t, strings.Repeat("/^[0-9]{9}@/\n", 101), s)
	if err != nil || sum.Entries != 100 || got[100] != "err too-broad" {
		t.Fatalf("101 patterns without a text: %d entries, %v, %s", sum.Entries, err, got[100])
	}
}

func TestEqualPatternsAreDuplicates(t *testing.T) {
	path := testkit.File(t, "list", "/promo[0-9]/\n~promo[0-9]\npromo*@bulk.test\nPROMO*@bulk.test\n!/promo[0-9]/\n")
	var got []string
	_, keys, err := lists.Lint(t.Context(), path, lists.Settings{Format: "plain", Patterns: true}, func(it *lists.Item) error {
		got = append(got, it.Name()+" "+string(it.Class))
		return nil
	})
	if err != nil || keys != 2 {
		t.Errorf("%d keys, %v, want 2", keys, err)
	}
	equal(t, got, []string{"/promo[0-9]/ ", "/promo[0-9]/ dup", "promo*@bulk.test ", "promo*@bulk.test dup", "/promo[0-9]/ conflict"})
}
