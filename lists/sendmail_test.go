package lists_test

import (
	"strings"
	"testing"

	"blockd/lists"
)

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
