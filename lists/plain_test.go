package lists_test

import (
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

func TestPlainForms(t *testing.T) {
	rows{
		{"address", "promo@bulk.test", "addr promo@bulk.test exact block"},
		{"local-part at any domain", "offers@", "addr offers@ local block"},
		{"two dots in a row", "A..b@bulk.test", "addr a..b@bulk.test exact block"},
		{"two dots in a row, in quotes", `"a..b"@bulk.test`, "addr a..b@bulk.test exact block"},
		{"dot last in the local-part", "tail.@bulk.test", "addr tail.@bulk.test exact block"},
		{"dot first in the local-part", ".a@bulk.test", "addr .a@bulk.test exact block"},
		{"dot last, at any domain", `!"tail."@`, "addr tail.@ local allow"},
		{"hyphen first in a label", "-shop.test", "domain -shop.test tree block"},
		{"hyphens first in labels", "!*.--a.-b-.test", "domain --a.-b-.test sub allow"},
		{"hyphen first, in an address", "promo@-shop.test", "addr promo@-shop.test exact block"},
		{"a line that somebody has drawn", "-----", "err syntax"},
		{"quoted local-part at any domain", `"odd one"@`, `addr "odd one"@ local block`},
		{"brackets in quotes", `"a(<b"@`, `addr "a(<b"@ local block`},
		{"bare name is the tree", "bulk.test", "domain bulk.test tree block"},
		{"= is the exact name", "=bulk.test", "domain bulk.test exact block"},
		{"@name is the exact name", "@bulk.test", "domain bulk.test exact block"},
		{"*@name is the exact name", "*@bulk.test", "domain bulk.test exact block"},
		{"leading dot is below only", ".bulk.test", "domain bulk.test sub block"},
		{"*. is below only", "*.bulk.test", "domain bulk.test sub block"},
		{"*@*. is below only", "*@*.bulk.test", "domain bulk.test sub block"},
		{"@. is below only", "@.bulk.test", "domain bulk.test sub block"},
		{"*@. is below only", "*@.bulk.test", "domain bulk.test sub block"},
		{"IPv4", "198.51.100.23", "ip 198.51.100.23 exact block"},
		{"IPv6 in brackets", "[2001:db8:5::7]", "ip 2001:db8:5::7 exact block"},
		{"IPv6", "2001:DB8:5:0::7", "ip 2001:db8:5::7 exact block"},
		{"network", "198.51.100.0/25", "cidr 198.51.100.0/25 tree block"},
		{"range", "198.51.100.8 - 198.51.100.15", "cidr 198.51.100.8/29 tree block"},
		{"range of the last octet", "198.51.100.0-9", "cidr 198.51.100.0/29 tree block + cidr 198.51.100.8/31 tree block"},
		{"range of the last octet, blanks", "198.51.100.8 - 9", "cidr 198.51.100.8/31 tree block"},
		{"exception for a range", "!198.51.100.8-15", "cidr 198.51.100.8/29 tree allow"},
		{"x for an octet", "198.51.100.x", "cidr 198.51.100.0/24 tree block"},
		{"X for two", "!198.51.X.x", "cidr 198.51.0.0/16 tree allow"},
		{"* for an octet", "198.51.100.*", "cidr 198.51.100.0/24 tree block"},
		{"x in the middle", "198.51.x.100", "err syntax"},
		{"three octets and an x", "198.51.x", "err syntax"},
		{"x for all but one", "198.x.x.x", "cidr 198.0.0.0/8 tree block"},
		{"x for all", "x.x.x.x", "domain x.x.x.x tree block"},
		{"range of the third octet", "198.51.100-101", "err syntax"},
		{"range without an end", "198.51.100.1-", "err syntax"},
		{"range without an end, with a dot", "198.51.100.1-.", "err syntax"},
		{"range without a beginning", "-198.51.100.1", "err syntax"},
		{"range with a hyphen too many", "198.51.100.1--9", "err syntax"},
		{"range whose octet lacks its first", "198.51.100.-9", "err syntax"},
		{"range whose second octet lacks its last", "198.51-.100.1", "err syntax"},
		{"range whose first octet lacks its last", "198-.51.100.1", "err syntax"},
		{"name without an end, marked", "=198.51.100.1-", "err syntax"},
		{"range of an address without its end", "198.51.100.1-198.51.100.", "err syntax"},
		{"address of it", "a@198.51.100.1-", "addr a@198.51.100.1- exact block"},
		{"range that ends before it begins", "198.51.100.9-0", "err syntax"},
		{"range beyond an octet", "198.51.100.0-256", "err syntax"},
		{"range with leading zeros", "198.51.100.0-09", "err syntax"},
		{"exact name of a range", "=198.51.100.0-9", "err syntax"},
		{"names below a range", ".198.51.100.0-9", "err syntax"},
		{"comment behind a range", "198.51.100.8-9 ; two of them", "cidr 198.51.100.8/31 tree block"},
		{"a name of digits and hyphens", "198-51-100-7.bulk.test", "domain 198-51-100-7.bulk.test tree block"},
		{"a name that ends in x", "1.2.3.xx", "domain 1.2.3.xx tree block"},
		{"display name", "Win Big <promo@bulk.test>", "addr promo@bulk.test exact block"},
		{"comment behind", "promo@bulk.test (Win)", "addr promo@bulk.test exact block"},
		{"comment before", "(Win) promo@bulk.test", "addr promo@bulk.test exact block"},
		{"comment with an address in it", "(win@shop.test) promo@bulk.test", "addr promo@bulk.test exact block"},
		{"nested comments", `promo@bulk.test (a (b) \) c) (d)`, "addr promo@bulk.test exact block"},
		{"quoted display name", `"Win, Big" <promo@bulk.test>`, "addr promo@bulk.test exact block"},
		{"address in a display name", `"win@shop.test" <promo@bulk.test>`, "addr promo@bulk.test exact block"},
		{"brackets alone", "<promo@bulk.test>", "addr promo@bulk.test exact block"},
		{"source route", "<@relay.test:promo@bulk.test>", "addr promo@bulk.test exact block"},
		{"source route without brackets", "@relay.test:promo@bulk.test", "addr promo@bulk.test exact block"},
		{"mailto", "mailto:promo@bulk.test", "addr promo@bulk.test exact block"},
		{"header", "From: promo@bulk.test", "addr promo@bulk.test exact block"},
		{"header with a display name", "FROM: Win <promo@bulk.test>", "addr promo@bulk.test exact block"},
		{"address literal", "promo@[198.51.100.23]", "addr promo@[198.51.100.23] exact block"},
		{"address literal, IPv6", "promo@[IPv6:2001:DB8:5:0::7]", "addr promo@[ipv6:2001:db8:5::7] exact block"},
		{"any sender at a literal", "@[198.51.100.23]", "domain [198.51.100.23] exact block"},
	}.run(t, lists.Settings{Format: "plain"})
}

func TestPlainExceptions(t *testing.T) {
	rows{
		{"address", "!press@bulk.test", "addr press@bulk.test exact allow"},
		{"blanks behind the mark", "! \t press@bulk.test", "addr press@bulk.test exact allow"},
		{"name", "!news.bulk.test", "domain news.bulk.test tree allow"},
		{"exact name", "!=news.bulk.test", "domain news.bulk.test exact allow"},
		{"names below", "!*.bulk.test", "domain bulk.test sub allow"},
		{"network", "!198.51.100.0/25", "cidr 198.51.100.0/25 tree allow"},
		{"display name", "!Press <press@bulk.test>", "addr press@bulk.test exact allow"},
		{"lone mark", "!", "err syntax"},
		{"mark and comment", "! # press", "err syntax"},
		{"two marks", "!!press@bulk.test", "err syntax"},
		{"mark before a comment sign", "!# press", "err syntax"},
		{"address that begins with the mark", `"!x"@bulk.test`, "addr !x@bulk.test exact block"},
	}.run(t, lists.Settings{Format: "plain"})
}

func TestPlainComments(t *testing.T) {
	rows{
		{"#", "# bulk.test", "skip comment"},
		{";", "; bulk.test", "skip comment"},
		{"//", "// bulk.test", "skip comment"},
		{"behind blanks", " \u00a0 # bulk.test", "skip comment"},
		{"blank line", " \u3000\t", "skip blank"},
		{"the example of the specification", "*.Mailings.Shop.TEST.  # since May", "domain mailings.shop.test sub block"},
		{"# without a blank is part of the address", "a#b@bulk.test", "addr a#b@bulk.test exact block"},
		{"# in quotes is too", `"a #b"@bulk.test # c`, `addr "a #b"@bulk.test exact block`},
		{"quote escaped in quotes", `"a\" #b"@bulk.test # c`, `addr "a\" #b"@bulk.test exact block`},
		{"# behind a wide blank", "bulk.test\u3000# c", "domain bulk.test tree block"},
		{"; behind a client address", "198.51.100.23;SBL1", "ip 198.51.100.23 exact block"},
		{"; behind a network", "!198.51.100.0/25 ; office", "cidr 198.51.100.0/25 tree allow"},
		{"; behind a range", "198.51.100.8-198.51.100.15 ; x", "cidr 198.51.100.8/29 tree block"},
		{"; behind a name is no comment", "bulk.test ; x", "err syntax"},
		{"broken octets in a comment", "# \xe9", "skip comment"},
		{"broken octets in a trailing comment", "bulk.test # \xe9", "domain bulk.test tree block"},
		{"broken octets behind a network", "198.51.100.0/25 ; \xe9", "cidr 198.51.100.0/25 tree block"},
		{"a self-test", "#? block new@bulk.test", "skip self-test"},
	}.run(t, lists.Settings{Format: "plain"})
}

func TestPlainRefusals(t *testing.T) {
	rows{
		{"every sender", "*", "err too-broad"},
		{"every address", "*@*", "err too-broad"},
		{"the root", ".", "err too-broad"},
		{"all names", "*.", "err too-broad"},
		{"every local-part", "*@", "err too-broad"},
		{"every domain", "@*", "err too-broad"},
		{"the root below", "*@*.", "err too-broad"},
		{"exception for everything", "!*", "err too-broad"},
		{"wide IPv4 network", "198.0.0.0/7", "err too-broad"},
		{"IPv4 /8", "11.0.0.0/8", "cidr 11.0.0.0/8 tree block"},
		{"wide IPv6 network", "2000::/15", "err too-broad"},
		{"IPv6 /16", "2001::/16", "cidr 2001::/16 tree block"},
		{"all of IPv4", "0.0.0.0/0", "err too-broad"},
		{"all of IPv4 in IPv6", "::ffff:0:0/96", "err too-broad"},
		{"more than all of IPv4 in IPv6", "::ffff:0:0/80", "err too-broad"},
		{"wide range", "11.0.0.0 - 12.255.255.255", "err too-broad"},
		{"null sender", "<>", "err null-sender"},
		{"null sender with a name", "Mail Delivery <>", "err null-sender"},
		{"glob at the end", "promo*@bulk.test", "err unsupported"},
		{"glob at the beginning", "*promo@bulk.test", "err unsupported"},
		{"* inside a local-part", "pro*mo@bulk.test", "addr pro*mo@bulk.test exact block"},
		{"* in quotes", `"*"@bulk.test`, "addr *@bulk.test exact block"},
		{"? is ordinary", "who?@bulk.test", "addr who?@bulk.test exact block"},
		{"* inside a name", "ads*.bulk.test", "err unsupported"},
		{"* inside an address's name", "promo@*.bulk.test", "err unsupported"},
		{"* at the end of a name", "bulk.*", "err unsupported"},
		{"* twice", "*.*.bulk.test", "err unsupported"},
		{"regular expression", "/^promo.*@bulk/", "err unsupported"},
		{"regular expression with flags", "/promo/i", "err unsupported"},
		{"regular expression by ~", "~promo", "err unsupported"},
		{"regular expression of one letter", "~x", "err unsupported"},
		{"regular expression by ^", "^promo", "err unsupported"},
		{"regular expression for everything", "/.*/", "err too-broad"},
		{"regular expression for every address", "/@/i", "err too-broad"},
		{"anchors for everything", "^.*$", "err too-broad"},
		{"slashes in an address", "/x/y@bulk.test", "addr /x/y@bulk.test exact block"},
		{"address that begins with ~", `"~x"@bulk.test`, "addr ~x@bulk.test exact block"},
		{"two addresses, comma", "a@bulk.test, b@bulk.test", "err syntax"},
		{"two addresses, blank", "a@bulk.test b@bulk.test", "err syntax"},
		{"two addresses, semicolon", "a@bulk.test; b@bulk.test", "err syntax"},
		{"two addresses in brackets", "A <a@bulk.test>, B <b@bulk.test>", "err syntax"},
		{"address as display name", "a@shop.test <promo@bulk.test>", "err syntax"},
		{"group", "Spam: a@bulk.test, b@bulk.test;", "err syntax"},
		{"group of one in brackets", "Spam: <a@bulk.test>;", "err syntax"},
		{"SMTP command", "MAIL FROM:<promo@bulk.test>", "err syntax"},
		{"URL", "https://bulk.test/offers", "err syntax"},
		{"port", "bulk.test:25", "err syntax"},
		{"path", "bulk.test/offers", "err syntax"},
		{"two @", "a@b@bulk.test", "err syntax"},
		{"empty label", "bulk..test", "err syntax"},
		{"two leading dots", "..bulk.test", "err syntax"},
		{"empty label in an address", "promo@.bulk.test", "err syntax"},
		{"lone @", "@", "err syntax"},
		{"lone =", "=", "err syntax"},
		{"unclosed quote", `"promo@bulk.test`, "err syntax"},
		{"unclosed quote in a display name", `"Win <promo@bulk.test>`, "err syntax"},
		{"unclosed bracket", "Win <promo@bulk.test", "err syntax"},
		{"bracket never opened", "promo@bulk.test>", "err syntax"},
		{"unclosed comment", "promo@bulk.test (Win", "err syntax"},
		{"comment inside the address", "promo(x)@bulk.test", "err syntax"},
		{"brackets in brackets", "<<promo@bulk.test>>", "err syntax"},
		{"name in brackets", "<bulk.test>", "err syntax"},
		{"domain form in brackets", "Win <@bulk.test>", "err syntax"},
		{"glob in brackets", "Win <*@bulk.test>", "err unsupported"},
		{"mailto without an address", "mailto:", "err syntax"},
		{"comment around a name", "(Win) bulk.test", "err syntax"},
		{"= before an address is part of it", "=x1@bulk.test", "addr =x1@bulk.test exact block"},
		{"leading zero", "198.51.100.023", "err syntax"},
		{"three octets", "198.51.100", "err syntax"},
		{"zone", "fe80::1%eth0", "err syntax"},
		{"IPv4 sink", "0.0.0.0", "err syntax"},
		{"IPv6 sink", "::", "err syntax"},
		{"prefix too long", "198.51.100.0/33", "err syntax"},
		{"prefix with leading zero", "198.51.100.0/024", "err syntax"},
		{"netmask", "198.51.100.0/255.255.255.0", "err syntax"},
		{"range backwards", "198.51.100.9 - 198.51.100.8", "err syntax"},
		{"range of two families", "198.51.100.9 - 2001:db8::1", "err syntax"},
		{"literal with a tag alone", "[IPv6:2001:db8::1]", "err syntax"},
		{"full-width @", "promo\uff20bulk.test", "err syntax"},
		{"broken octets in an entry", "b\xfclk.test", "err bad-utf8"},
		{"broken octets in a display name", "W\xeen <promo@bulk.test>", "err bad-utf8"},
		{"overlong form", "bulk\xc0\xaetest", "err bad-utf8"},
		{"surrogate", "bulk\xed\xa0\x80.test", "err bad-utf8"},
		{"invisible", "bu\u200blk.test", "err invisible"},
		{"byte order mark in the middle", "first.test\n\ufeffbulk.test", "domain first.test tree block + err invisible"},
		{"line separator", "bulk\u2028.test", "err invisible"},
		{"NUL", "bulk\x00.test and more text than a few NULs could spoil", "err nul"},
		{"NUL behind a control", "bu\x01lk\x00.test and more text than a few could spoil", "err nul"},
		{"control", "bulk\x07.test", "err control"},
		{"C1 control", "bulk\u0085.test", "err control"},
		{"C1 control in a comment", "# x\u0085bulk.test", "err control"},
		{"DEL", "bulk\x7f.test", "err control"},
		{"CR inside", "bulk\r.test", "err control"},
		{"CR inside a comment, which may hide an entry", "# x\rbulk.test", "err control"},
		{"label over 63", strings.Repeat("a", 64) + ".test", "err label-too-long"},
		{"name over 253", strings.Repeat("abcdefg.", 32) + "test", "err too-long"},
		{"address over 254", "xy@" + strings.Repeat("abcdefg.", 31) + "test", "err too-long"},
		{"a character that no domain has", "b\u2490c.test", "err idna"},
		{"punycode of nothing", "XN--a.test", "domain xn--a.test tree block"},
		{"empty punycode", "xn--.test", "domain xn--.test tree block"},
		{"line over 64 KiB", strings.Repeat("a", 65537), "err too-long"},
		{"line of 64 KiB", "bulk.test #" + strings.Repeat("a", 65536-11), "domain bulk.test tree block"},
		{"comment over 64 KiB", "#" + strings.Repeat("a", 65536), "skip comment"},
	}.run(t, lists.Settings{Format: "plain"})
}

func TestPlainWarnings(t *testing.T) {
	long := strings.Repeat("v", 65)
	rows{
		{"host bits", "198.51.100.77/25", "cidr 198.51.100.0/25 tree block host-bits"},
		{"/32 is an address", "198.51.100.23/32", "ip 198.51.100.23 exact block"},
		{"/128 is an address", "2001:db8::1/128", "ip 2001:db8::1 exact block"},
		{"v4-mapped address", "::ffff:198.51.100.23", "ip 198.51.100.23 exact block"},
		{"v4-mapped network", "::ffff:198.51.100.0/120", "cidr 198.51.100.0/24 tree block"},
		{"v4-mapped network with host bits", "::ffff:198.51.100.1/120", "cidr 198.51.100.0/24 tree block host-bits"},
		{"range of one", "198.51.100.8 - 198.51.100.8", "ip 198.51.100.8 exact block"},
		{"range of several networks", "198.51.100.7-198.51.100.9",
			"ip 198.51.100.7 exact block + cidr 198.51.100.8/31 tree block"},
		{"range up to the last address", "255.255.255.254-255.255.255.255", "cidr 255.255.255.254/31 tree block"},
		{"range of IPv6", "2001:db8::-2001:db8::ffff", "cidr 2001:db8::/112 tree block"},
		{"digits and hyphens are a name", "1-2.3-4", "domain 1-2.3-4 tree block"},
		{"long local-part", long + "@bulk.test", "addr " + long + "@bulk.test exact block too-long"},
		{"local-part of 64", long[1:] + "@bulk.test", "addr " + long[1:] + "@bulk.test exact block"},
	}.run(t, lists.Settings{Format: "plain"})
}

func TestPlainKeysAreCanonical(t *testing.T) {
	rows{
		{"capitals and trailing dot", "PROMO@Bulk.Test.", "addr promo@bulk.test exact block"},
		{"needless quotes", `"bulk.mail"@shop.test`, "addr bulk.mail@shop.test exact block"},
		{"NFD", "caf\u0065\u0301@bulk.test", "addr caf\u00e9@bulk.test exact block"},
		{"U-label", "b\u00fccher.test", "domain xn--bcher-kva.test tree block"},
		{"A-label", "XN--BCHER-KVA.test", "domain xn--bcher-kva.test tree block"},
		{"hyphens in third and fourth place", "r2---cdn.test", "domain r2---cdn.test tree block"},
		{"underscore", "my_shop.test", "domain my_shop.test tree block"},
		{"blanks around", "\u3000 bulk.test \u00a0\t", "domain bulk.test tree block"},
	}.run(t, lists.Settings{Format: "plain"})
}

func TestSubdomainsSettingIsForBareNames(t *testing.T) {
	no, yes := false, true
	rows{
		{"bare name", "bulk.test", "domain bulk.test exact block"},
		{"exception", "!bulk.test", "domain bulk.test exact allow"},
		{"names below", ".bulk.test", "domain bulk.test sub block"},
	}.run(t, lists.Settings{Format: "plain", Subdomains: &no})
	rows{
		{"hosts name", "0.0.0.0 bulk.test", "domain bulk.test tree block"},
	}.run(t, lists.Settings{Format: "hosts", Subdomains: &yes})
}

func TestListOfExceptions(t *testing.T) {
	rows{
		{"every entry allows", "bulk.test", "domain bulk.test tree allow"},
		{"exception of an exception", "!bulk.test", "err unsupported-action"},
	}.run(t, lists.Settings{Format: "plain", Action: lists.Allow})
	rows{
		{"OK fits", "bulk.test OK", "domain bulk.test tree allow"},
		{"digits fit", "bulk.test 1234567890", "domain bulk.test tree allow"},
		{"REJECT does not", "bulk.test REJECT", "err unsupported-action"},
		{"DEFER does not", "bulk.test DEFER", "err unsupported-action"},
		{"550 does not", "bulk.test 550 no", "err unsupported-action"},
		{"DISCARD does not", "bulk.test DISCARD", "err unsupported-action"},
	}.run(t, lists.Settings{Format: "postfix", Action: lists.Allow})
	rows{
		{"exception", "@@||bulk.test^", "err unsupported-action"},
		{"entry", "||bulk.test^", "domain bulk.test tree allow"},
	}.run(t, lists.Settings{Format: "adblock", Action: lists.Allow})
}

func TestReasonOfTheList(t *testing.T) {
	long := strings.Repeat("\u00e9", 300)
	for _, tt := range []struct{ name, format, line, reason, want string }{
		{"for entries without one", "plain", "bulk.test", "see x", `domain bulk.test tree block "see x"`},
		{"own reason wins", "postfix", "bulk.test REJECT own", "see x", `domain bulk.test tree block "own"`},
		{"none of its own", "postfix", "bulk.test REJECT", "see x", `domain bulk.test tree block "see x"`},
		{"controls are replaced", "plain", "bulk.test", "a\r\nb\x00c\u0085d", `domain bulk.test tree block "a  b c d"`},
		{"cut at 400 octets", "plain", "bulk.test", long, `domain bulk.test tree block "` + long[:400] + `"`},
		{"cut at a character", "plain", "bulk.test", "x" + long, `domain bulk.test tree block "x` + long[:398] + `"`},
		{"broken octets", "plain", "bulk.test", "a\xffb", `domain bulk.test tree block "a?b"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			equal(t, taken(t, tt.line, lists.Settings{Format: tt.format, Reason: tt.reason}), []string{tt.want})
		})
	}
}

// What nobody can see is of no help without its place and its number.
func TestInvisibleCharacterIsPointedAt(t *testing.T) {
	for _, tt := range []struct {
		line, message string
		column        int
	}{
		{"bü\u00adlk.test", "the invisible character U+00AD", 4},
		{"promo\u200b@bulk.test", "the invisible character U+200B", 6},
		{"Win <promo@bu\u200blk.test>", "the invisible character U+200B", 14},
		{"bulk\u3164.test", "the invisible character U+3164", 5}, // a letter, by its category
	} {
		var got lists.Item
		path := testkit.File(t, "list", tt.line+"\nlast.test\n")
		if _, err := lists.ReadFile(t.Context(), path, lists.Settings{Format: "plain"}, func(it *lists.Item) error {
			if it.Line == 1 {
				got = *it
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if got.Class != lists.Invisible || got.Message != tt.message || got.Column != tt.column {
			t.Errorf("%q: %s %q at %d, want %q at %d", tt.line, got.Class, got.Message, got.Column, tt.message, tt.column)
		}
	}
}

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
	got := taken(t, text, lists.Settings{Format: "spamassassin", Patterns: true})
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
	exceptions := lists.Settings{Format: "adblock"}
	if _, sum, err := items(t, numbered(5002, "@@||promo%d*.bulk.test^")+"||last.test^\n", exceptions); err != nil || sum.Entries != 10_001 || sum.Errors != 2 {
		t.Errorf("exceptions: %d, %d refused, %v, want 10001 and 2", sum.Entries, sum.Errors, err)
	}
	if _, sum, err := items(t, numbered(10_001, "promo%d*@bulk.test"), s); err == nil || sum.Why != "too-big: more than 10000 patterns in one file" {
		t.Errorf("10,001 patterns: %v, why %q", err, sum.Why)
	}
	// Each is short enough by itself.
	if _, sum, err := items(t, numbered(700, `/@promo%d(a?b?c?d?){100}x/`), s); err == nil || sum.Why != "too-big: expressions of more than 500000 steps in one file" {
		t.Errorf("700 expressions of some 800 steps each: %v, why %q", err, sum.Why)
	}
	if _, sum, err := items(t, numbered(200, `/^\pL{4}@promo%d[.]example$/`), s); err == nil || sum.Why != "too-big: expressions of more than 500000 steps in one file" {
		t.Errorf("200 expressions of some 2,700 ranges each: %v, why %q", err, sum.Why)
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
