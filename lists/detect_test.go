package lists_test

import (
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

func TestAuto(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"hosts", "# x\n127.0.0.1 localhost\n0.0.0.0 a.test\n0.0.0.0 b.test # y\n", `auto: hosts, 3 of 3 lines are "0.0.0.0 NAME"`},
		{"hosts, first 200 lines", strings.Repeat("# c\n0.0.0.0 a.test\n", 300), `auto: hosts, 200 of 200 lines are "0.0.0.0 NAME"`},
		{"hosts with 1 in 20 odd", strings.Repeat("0.0.0.0 a.test\n", 19) + "no..name\n", `auto: hosts, 19 of 20 lines are "0.0.0.0 NAME"`},
		{"hosts with more", strings.Repeat("0.0.0.0 a.test\n", 18) + "no..name\n", "ambiguous: only 18 of the first 19 lines fit hosts; declare its format"},
		{"adblock", "! Title\n||a.test^\n@@||b.test^\na.test##.ad\n", `auto: adblock, 3 of 3 lines are rules like "||NAME^"`},
		{"postfix", "a.test REJECT\n.b.test 550 no\nc.test\tOK\n", `auto: postfix, 3 of 3 lines are "NAME ACTION"`},
		{"postfix with continuations", "a.test REJECT x\n  y\n  z\nb.test OK\n", `auto: postfix, 4 of 4 lines are "NAME ACTION"`},
		{"plain", "a.test\npromo@b.test\n198.51.100.7\n198.51.100.0/25\n", "auto: plain, 4 of 4 lines are addresses, names or networks"},
		{"plain with other forms", "!press@a.test\n=b.test\noffers@\n", "auto: plain, 3 of 3 lines are addresses, names or networks"},
		{"adblock by its header", "[Adblock Plus 2.0]\na.test\nb.test\n", `auto: adblock, 3 of 3 lines are rules like "||NAME^"`},
		{"exceptions with a blank", "a.test\n! b.test\n", "auto: plain, 1 of 1 lines are addresses, names or networks"},
		{"comments of adblock over bare names", "! Title: x\na.test\nb.test\n", `ambiguous: lines with "!" and a blank are comments in adblock and exceptions in plain; declare its format`},
		{"nothing but such lines", "! b.test\n", `ambiguous: lines with "!" and a blank are comments in adblock and exceptions in plain; declare its format`},
		{"json array", "[\n\"a.test\"\n]", `auto: json, begins with "["`},
		{"json of one long line", `["` + strings.Repeat(`a.test","`, 10_000) + `b.test"]`, `auto: json, begins with "["`},
		{"json object", `{"block":["a.test"]}`, `auto: json, begins with "{"`},
		{"address in brackets", "[2001:db8::1]\na.test\n", "auto: plain, 2 of 2 lines are addresses, names or networks"},
		{"leading dots", "a.test\n.b.test\n", "ambiguous: names with a leading dot mean different things in plain, postfix and rbldnsd; declare its format"},
		{"two marks", "0.0.0.0 a.test\n||b.test^\n", "ambiguous: has marks of hosts and adblock; declare its format"},
		{"hosts and a foreign mark", "0.0.0.0 a.test\naddress=/b.test/0.0.0.0\n", "ambiguous: has marks of hosts and dnsmasq; declare its format"},
		{"counts behind names", "a.test 451\nb.test 2\n", "ambiguous: only 0 of the first 2 lines fit plain; declare its format"},
		{"csv", "address,reason\na@b.test,x\n", "ambiguous: only 0 of the first 2 lines fit plain; declare its format"},
		{"words", "hello\nworld\n", "ambiguous: only 0 of the first 2 lines fit plain; declare its format"},
		{"regular expressions", "/a/\n/b/\n", "ambiguous: only 0 of the first 2 lines fit plain; declare its format"},
		{"dnsmasq", "# x\ncache-size=1\nserver=/a.test/\n", `auto: dnsmasq, 2 of 2 lines are options like "address=/NAME/0.0.0.0"`},
		{"unbound", "server:\nlocal-zone: \"a.test\" refuse\n", "auto: unbound, 2 of 2 lines are options of unbound"},
		{"spamassassin", "# x\nblacklist_from *@a.test\n", "auto: spamassassin, 1 of 1 lines are directives of SpamAssassin"},
		{"spamassassin by what it takes back", "describe X y\nunblocklist-from *@a.test\nwelcomelist_from *@b.test\n", "auto: spamassassin, 3 of 3 lines are directives of SpamAssassin"},
		{"spamassassin auth", "def_welcomelist_auth *@a.test\n", "auto: spamassassin, 1 of 1 lines are directives of SpamAssassin"},
		{"rpz", "$TTL 300\na.test IN CNAME .\n", "auto: rpz, 2 of 2 lines are records of a policy zone"},
		{"rpz by its SOA", "@ IN SOA localhost. root.localhost. (\n1 2 3 4 5 )\na.test A 192.0.2.1\n", "auto: rpz, 3 of 3 lines are records of a policy zone"},
		{"rbldnsd", ":127.0.0.2:x\n.a.test\n!198-51.b.test\n", "auto: rbldnsd, 3 of 3 lines are entries of rbldnsd"},
		{"rbldnsd of clients", ":127.0.0.2:x\n198.51.100.4-9\n!198.51.100.7 ; x\n", "auto: rbldnsd:ip4set, 3 of 3 lines are entries of rbldnsd"},
		{"rbldnsd of both", ":127.0.0.2:x\n198.51.100.4\na.test\n", "ambiguous: only 2 of the first 3 lines fit rbldnsd; declare its format"},
		{"rbldnsd sections", "$DATASET dnset x\na.test\n$DATASET ip4set x\n198.51.100.7\n", "auto: rbldnsd:combined, 4 of 4 lines are entries of rbldnsd"},
		{"sendmail", "From:a.test REJECT\nTo:b.test OK\n", `auto: sendmail, 2 of 2 lines are "TAG:KEY ACTION"`},
		{"sendmail with lines of postfix", "From:a.test REJECT\nb.test REJECT\n", "ambiguous: has marks of sendmail and postfix; declare its format"},
		{"pasted header is plain", "From: a@b.test\n", "auto: plain, 1 of 1 lines are addresses, names or networks"},
		{"drop", "; Spamhaus DROP\n198.51.100.0/25 ; SBL1\n", "auto: drop, 1 of 1 lines are networks of a DROP list"},
		{"drop as JSON lines", "{\"cidr\":\"198.51.100.0/25\",\"sblid\":\"SBL1\"}\n", "auto: drop, 1 of 1 lines are networks of a DROP list"},
		{"drop whose count is not in the first lines", strings.Repeat("{\"cidr\":\"198.51.100.0/25\"}\n", 250) + "{\"type\":\"metadata\",\"records\":250}\n", "auto: drop, 200 of 200 lines are networks of a DROP list"},
		{"drop whose count comes first", "{\"type\":\"metadata\",\"records\":250}\n" + strings.Repeat("{\"cidr\":\"198.51.100.0/25\"}\n", 250), "auto: drop, 200 of 200 lines are networks of a DROP list"},
		{"lsearch is never guessed", "a@a.test: x\nb.test: y\n", "ambiguous: only 0 of the first 2 lines fit plain; declare its format"},
		{"rspamd is never guessed", "a.test 2.0\nb.test SYM:1\n", "ambiguous: only 0 of the first 2 lines fit plain; declare its format"},
		{"binary", "\x7fELF", "binary: this is a program"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, sum, err := items(t, tt.text, lists.Settings{})
			if sum.Why != tt.want || (err == nil) != (strings.HasPrefix(tt.want, "auto: ") || tt.want == "empty") {
				t.Errorf("got  %s (%v)\nwant %s", sum.Why, err, tt.want)
			}
		})
	}
}

func TestParseFormat(t *testing.T) {
	for _, text := range []string{"", "auto", "plain", "hosts", "adblock", "postfix", "csv", "csv:3", "csv:sender", "json", "json:members", "json:a:b", "rbldnsd", "rbldnsd:dnset", "rbldnsd:ip4set", "rbldnsd:combined"} {
		testkit.IsError(t, fmt.Sprintf("ParseFormat(%q)", text), lists.ParseFormat(text), nil)
	}
	for text, want := range map[string]string{
		"Plain":     `unknown format "Plain", want one of plain, hosts, adblock, dnsmasq, unbound, postfix, sendmail, spamassassin, rspamd, rbldnsd, rpz, csv, json, drop, entries, lsearch, auto`,
		"plain:x":   `format "plain:x": plain takes no argument`,
		"auto:x":    `unknown format "auto:x", want one of plain, hosts, adblock, dnsmasq, unbound, postfix, sendmail, spamassassin, rspamd, rbldnsd, rpz, csv, json, drop, entries, lsearch, auto`,
		"csv:":      `format "csv:": nothing behind the colon`,
		"csv:0":     `format "csv:0": a column is 1 to 10000, or the name of a header`,
		"rbldnsd:x": `format "rbldnsd:x": a dataset is one of dnset, ip4set, combined`,
		"rpz:x":     `format "rpz:x": rpz takes no argument`,
		"csv:10001": `format "csv:10001": a column is 1 to 10000, or the name of a header`,
	} {
		if err := lists.ParseFormat(text); err == nil || err.Error() != want {
			t.Errorf("ParseFormat(%q) = %v, want %s", text, err, want)
		}
	}
	for _, f := range lists.Formats() {
		if err := lists.ParseFormat(f.Name); err != nil || f.What == "" {
			t.Errorf("%+v: %v", f, err)
		}
	}
}
