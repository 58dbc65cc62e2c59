package lists_test

import (
	"strings"
	"testing"

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
		{"dnsmasq", "server=/a.test/\n", "format: looks like dnsmasq, which this version does not read"},
		{"unbound", "server:\nlocal-zone: \"a.test\" refuse\n", "format: looks like unbound, which this version does not read"},
		{"spamassassin", "# x\nblacklist_from *@a.test\n", "format: looks like spamassassin, which this version does not read"},
		{"spamassassin auth", "def_welcomelist_auth *@a.test\n", "format: looks like spamassassin, which this version does not read"},
		{"rpz", "$TTL 300\na.test IN CNAME .\n", "format: looks like rpz, which this version does not read"},
		{"rpz by its SOA", "@ IN SOA localhost. root.localhost. 1 2 3 4 5\n", "format: looks like rpz, which this version does not read"},
		{"rbldnsd", ":127.0.0.2:x\n.a.test\n", "format: looks like rbldnsd, which this version does not read"},
		{"rbldnsd sections", "$DATASET dnset x\na.test\n", "format: looks like rbldnsd, which this version does not read"},
		{"sendmail", "From:a.test REJECT\n", "format: looks like sendmail, which this version does not read"},
		{"pasted header is plain", "From: a@b.test\n", "auto: plain, 1 of 1 lines are addresses, names or networks"},
		{"drop", "; Spamhaus DROP\n198.51.100.0/25 ; SBL1\n", "format: looks like drop, which this version does not read"},
		{"drop as JSON lines", "{\"cidr\":\"198.51.100.0/25\",\"sblid\":\"SBL1\"}\n", "format: looks like drop, which this version does not read"},
		{"binary", "\x7fELF", "binary: this is a program"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, sum, err := items(t, tt.text, lists.Settings{})
			if sum.Why != tt.want || (err == nil) != strings.HasPrefix(tt.want, "auto: ") {
				t.Errorf("got  %s (%v)\nwant %s", sum.Why, err, tt.want)
			}
		})
	}
}

func TestParseFormat(t *testing.T) {
	for _, text := range []string{"", "auto", "plain", "hosts", "adblock", "postfix", "csv", "csv:3", "csv:sender", "json", "json:members", "json:a:b"} {
		if err := lists.ParseFormat(text); err != nil {
			t.Errorf("ParseFormat(%q) = %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"Plain":     `unknown format "Plain", want one of plain, hosts, adblock, postfix, csv, json, auto`,
		"plain:x":   `format "plain:x": plain takes no argument`,
		"auto:x":    `unknown format "auto:x", want one of plain, hosts, adblock, postfix, csv, json, auto`,
		"csv:":      `format "csv:": nothing behind the colon`,
		"csv:0":     `format "csv:0": a column is 1 to 10000, or the name of a header`,
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
