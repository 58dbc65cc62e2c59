package lists_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

func TestHosts(t *testing.T) {
	rows{
		{"the example of the specification", "0.0.0.0 ads.bulk.test track.bulk.test",
			"domain ads.bulk.test exact block + domain track.bulk.test exact block"},
		{"loopback", "127.0.0.1 bulk.test", "domain bulk.test exact block"},
		{"Debian's own name of the machine", "127.0.1.1 mx.here.test mx", "skip local-name"},
		{"any of 127/8", "127.8.9.1\tbulk.test", "domain bulk.test exact block"},
		{"0", "0 bulk.test", "domain bulk.test exact block"},
		{"::", ":: bulk.test", "domain bulk.test exact block"},
		{"::1", "::1   bulk.test", "domain bulk.test exact block"},
		{":: in full", "0:0:0:0:0:0:0:0 bulk.test", "domain bulk.test exact block"},
		{"bare name", "bulk.test", "domain bulk.test exact block"},
		{"# anywhere", "0.0.0.0 bulk.test#x", "domain bulk.test exact block"},
		{"comment", "  # 0.0.0.0 bulk.test", "skip comment"},
		{"broken octets in a comment", "0.0.0.0 bulk.test # \xe9", "domain bulk.test exact block"},
		{"localhost", "127.0.0.1 localhost", "skip local-name"},
		{"names of distributions", "127.0.0.1 localhost localhost.localdomain LocalHost4 localhost4.localdomain4", "skip local-name"},
		{"names of distributions, IPv6", "::1 localhost localhost.localdomain localhost6 localhost6.localdomain6.", "skip local-name"},
		{"such a name beside another", "127.0.0.1 localhost.localdomain bulk.test", "skip local-name + domain bulk.test exact block"},
		{"bare name of a distribution", "localhost.localdomain", "skip local-name"},
		{"a name below that", "0.0.0.0 ads.localhost.localdomain", "domain ads.localhost.localdomain exact block"},
		{"below localhost", "127.0.0.1 dev.LocalHost.", "skip local-name"},
		{"local names of a real address", "fe80::1%lo0 localhost", "skip local-name"},
		{"broadcasthost", "255.255.255.255 broadcasthost", "skip local-name"},
		{"ip6 names", "ff02::1 ip6-allnodes ip6-allrouters", "skip local-name"},
		{"a sink as name", "0.0.0.0 0.0.0.0", "skip local-name"},
		{"bare local name", "local", "skip local-name"},
		{"local name beside another", "127.0.0.1 localhost bulk.test", "skip local-name + domain bulk.test exact block"},
		{"a real address", "198.51.100.7 bulk.test", "err not-a-sink"},
		{"a real IPv6 address", "2001:db8::1 bulk.test", "err not-a-sink"},
		{"no address", "ads.bulk.test bulk.test", "err syntax"},
		{"no name", "0.0.0.0", "err syntax"},
		{"no name but a comment", "0.0.0.0 # bulk.test", "err syntax"},
		{"one bad name refuses the line", "0.0.0.0 bulk.test bad..test", "err syntax"},
		{"name with *", "0.0.0.0 *.bulk.test", "err syntax"},
		{"address as name", "0.0.0.0 198.51.100.7", "err syntax"},
		{"sender as name", "0.0.0.0 promo@bulk.test", "err syntax"},
		{"label too long", "0.0.0.0 " + strings.Repeat("a", 64) + ".test", "err label-too-long"},
		{"broken octets in a name", "0.0.0.0 b\xfclk.test", "err bad-utf8"},
	}.run(t, lists.Settings{Format: "hosts"})
}

// TestHostsOfTheMachine: its own names are no entries, whatever address they have.
func TestHostsOfTheMachine(t *testing.T) {
	s := lists.DefaultGuard()
	s.Machine = []string{"mx.here.test", "mx"}
	rows{
		{"loopback", "127.0.0.1 MX.here.test. mx", "skip local-name + skip local-name"},
		{"sink", "0.0.0.0 mx bulk.test", "skip local-name + domain bulk.test exact block"},
		{"below it", "0.0.0.0 ads.mx.here.test", "domain ads.mx.here.test exact block"},
	}.run(t, lists.Settings{Format: "hosts", Guard: newGuard(t, s)})
}

func TestAdblock(t *testing.T) {
	rows{
		{"the example of the specification", "||bulk.test/banner.js", "err unsupported"},
		{"anchored name", "||bulk.test^", "domain bulk.test tree block"},
		{"exception", "@@||bulk.test^", "domain bulk.test tree allow"},
		{"without ^ it is the tree, not the prefix", "||bulk.test", "domain bulk.test tree block"},
		{"address", "||198.51.100.7^", "ip 198.51.100.7 exact block"},
		{"IPv6 address", "||[2001:db8::7]^", "ip 2001:db8::7 exact block"},
		{"bare address", "198.51.100.7", "ip 198.51.100.7 exact block"},
		{"bare IPv6 address in brackets", "[2001:db8::7]", "ip 2001:db8::7 exact block"},
		{"bare name", "bulk.test", "domain bulk.test tree block"},
		{"U-label", "||b\u00fccher.test^", "domain xn--bcher-kva.test tree block"},
		{"options without effect", "||bulk.test^$important,all,document", "domain bulk.test tree block"},
		{"popup narrows", "||bulk.test^$popup", "domain bulk.test tree block narrowed"},
		{"third-party narrows", "||bulk.test^$important,third-party", "domain bulk.test tree block narrowed"},
		{"other words for options", "||bulk.test^$doc,3p", "domain bulk.test tree block narrowed"},
		{"not first party", "||bulk.test^$~1p", "domain bulk.test tree block narrowed"},
		{"first party", "||bulk.test^$1p", "err unsupported"},
		{"exceptions for first and third parties", "@@||a.test^$1p,3p,strict1p,strict3p,~strict3p,~strict1p", "domain a.test tree allow narrowed"},
		{"other options", "||bulk.test^$domain=shop.test", "err unsupported"},
		{"exception for some requests", "@@||bulk.test^$domain=shop.test|a.test,~script", "domain bulk.test tree allow narrowed"},
		{"exception from something else", "@@||bulk.test^$elemhide", "err unsupported"},
		{"negated option", "||bulk.test^$~third-party", "err unsupported"},
		{"comment", "! bulk.test", "skip comment"},
		{"comment without a blank", "!bulk.test", "skip comment"},
		{"# and a blank", "# bulk.test", "skip comment"},
		{"# alone", "#", "skip comment"},
		{"header", "[Adblock Plus 2.0]", "skip comment"},
		{"directive", "!#if false", "err unsupported"},
		{"cosmetic rule", "bulk.test##.ad", "err unsupported"},
		{"cosmetic rule for all", "##.ad", "err unsupported"},
		{"cosmetic exception", "bulk.test#@#.ad", "err unsupported"},
		{"extended cosmetic rule", "bulk.test#?#.ad:has(x)", "err unsupported"},
		{"regular expression", `/^bulk\./`, "err unsupported"},
		{"regular expression of an exception", `@@/^bulk\./`, "err unsupported"},
		{"beginning of a URL", "|https://bulk.test^", "err unsupported"},
		{"beginning of a URL of an exception", "@@|https://bulk.test^", "domain bulk.test exact allow"},
		{"any scheme of an exception", "@@://ok.bulk.test^|", "domain ok.bulk.test exact allow"},
		{"scheme without a mark", "@@https://ok.bulk.test/", "domain ok.bulk.test exact allow"},
		{"exception that is a part of an address", "@@ok.bulk.test^", "domain ok.bulk.test tree allow"},
		{"the same with an option", "@@ok.bulk.test^$important", "domain ok.bulk.test tree allow"},
		{"exception of an IPv6 address", "@@||[2001:db8::1]^", "ip 2001:db8::1 exact allow"},
		{"the same without brackets", "@@||2001:db8::1^", "ip 2001:db8::1 exact allow"},
		{"scheme in capitals", "@@|HTTPS://ok.bulk.test/", "domain ok.bulk.test exact allow"},
		{"scheme of a browser's own", "@@|chrome-extension://x", "err unsupported"},
		{"scheme without a host", "@@|blob:x", "err unsupported"},
		{"exception for all paths", "@@||ok.bulk.test/", "domain ok.bulk.test tree allow"},
		{"the same in full", "@@||ok.bulk.test:443/*|$doc", "domain ok.bulk.test tree allow"},
		{"exception for a path", "@@||ok.bulk.test/a.js$script", "domain ok.bulk.test tree allow narrowed"},
		{"exception for a path without a mark", "@@ok.bulk.test/a.js", "domain ok.bulk.test tree allow narrowed"},
		{"exception with *", "@@||cdn*.bulk.test^|", "glob *@cdn*.bulk.test exact allow + glob *@*.cdn*.bulk.test exact allow"},
		{"exception with * first", "@@||*cdn.bulk.test^", "glob *@*cdn.bulk.test exact allow"},
		{"exception with * for a whole name", "@@|cdn*.bulk.test^", "glob *@cdn*.bulk.test exact allow"},
		{"exception for names below without a mark", "@@*.bulk.test^", "domain bulk.test sub allow"},
		{"exception for names below, by a dot", "@@.bulk.test^", "domain bulk.test sub allow"},
		{"exception for a part of a path", "@@-banner-ad.", "err unsupported"},
		{"exception for any cdn", "@@cdn*", "err unsupported"},
		{"exception for a part of an address", "@@||198.51.100.^", "err unsupported"},
		{"substring", "-banner-ad.", "err unsupported"},
		{"substring that could be a name", "banner", "err unsupported"},
		{"substring with ^", "bulk.test^", "err unsupported"},
		{"substring with options", "bulk.test$important", "err unsupported"},
		{"name with *", "||ads.*.test^", "err unsupported"},
		{"names below", "||*.bulk.test^", "domain bulk.test sub block"},
		{"exception for names below", "@@||*.bulk.test^", "domain bulk.test sub allow"},
		{"names below, and another *", "||*.ads*.bulk.test^", "err unsupported"},
		{"bare name with *", "*.bulk.test", "err unsupported"},
		{"port", "||bulk.test:8080^", "err unsupported"},
		{"end anchor", "||bulk.test^|", "domain bulk.test tree block"},
		{"end anchor of an exception", "@@||bulk.test^|", "domain bulk.test tree allow"},
		{"end anchor alone", "@@||bulk.test|", "domain bulk.test tree allow"},
		{"whole name", "|bulk.test^", "domain bulk.test exact block"},
		{"whole name of an exception", "@@|bulk.test^", "domain bulk.test exact allow"},
		{"whole name with both ends", "@@|bulk.test^|", "domain bulk.test exact allow"},
		{"whole name with options", "@@|bulk.test|$important", "domain bulk.test exact allow"},
		{"beginning of a name", "@@|bulk.test", "glob *@bulk.test* exact allow"},
		{"two end anchors", "||bulk.test||", "err unsupported"},
		{"badfilter of nothing", "||bulk.test^$badfilter", "skip directive"},
		{"badfilter of another rule", "@@||bulk.test^$important,badfilter", "skip directive"},
		{"path after ^", "||bulk.test^ads", "err unsupported"},
		{"part of an address", "||198.51.100.^", "err unsupported"},
		{"network", "198.51.100.0/24", "err unsupported"},
		{"line of a hosts file", "0.0.0.0 bulk.test", "err unsupported"},
		{"sender", "promo@bulk.test", "err unsupported"},
		{"everything", "||*^", "err too-broad"},
		{"everything, shorter", "*", "err too-broad"},
		{"exception for everything", "@@||*^", "err too-broad"},
		{"exception of nothing", "@@", "err too-broad"},
		{"sink", "||0.0.0.0^", "err syntax"},
		{"empty label", "||bulk..test^", "err syntax"},
		{"a character that no domain has", "||b\u2490c.test^", "err idna"},
		{"bare name with a long label", strings.Repeat("a", 64) + ".test", "err label-too-long"},
		{"broken octets", "||b\xfclk.test^", "err bad-utf8"},
	}.run(t, lists.Settings{Format: "adblock"})
}

// TestAdblockBadFilter: a rule with that option takes the same rule without it back, wherever in
// the file that stands.
func TestAdblockBadFilter(t *testing.T) {
	got, sum, err := items(t, `||shop.test^$badfilter
! ||bulk.test^$badfilter
||bulk.test^
||shop.test^
@@||shop.test^
||SHOP.test^
||mail.test^$important
||mail.test^$important,third-party
||mail.test^$Third-Party,badfilter,important
@@||press.test^
@@||press.test^$badfilter
`, lists.Settings{Format: "adblock"})
	if err != nil || sum.Errors > 0 {
		t.Fatalf("%+v, %v", sum, err)
	}
	equal(t, got, []string{"skip directive", "skip comment", "domain bulk.test tree block", "skip directive", "domain shop.test tree allow", "skip directive",
		"domain mail.test tree block", "skip directive", "skip directive", "skip directive", "skip directive"})
}

func TestPostfix(t *testing.T) {
	rows{
		{"the example of the specification", ".bulk.test 450 4.7.1 try later",
			`domain bulk.test sub tempfail "450 4.7.1 try later"`},
		{"name is the tree", "bulk.test REJECT", "domain bulk.test tree block"},
		{"case of an action", "bulk.test reJect No #1 spam", `domain bulk.test tree block "No #1 spam"`},
		{"address", "Promo@bulk.test\tREJECT", "addr promo@bulk.test exact block"},
		{"quoted local-part", `"odd one"@bulk.test REJECT`, `addr "odd one"@bulk.test exact block`},
		{"user@", "offers@ REJECT", "addr offers@ local block"},
		{"@name", "@bulk.test REJECT", "domain bulk.test exact block"},
		{"! is part of an address", "!x@bulk.test REJECT", "addr !x@bulk.test exact block"},
		{"client address", "198.51.100.23 REJECT", "ip 198.51.100.23 exact block"},
		{"network", "198.51.100.0/25 REJECT", "cidr 198.51.100.0/25 tree block"},
		{"three octets", "198.51.100 REJECT", "cidr 198.51.100.0/24 tree block"},
		{"two octets", "198.51 REJECT", "cidr 198.51.0.0/16 tree block"},
		{"one octet", "198 REJECT", "cidr 198.0.0.0/8 tree block"},
		{"octet over 255", "198.51.256 REJECT", "err syntax"},
		{"two groups", "2001:db8 REJECT", "cidr 2001:db8::/32 tree block"},
		{"three groups", "2001:DB8:5 REJECT", "cidr 2001:db8:5::/48 tree block"},
		{"IPv6 address", "2001:db8:5::7 REJECT", "ip 2001:db8:5::7 exact block"},
		{"code with a text", "bulk.test 551 5.7.1 Not here", `domain bulk.test tree block "551 5.7.1 Not here"`},
		{"OK", "bulk.test OK", "domain bulk.test tree allow"},
		{"RELAY", "bulk.test RELAY", "domain bulk.test tree allow"},
		{"DUNNO", "bulk.test DUNNO", "domain bulk.test tree allow"},
		{"digits alone", "bulk.test 1234567890", "domain bulk.test tree allow"},
		{"digits that look like a code", "bulk.test 550", "domain bulk.test tree allow"},
		{"DEFER", "bulk.test DEFER later", `domain bulk.test tree tempfail "later"`},
		{"DEFER_IF_PERMIT", "bulk.test defer_if_permit later", `domain bulk.test tree tempfail "later"`},
		{"DISCARD", "bulk.test DISCARD", "domain bulk.test tree discard warn-action"},
		{"comment", " # bulk.test REJECT", "skip comment"},
		{"key without action", "bulk.test", "err missing-value"},
		{"unknown word", "bulk.test FROBNICATE", "err unsupported-action"},
		{"restriction class", "bulk.test reject_unauth_destination", "err unsupported-action"},
		{"code without a meaning", "bulk.test 250 fine", "err unsupported-action"},
		{"null sender", "<> REJECT", "err null-sender"},
		{"null sender without action", "<>", "err null-sender"},
		{"everything", ". REJECT", "err too-broad"},
		{"pattern", "*@bulk.test REJECT", "err unsupported"},
		{"* is itself", "promo*@bulk.test REJECT", "addr promo*@bulk.test exact block"},
		{"* is itself at any domain", "*promo@ OK", "addr *promo@ local allow"},
		{"a * in a domain", "promo@*.bulk.test REJECT", "err unsupported"},
		{"senders at an address literal", "[192.0.2.1] REJECT", "domain [192.0.2.1] exact block"},
		{"exception for an address literal", "[IPv6:2001:DB8::1] OK", "domain [ipv6:2001:db8::1] exact allow"},
		{"no address literal", "[192.0.2.0/24] REJECT", "err syntax"},
		{"no address literal, open", "[192.0.2.1 REJECT", "err syntax"},
		{"names below by *", "*.bulk.test REJECT", "err unsupported"},
		{"display name", "<promo@bulk.test> REJECT", "err unsupported"},
		{"bad name", "bulk..test REJECT", "err syntax"},
		{"broken octets in the text", "bulk.test REJECT d\xe9sol\xe9", "err bad-utf8"},
		{"continuation", "bulk.test REJECT go\n  away \n\tplease", `domain bulk.test tree block "go away please" + skip continuation + skip continuation`},
		{"action in the continuation", "bulk.test\n REJECT", "domain bulk.test tree block + skip continuation"},
		{"comment and blank line inside", "bulk.test REJECT a\n# c\n\n b", `domain bulk.test tree block "a b" + skip comment + skip blank + skip continuation`},
		{"continuation of a refused line", "bulk..test REJECT\n more", "err syntax + skip continuation"},
		{"continuation of nothing", " bulk.test REJECT", "err syntax"},
		{"wide blanks in front continue nothing", "bulk.test REJECT go\n\u00a0a.test REJECT\n\u3000b.test REJECT",
			`domain bulk.test tree block "go" + domain a.test tree block + domain b.test tree block`},
		{"two long reasons", "a.test REJECT a\n b\nb.test REJECT b\n c", `domain a.test tree block "a b" + skip continuation + domain b.test tree block "b c" + skip continuation`},
		{"control in a continuation costs that line alone", "bulk.test REJECT a\n b\x01\n c", `domain bulk.test tree block "a" + err control + skip continuation`},
		{"long continuation costs that line alone", "bulk.test REJECT a\n " + strings.Repeat("b", 65536) + "\n c", `domain bulk.test tree block "a" + err too-long + skip continuation`},
		{"long line and its continuation", "bulk.test REJECT " + strings.Repeat("b", 65536) + "\n c", "err too-long + skip continuation"},
	}.run(t, lists.Settings{Format: "postfix"})
	for _, action := range []string{"HOLD", "FILTER smtp:x", "REDIRECT x@shop.test", "PREPEND X: y", "BCC x@shop.test", "WARN", "INFO"} {
		rows{{action, "bulk.test " + action, "err unsupported-action"}}.run(t, lists.Settings{Format: "postfix"})
	}
}

func TestPostfixTailIsBounded(t *testing.T) {
	wide := "bulk.test\n" + strings.Repeat("#"+strings.Repeat("x", 60_000)+"\n", 2) + " REJECT\nlast.test OK\n"
	if _, sum, err := items(t, wide, lists.Settings{Format: "postfix"}); err != nil || sum.Errors != 1 || sum.Entries != 1 {
		t.Errorf("over 64 KiB: %+v, %v", sum, err)
	}
	text := "bulk.test REJECT a\n" + strings.Repeat("# c\n", 1000) + " b\n" + strings.Repeat(" c\n", 1000) + "last.test OK\n"
	got, sum, err := items(t, text, lists.Settings{Format: "postfix"})
	testkit.Must(t, err)
	if sum.Lines != 2003 || len(got) != 2003 || got[0] != `domain bulk.test tree block "a"` || got[2002] != "domain last.test tree allow" {
		t.Errorf("%d lines, %d items, %q … %q", sum.Lines, len(got), got[0], got[len(got)-1])
	}
}

func TestReasonIsCutAcrossContinuations(t *testing.T) {
	text := "bulk.test REJECT" + strings.Repeat("\n "+strings.Repeat("x", 99), 200)
	got := taken(t, text, lists.Settings{Format: "postfix"})
	want := `domain bulk.test tree block "` + strings.Repeat(strings.Repeat("x", 99)+" ", 4)
	if got[0] != strings.TrimSpace(want)+`"` && got[0] != want+`"` {
		t.Errorf("got %s", got[0])
	}
}

func TestSendmail(t *testing.T) {
	rows{
		{"the example of the specification", `From:bulk.test ERROR:5.7.1:"550 no"`, `domain bulk.test tree block "550 5.7.1 no"`},
		{"without a tag", "bulk.test\tREJECT", "domain bulk.test tree block"},
		{"address", "FROM:Promo@Bulk.Test REJECT", "addr promo@bulk.test exact block"},
		{"user@", "From:offers@ REJECT", "addr offers@ local block"},
		{"names below", "From:.bulk.test REJECT", "domain bulk.test sub block"},
		{"quoted local-part", `From:"odd one"@bulk.test REJECT`, `addr "odd one"@bulk.test exact block`},
		{"OK", "From:bulk.test OK", "domain bulk.test tree allow"},
		{"RELAY", "bulk.test relay", "domain bulk.test tree allow"},
		{"DISCARD", "bulk.test DISCARD", "domain bulk.test tree discard warn-action"},
		{"code and text", "bulk.test 550 5.7.1 no spam", `domain bulk.test tree block "550 5.7.1 no spam"`},
		{"temporary code", "bulk.test 451 4.7.1 later", `domain bulk.test tree tempfail "451 4.7.1 later"`},
		{"temporary status", `bulk.test ERROR:4.7.1:"450 later"`, `domain bulk.test tree tempfail "450 4.7.1 later"`},
		{"status and a text without code", "bulk.test error:5.7.1:go away", `domain bulk.test tree block "5.7.1 go away"`},
		{"status alone", "bulk.test ERROR:5.7.1:", `domain bulk.test tree block "5.7.1"`},
		{"error without a status", `bulk.test ERROR:"553 no # spam"`, `domain bulk.test tree block "553 no # spam"`},
		{"all of the value in quotes", `bulk.test "ERROR:5.7.1:550 no"`, `domain bulk.test tree block "550 5.7.1 no"`},
		{"client", "Connect:198.51.100.23 REJECT", "ip 198.51.100.23 exact block"},
		{"network", "Connect:198.51.100.0/25 OK", "cidr 198.51.100.0/25 tree allow"},
		{"leading octets", "connect:198.51.100 REJECT", "cidr 198.51.100.0/24 tree block"},
		{"IPv6 client", "Connect:IPv6:2001:db8:5::7 REJECT", "ip 2001:db8:5::7 exact block"},
		{"client without a tag", "198.51.100 REJECT", "cidr 198.51.100.0/24 tree block"},
		{"IPv6 client without a tag", "IPv6:2001:db8:5::7 REJECT", "ip 2001:db8:5::7 exact block"},
		{"IPv6 groups are no tag", "fade:cafe REJECT", "cidr fade:cafe::/32 tree block"},
		{"comment", "# From:bulk.test REJECT", "skip comment"},
		{"comment behind blanks", "  # From:bulk.test REJECT", "skip comment"},
		{"recipients", "To:bulk.test REJECT", "skip directive"},
		{"spam friends", "Spam:bulk.test FRIEND", "skip directive"},
		{"delay", "Delay:bulk.test OK", "skip directive"},
		{"TLS", "TLS_Clt:bulk.test VERIFY", "skip directive"},
		{"other tags", "GreetPause:bulk.test 5000", "skip directive"},
		{"client by name", "Connect:bulk.test REJECT", "err unsupported"},
		{"sender by address of a client", "From:198.51.100.7 REJECT", "err unsupported"},
		{"SKIP", "bulk.test SKIP", "err unsupported-action"},
		{"QUARANTINE", "bulk.test QUARANTINE:spam", "err unsupported-action"},
		{"unknown value", "bulk.test FROBNICATE", "err unsupported-action"},
		{"code without a text", "bulk.test 550", "err unsupported-action"},
		{"success as an error", "bulk.test ERROR:2.0.0:fine", "err unsupported-action"},
		{"codes that contradict each other", `bulk.test ERROR:5.7.1:"450 later"`, "err unsupported-action"},
		{"key without action", "From:bulk.test", "err missing-value"},
		{"null sender", "From:<> REJECT", "err null-sender"},
		{"tag without a key", "From: bulk.test REJECT", "err syntax"},
		{"leading blank", " bulk.test REJECT", "err syntax"},
		{"no continuation", "bulk.test REJECT\n because", "domain bulk.test tree block + err syntax"},
		{"bad name", "From:bulk..test REJECT", "err syntax"},
		{"broken octets", "From:bulk.test 550 d\xe9sol\xe9", "err bad-utf8"},
	}.run(t, lists.Settings{Format: "sendmail"})
}

func TestLsearch(t *testing.T) {
	rows{
		{"the example of the specification", `"odd one"@bulk.test: listed`, `addr "odd one"@bulk.test exact block "listed"`},
		{"bare name is the name alone", "bulk.test: listed", `domain bulk.test exact block "listed"`},
		{"blank instead of a colon", "promo@bulk.test  go away", `addr promo@bulk.test exact block "go away"`},
		{"blank before the colon", "promo@bulk.test : go away", `addr promo@bulk.test exact block "go away"`},
		{"data that begins with a colon", "promo@bulk.test: :fail:", `addr promo@bulk.test exact block ":fail:"`},
		{"no data", "promo@bulk.test:", "addr promo@bulk.test exact block"},
		{"no colon", "promo@bulk.test", "addr promo@bulk.test exact block"},
		{"all senders of a name", "*@bulk.test: x", `domain bulk.test exact block "x"`},
		{"names below", "*.bulk.test: x", `domain bulk.test sub block "x"`},
		{"key in quotes", `"promo@bulk.test": x`, `addr promo@bulk.test exact block "x"`},
		{"key in quotes with quotes in it", `"\"odd: one\"@bulk.test": x`, `addr "odd: one"@bulk.test exact block "x"`},
		{"client", "198.51.100.7: x", `ip 198.51.100.7 exact block "x"`},
		{"IPv6 client in quotes", `"2001:db8::7": x`, `ip 2001:db8::7 exact block "x"`},
		{"encoded words are local-parts", "=?iso-2022-jp?b?x=?=@bulk.test: x", `addr =?iso-2022-jp?b?x=?=@bulk.test exact block "x"`},
		{"slashes too", "/x/y@bulk.test: x", `addr /x/y@bulk.test exact block "x"`},
		{"# is text in data", "bulk.test: no #1", `domain bulk.test exact block "no #1"`},
		{"comment", "# bulk.test: x", "skip comment"},
		{"data over lines", "bulk.test: a\n  b\n# c\n\n\tc", `domain bulk.test exact block "a b c" + skip continuation + skip comment + skip blank + skip continuation`},
		{"continuation of nothing", " bulk.test: x", "err syntax"},
		{"regular expression", "^promo: x", "err unsupported"},
		{"glob", "promo*@bulk.test: x", "err unsupported"},
		{"glob in a name", "ads*.bulk.test: x", "err unsupported"},
		{"every key", "*: x", "err too-broad"},
		{"no key", ": x", "err syntax"},
		{"empty key in quotes", `"": x`, "err syntax"},
		{"open quote", `"promo@bulk.test: x`, "err syntax"},
		{"brackets", "<promo@bulk.test>: x", "err syntax"},
		{"null sender", "<>: x", "err null-sender"},
		{"broken octets", "bulk.test: d\xe9sol\xe9", "err bad-utf8"},
	}.run(t, lists.Settings{Format: "lsearch"})
}

func TestRspamd(t *testing.T) {
	rows{
		{"bare name is the name alone", "bulk.test", "domain bulk.test exact block"},
		{"address", "Promo@Bulk.Test", "addr promo@bulk.test exact block"},
		{"score", "bulk.test 2.0", "domain bulk.test exact block"},
		{"symbol, score and options", "promo@bulk.test SYM1:-10.1:opt1,opt2", "addr promo@bulk.test exact block"},
		{"regular expression as value", "bulk.test /^[a-f0-9]{8}$/", "domain bulk.test exact block"},
		{"key in quotes", `"promo@bulk.test" 2.0`, "addr promo@bulk.test exact block"},
		{"key in quotes with blanks", `"\"odd one\"@bulk.test" 2.0`, `addr "odd one"@bulk.test exact block`},
		{"quoted local-part", `"odd one"@bulk.test`, `addr "odd one"@bulk.test exact block`},
		{"client", "198.51.100.7", "ip 198.51.100.7 exact block"},
		{"network", "198.51.100.0/25 x", "cidr 198.51.100.0/25 tree block"},
		{"IPv6 in brackets", "[2001:db8::]/32", "cidr 2001:db8::/32 tree block"},
		{"leading dot", ".bulk.test", "domain bulk.test sub block"},
		{"comment anywhere", "bulk.test#x", "domain bulk.test exact block"},
		{"comment behind a value", "bulk.test 2.0 # x", "domain bulk.test exact block"},
		{`\# is the character`, `a\#b@bulk.test`, "addr a#b@bulk.test exact block"},
		{"comment", "# bulk.test", "skip comment"},
		{"slashes in an address", "/x/y@bulk.test", "addr /x/y@bulk.test exact block"},
		{"regular expression", "/^.*@bulk.test/i", "err unsupported"},
		{"regular expression with a value", "/bulk/ value", "err unsupported"},
		{"regular expression with blanks", "/promo@x bulk/i value", "err unsupported"},
		{"regular expression beyond ASCII", "/\u0432\u0430\u0441/iu", "err unsupported"},
		{"glob", "*.bulk.test", "err unsupported"},
		{"glob in an address", "*@bulk.test", "err unsupported"},
		{"every key", "*", "err too-broad"},
		{"empty key", `"" 2.0`, "err syntax"},
		{"bad name", "bulk..test", "err syntax"},
		{"exceptions are not rspamd's", "!bulk.test", "err syntax"},
		{"null sender", "<>", "err null-sender"},
		{"broken octets", "b\xfclk.test", "err bad-utf8"},
		{"broken octets behind the key", "bulk.test d\xe9sol\xe9", "domain bulk.test exact block"},
	}.run(t, lists.Settings{Format: "rspamd"})
	yes := true
	rows{{"bare names as trees", "bulk.test", "domain bulk.test tree block"}}.run(t, lists.Settings{Format: "rspamd", Subdomains: &yes})
}

func TestDrop(t *testing.T) {
	rows{
		{"the example of the specification", "198.51.100.128/25 ; SBL1", `cidr 198.51.100.128/25 tree block "SBL1"`},
		{"without a text", "198.51.100.0/24", "cidr 198.51.100.0/24 tree block"},
		{"without blanks", "198.51.100.0/24;SBL1", `cidr 198.51.100.0/24 tree block "SBL1"`},
		{"IPv6", "2001:db8::/32 ; SBL2", `cidr 2001:db8::/32 tree block "SBL2"`},
		{"comment", "; Spamhaus DROP List 2026/08/22", "skip comment"},
		{"object", `{"cidr":"198.51.100.0/24","sblid":"SBL1","rir":"ripencc"}`, `cidr 198.51.100.0/24 tree block "SBL1"`},
		{"object with IPv6", `{"cidr":"2001:db8::/32","sblid":"SBL2"}`, `cidr 2001:db8::/32 tree block "SBL2"`},
		{"system", `{"asn":64496,"rir":"ripencc","domain":"bulk.test","cc":"ZZ"}`, "skip other-member"},
		{"metadata", `{"type":"metadata","timestamp":1700000000,"size":10,"copyright":"x"}`, "skip header"},
		{"neither", `{"rir":"ripencc"}`, "err syntax"},
		{"broken object", `{"cidr":"198.51.100.0/24"`, "err syntax"},
		{"object with more behind it", `{"cidr":"198.51.100.0/24"} x`, "err syntax"},
		{"number instead of a text", `{"cidr":4}`, "err syntax"},
		{"bad network in an object", `{"cidr":"198.51.100.0/33"}`, "err syntax"},
		{"control in an object", `{"cidr":"198.51.100.0/24\u0000"}`, "err syntax"},
		{"name", "bulk.test ; SBL1", "err syntax"},
		{"nothing before the note", " ;", "skip comment"},
		{"wide network", "198.0.0.0/7 ; SBL1", "err too-broad"},
		{"broken octets", "198.51.100.\xe9 ; SBL1", "err bad-utf8"},
		{"broken octets in an object", "{\"cidr\":\"198.51.100.0/24\",\"rir\":\"\xe9\"}", "err bad-utf8"},
	}.run(t, lists.Settings{Format: "drop"})
}

func TestDropCount(t *testing.T) {
	const network, system, bad = `{"cidr":"198.51.100.0/24"}`, `{"asn":64496}`, `{"cidr":"198.51.100.0/33"}`
	for _, tt := range []struct{ name, text, want string }{
		{"as many as announced", network + "\n" + network + "\n" + `{"type":"metadata","records":2}`, ""},
		{"fewer", network + "\n" + `{"type":"metadata","records":2}`, "truncated: the list says that it has 2 records, and has 1"},
		{"more", network + "\n" + network + "\n" + `{"type":"metadata","records":1}`, "truncated: the list says that it has 1 records, and has 2"},
		{"count before the records", `{"type":"metadata","records":1}` + "\n" + network, ""},
		{"a refused record is one", network + "\n" + bad + "\n" + `{"type":"metadata","records":2}`, ""},
		{"systems", system + "\n" + system + "\n" + `{"type":"metadata","records":2}`, "empty"},
		{"systems, truncated", system + "\n" + `{"type":"metadata","records":2}`, "truncated: the list says that it has 2 records, and has 1"},
		{"no count", network, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, sum, err := items(t, tt.text, lists.Settings{Format: "drop"})
			if sum.Why != tt.want || (err != nil) != strings.HasPrefix(tt.want, "truncated") {
				t.Errorf("%s, %v; want %s", sum.Why, err, tt.want)
			}
		})
	}
}

func TestSpamassassin(t *testing.T) {
	rows{
		{"the example of the specification", "blocklist_from *@bulk.test *@*.bulk.test",
			"domain bulk.test exact block + domain bulk.test sub block"},
		{"older word", "blacklist_from promo@bulk.test", "addr promo@bulk.test exact block"},
		{"names below", "blocklist_from *.bulk.test", "domain bulk.test sub block"},
		{"exceptions", "welcomelist_from press@bulk.test *@shop.test", "addr press@bulk.test exact allow + domain shop.test exact allow"},
		{"exception, older word", "whitelist_from press@bulk.test", "addr press@bulk.test exact allow"},
		{"case, dashes and blanks", " BlockList-From\t *@Bulk.TEST ", "domain bulk.test exact block"},
		{"comment behind", "blocklist_from *@bulk.test # spam", "domain bulk.test exact block"},
		{"escaped #", `blocklist_from a\#b@bulk.test`, "addr a#b@bulk.test exact block"},
		// As SpamAssassin 4.0.0 itself reads these (Conf/Parser.pm: s/(?<!\\)#.*$//).
		{"# in an address begins a comment", "blocklist_from a@bulk.test b#c@bulk.test", "addr a@bulk.test exact block + err syntax"},
		{"# in quotes too", `welcomelist_from a@bulk.test "b#c"@bulk.test`, "addr a@bulk.test exact allow + err syntax"},
		{"# right behind a key", "welcomelist_from a@bulk.test#press", "addr a@bulk.test exact allow"},
		{"nothing but a comment", "welcomelist_from #a@bulk.test", "err syntax"},
		{"a bad exception does not drop good ones", "welcomelist_from a@bulk.test bad..name@@x <odd> b@bulk.test",
			"addr a@bulk.test exact allow + err syntax + addr b@bulk.test exact allow"},
		{"comment", "# blocklist_from *@bulk.test", "skip comment"},
		{"by authentication", "welcomelist_auth *@bulk.test", "domain bulk.test exact allow-if-auth"},
		{"by authentication, shipped, older word", "def_whitelist_auth *@*.bulk.test a@bulk.test", "domain bulk.test sub allow-if-auth + addr a@bulk.test exact allow-if-auth"},
		{"recipients", "blocklist_to all@bulk.test", "skip directive"},
		{"with a relay", "welcomelist_from_rcvd *@bulk.test bulk.test", "err unsupported"},
		{"with a relay, taken back", "unwelcomelist_from_rcvd *@bulk.test", "skip directive"},
		{"with SPF", "welcomelist_from_spf *@bulk.test x@shop.test", "domain bulk.test exact allow-if-auth + addr x@shop.test exact allow-if-auth"},
		{"with DKIM", "def_whitelist_from_dkim *@bulk.test", "domain bulk.test exact allow-if-auth"},
		{"with DKIM of another domain", "welcomelist_from_dkim *@bulk.test mailer.test", "domain bulk.test exact allow-if-auth narrowed"},
		{"providers are no list", "freemail_domains bulk.test *.bulk.test", "skip directive"},
		{"score", "score FREEMAIL_FROM 0.001", "skip directive"},
		{"condition", "if (version >= 4.0)", "skip directive"},
		{"condition without a blank", "if(version >= 4.0)", "skip directive"},
		{"both branches", "ifplugin X\nblocklist_from a@bulk.test\nelse\nblocklist_from b@bulk.test\nendif",
			"skip directive + addr a@bulk.test exact block + skip directive + addr b@bulk.test exact block + skip directive"},
		{"broken octets in another directive", "describe X d\xe9sol\xe9", "skip directive"},
		{"files are not included", "include /etc/passwd", "skip directive"},
		{"glob", "blocklist_from promo*@bulk.test", "err unsupported"},
		{"glob inside", "blocklist_from pro*mo@bulk.test", "err unsupported"},
		{"glob of one character", "blocklist_from promo?@bulk.test", "err unsupported"},
		{"glob in a name", "blocklist_from *@ads*.bulk.test", "err unsupported"},
		{"end of a name", "blocklist_from *bulk.test", "err unsupported"},
		{"every sender", "blocklist_from *", "err too-broad"},
		{"every address", "blocklist_from *@*", "err too-broad"},
		{"one bad pattern is refused alone", "blocklist_from *@bulk.test promo*@shop.test x@shop.test",
			"domain bulk.test exact block + err unsupported + addr x@shop.test exact block"},
		{"bare name", "blocklist_from bulk.test", "err syntax"},
		{"form of another format", "blocklist_from @bulk.test", "err syntax"},
		{"brackets", "blocklist_from <promo@bulk.test>", "err syntax"},
		{"client", "blocklist_from 198.51.100.7", "err syntax"},
		{"null sender", "blocklist_from <>", "err null-sender"},
		{"nothing", "blocklist_from", "err syntax"},
		{"no directive", "promo@bulk.test", "err syntax"},
		{"name alone", "bulk.test", "err syntax"},
		{"broken octets", "blocklist_from promo@b\xfclk.test", "err bad-utf8"},
		{"takes back nothing", "unblocklist_from *@bulk.test", "skip directive"},
	}.run(t, lists.Settings{Format: "spamassassin"})
	got := taken(t, "welcomelist_from a@bulk.test\nblocklist_from b@bulk.test\n", lists.Settings{Format: "spamassassin", Action: lists.Allow})
	equal(t, got, []string{"addr a@bulk.test exact allow", "err unsupported-action"})
}

// TestTakenBack shows each line as an index gets it and as Lint shows it.
func TestTakenBack(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want, lint string // items, separated by " + "
		keys       int    // that Lint counts
		why        string
	}{
		{"an entry of an earlier line", "blocklist_from a@bulk.test b@bulk.test\nunblacklist_from A@Bulk.Test\n",
			"skip directive + addr b@bulk.test exact block + skip directive",
			"addr a@bulk.test exact block + addr b@bulk.test exact block + addr a@bulk.test exact remove", 2, ""},
		{"every earlier one", "blocklist_from *@bulk.test\nblocklist_from *@bulk.test\nunblocklist_from *@bulk.test\n",
			"skip directive + skip directive + skip directive",
			"domain bulk.test exact block + domain bulk.test exact block + domain bulk.test exact remove", 1, "empty"},
		{"not a later one", "unblocklist_from a@bulk.test\nblocklist_from a@bulk.test\n",
			"skip directive + addr a@bulk.test exact block",
			"addr a@bulk.test exact remove + addr a@bulk.test exact block", 1, ""},
		{"listed anew", "blocklist_from a@bulk.test\nunblocklist_from a@bulk.test\nblocklist_from a@bulk.test\n",
			"skip directive + skip directive + addr a@bulk.test exact block",
			"addr a@bulk.test exact block + addr a@bulk.test exact remove + addr a@bulk.test exact block", 1, ""},
		{"another scope stays", "blocklist_from *@bulk.test *@*.bulk.test\nunblocklist_from *@bulk.test\n",
			"skip directive + domain bulk.test sub block + skip directive",
			"domain bulk.test exact block + domain bulk.test sub block + domain bulk.test exact remove", 2, ""},
		{"each list for itself", "welcomelist_from a@bulk.test\nblocklist_from b@bulk.test\nunblocklist_from a@bulk.test\nunwhitelist_from b@bulk.test\n",
			"addr a@bulk.test exact allow + addr b@bulk.test exact block + skip directive + skip directive",
			"addr a@bulk.test exact allow + addr b@bulk.test exact block + addr a@bulk.test exact remove + addr b@bulk.test exact remove", 2, ""},
		{"each kind of proof for itself", "welcomelist_from_spf a@bulk.test\nwelcomelist_from_dkim a@bulk.test\nunwhitelist_from_dkim a@bulk.test\n",
			"addr a@bulk.test exact allow-if-auth + skip directive + skip directive",
			"addr a@bulk.test exact allow-if-auth + addr a@bulk.test exact allow-if-auth + addr a@bulk.test exact remove", 1, ""},
		{"an exception", "whitelist_from a@bulk.test\nunwelcomelist_from a@bulk.test\nblocklist_from a@bulk.test\n",
			"skip directive + skip directive + addr a@bulk.test exact block",
			"addr a@bulk.test exact allow + addr a@bulk.test exact remove + addr a@bulk.test exact block", 1, ""},
		{"beside a key that is none", "blocklist_from a@bulk.test b@bulk.test\nunblocklist_from a@bulk.test bad..test\n",
			"skip directive + addr b@bulk.test exact block + skip directive + err syntax",
			"addr a@bulk.test exact block + addr b@bulk.test exact block + addr a@bulk.test exact remove + err syntax", 2, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := lists.Settings{Format: "spamassassin"}
			got, sum, err := items(t, tt.text, s)
			if err != nil || sum.Why != tt.why {
				t.Errorf("%+v, %v", sum, err)
			}
			equal(t, got, strings.Split(tt.want, " + "))
			got = nil
			sum, keys, err := lists.Lint(t.Context(), testkit.File(t, "list", tt.text), s, func(it *lists.Item) error {
				got = append(got, show(it))
				return nil
			})
			if err != nil || sum.Why != tt.why || keys != tt.keys || sum.Entries+sum.Errors != len(got) {
				t.Errorf("Lint: %+v, %d keys, %v; want %d keys", sum, keys, err, tt.keys)
			}
			equal(t, got, strings.Split(tt.lint, " + "))
		})
	}
}

func TestWhatIsTakenBackIsNotGuarded(t *testing.T) {
	guard := testkit.Value(lists.NewGuard(lists.GuardSettings{Protected: []string{"mail.test"}, MaxBadRatio: 1}))(t)
	path := testkit.File(t, "list", "blocklist_from *@mail.test\nblocklist_from *@bulk.test\nunblocklist_from *@mail.test\n")
	s := lists.Settings{Format: "spamassassin", Guard: guard}
	for name, read := range map[string]func() (lists.Summary, error){
		"ReadFile": func() (lists.Summary, error) { return lists.ReadFile(t.Context(), path, s, none) },
		"Lint": func() (lists.Summary, error) {
			sum, _, err := lists.Lint(t.Context(), path, s, none)
			return sum, err
		},
	} {
		testkit.Equal(t, name, testkit.Value(read())(t).Errors, 0)
	}
}

func TestTakenBackIsBounded(t *testing.T) {
	var text strings.Builder
	for i := range 1<<16 + 1 {
		fmt.Fprintf(&text, "unblocklist_from a%d@bulk.test\n", i)
	}
	if got := refused(t, testkit.File(t, "list", text.String()), lists.Settings{Format: "spamassassin"}); got != lists.TooBig {
		t.Errorf("refused as %s", got)
	}
}

// TestRanges: a range of client addresses is read where a format has ranges, and is a name nowhere.
func TestRanges(t *testing.T) {
	for format, line := range map[string]string{
		"hosts": "0.0.0.0 %s", "adblock": "||%s^", "dnsmasq": "address=/%s/0.0.0.0", "unbound": "local-zone: %s refuse", "postfix": "%s REJECT",
		"sendmail": "Connect:%s REJECT", "spamassassin": "blocklist_from *@%s", "rspamd": "%s", "rbldnsd": "%s", "rpz": "%s CNAME .", "lsearch": "%s: no",
		"drop": "%s ; SBL1",
	} {
		for _, text := range []string{"198.51.100.0-9", "198.51.100.8-198.51.100.15", "198.51.100.x"} {
			got := taken(t, fmt.Sprintf(line, text)+"\n"+cmp.Or(lastLine[format], "last.test"+tail[format])+"\n", lists.Settings{Format: format})
			if !strings.HasPrefix(got[0], "err ") || len(got) != 2 {
				t.Errorf("%s: %s is %q", format, text, got)
			}
		}
	}
	rows{
		{"a range", "198.51.100.8-15", "cidr 198.51.100.8/29 tree block"},
		{"x", "198.51.100.x", "cidr 198.51.100.0/24 tree block"},
	}.run(t, lists.Settings{Format: "csv:1"})
	got := taken(t, `["198.51.100.8-15", "!198.51.100.x"]`, lists.Settings{Format: "json"})
	testkit.EqualSlices(t, "json", got, []string{"cidr 198.51.100.8/29 tree block", "cidr 198.51.100.0/24 tree allow"})
}
