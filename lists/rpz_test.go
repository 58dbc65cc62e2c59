package lists_test

import (
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

func TestRPZ(t *testing.T) {
	rows{
		{"the example of the specification", "*.bulk.test 60 IN CNAME .", "domain bulk.test sub block"},
		{"bare name is the name alone", "bulk.test CNAME .", "domain bulk.test exact block"},
		{"no data", "bulk.test CNAME *.", "domain bulk.test exact block"},
		{"drop", "bulk.test CNAME rpz-drop.", "domain bulk.test exact block"},
		{"landing page", "bulk.test CNAME walled.garden.test.", "domain bulk.test exact block"},
		{"landing page of any name", "bulk.test CNAME *.garden.test.", "domain bulk.test exact block"},
		{"address", "bulk.test A 198.51.100.7", "domain bulk.test exact block"},
		{"IPv6 address", "bulk.test 1h30m AAAA ::", "domain bulk.test exact block"},
		{"class before TTL", "bulk.test in 60 cname .", "domain bulk.test exact block"},
		{"exception", "press.bulk.test CNAME rpz-passthru.", "domain press.bulk.test exact allow"},
		{"exception for names below", "*.bulk.test CNAME RPZ-PassThru.", "domain bulk.test sub allow"},
		{"older exception", "press.bulk.test CNAME Press.Bulk.Test.", "domain press.bulk.test exact allow"},
		{"comment behind", "bulk.test CNAME . ; spam", "domain bulk.test exact block"},
		{"comment without a blank", "bulk.test CNAME .;spam", "domain bulk.test exact block"},
		{"comment", "; bulk.test CNAME .", "skip comment"},
		{"TTL", "$TTL 300", "skip directive"},
		{"SOA and NS", "@ IN SOA localhost. root.localhost. 1 2 3 4 5\n  NS localhost.", "skip directive + skip directive"},
		{"SOA in parentheses", "@ IN SOA a. b. (\n 1 ; serial\n\n ; comment\n 2 3 4 5 )\nbulk.test CNAME .",
			"skip directive + skip continuation + skip blank + skip comment + skip continuation + domain bulk.test exact block"},
		{"record in parentheses", "bulk.test (\nCNAME\n.)", "domain bulk.test exact block + skip continuation + skip continuation"},
		{"parentheses in quotes and comments", "bulk.test TXT \"(\" ; (\nads.test CNAME .", "skip directive + domain ads.test exact block"},
		{"escaped quote", `bulk.test TXT "a\" ("` + "\nads.test CNAME .", "skip directive + domain ads.test exact block"},
		{"a blank first repeats the owner", "bulk.test TXT x\n CNAME .", "skip directive + domain bulk.test exact block"},
		{"the owner is repeated across others", "bulk.test A 192.0.2.1\n; x\n\n\tAAAA ::1", "domain bulk.test exact block + skip comment + skip blank + domain bulk.test exact block"},
		{"other type", "bulk.test TXT x", "skip directive"},
		{"type by number", `bulk.test TYPE65534 \# 0`, "skip directive"},
		{"data of the zone", "@ A 198.51.100.7", "skip directive"},
		{"origin below the zone", "$ORIGIN test\nbulk CNAME .\n$ORIGIN ads\nx CNAME .", "skip directive + domain bulk.test exact block + skip directive + domain x.ads.test exact block"},
		{"origin that is the zone", "$ORIGIN rpz.test.\nbulk.test CNAME .\nads.test.RPZ.test. CNAME .", "skip directive + domain bulk.test exact block + domain ads.test exact block"},
		{"origin below a zone with a name", "$ORIGIN rpz.test.\n@ SOA a. b. 1 2 3 4 5\n$ORIGIN com.rpz.test.\nbulk CNAME .\n@ CNAME .",
			"skip directive + skip directive + skip directive + domain bulk.com exact block + domain com exact block"},
		{"zone named by its SOA", "rpz.test. SOA a. b. 1 2 3 4 5\nbulk.test CNAME .\nbulk.test.rpz.test. CNAME .", "skip directive + domain bulk.test exact block + domain bulk.test exact block"},
		{"origin of the root, as servers write zones", "$ORIGIN .\nrpz.test 60 IN SOA a. b. ( 1\n2 3 4 5 )\n$ORIGIN rpz.test.\n$ORIGIN test.rpz.test.\nbulk CNAME .\n*.bulk CNAME .",
			"skip directive + skip directive + skip continuation + skip directive + skip directive + domain bulk.test exact block + domain bulk.test sub block"},
		{"outside the zone", "$ORIGIN rpz.test.\nbulk.test. CNAME .", "skip directive + err syntax"},
		{"same ending, other zone", "$ORIGIN rpz.test.\nbulk.xrpz.test. CNAME .", "skip directive + err syntax"},
		{"absolute where the zone has no name", "bulk.test. CNAME .", "err syntax"},
		{"origin after the SOA of a zone without a name", "a.test CNAME .\n@ SOA a. b. 1 2 3 4 5\n$ORIGIN co.rpz.test.\n*.bulk CNAME .", "domain a.test exact block + skip directive + skip directive + err syntax"},
		{"answers", "24.0.100.51.198.rpz-ip CNAME .", "err unsupported"},
		{"clients", "32.7.100.51.198.rpz-client-ip CNAME rpz-drop.", "err unsupported"},
		{"addresses of name servers", "32.7.100.51.198.RPZ-NSIP CNAME .", "err unsupported"},
		{"name servers", "ns.bulk.test.rpz-nsdname CNAME .", "err unsupported"},
		{"TCP only", "bulk.test CNAME rpz-tcp-only.", "err unsupported"},
		{"actions to come", "bulk.test CNAME rpz-frobnicate.", "err unsupported"},
		{"exception without its dot", "bulk.test CNAME rpz-passthru", "err syntax"},
		{"every name", "* CNAME .", "err too-broad"},
		{"* inside a name", "ads.*.test CNAME .", "err unsupported"},
		{"include", "$INCLUDE /etc/passwd", "err unsupported"},
		{"generate", "$GENERATE 1-65535 a$ CNAME .", "err unsupported"},
		{"no record", "bulk.test", "err syntax"},
		{"unknown type", "bulk.test REJECT", "err syntax"},
		{"no target", "bulk.test CNAME", "err syntax"},
		{"two targets", "bulk.test CNAME . .", "err syntax"},
		{"bad address", "bulk.test A 198.51.100.256", "err syntax"},
		{"address of the other family", "bulk.test AAAA 198.51.100.7", "err syntax"},
		{"no origin", "a.test CNAME .\n$ORIGIN", "domain a.test exact block + err syntax"},
		{"below an origin that was not read", "$ORIGIN a b\nbulk.test CNAME .\n CNAME .\nx.test. CNAME .\n$ORIGIN rpz.test.\nads.test CNAME .",
			"err syntax + err syntax + err syntax + err syntax + skip directive + domain ads.test exact block"},
		{"origins do not grow without end", "a.test CNAME .\n$ORIGIN " + strings.Repeat("a.", 400) + "test\n$ORIGIN " + strings.Repeat("b.", 400) + "test\nx CNAME .", "domain a.test exact block + skip directive + err syntax + err syntax"},
		{"no owner to repeat", " CNAME .", "err syntax"},
		{"the owner of a refused line is not repeated", "press.test TXT x\nbulk.test TXT \x01\n CNAME .", "skip directive + err control + err syntax"},
		{"the owner of an open record is not repeated", "press.test TXT x\nbulk.test TXT (\n CNAME .", "skip directive + err syntax + err syntax"},
		{"open parenthesis costs its line alone", "bulk.test TXT ( x\nads.test CNAME .", "err syntax + domain ads.test exact block"},
		{"open quote costs its line alone", "bulk.test TXT \"x\nads.test CNAME .", "err syntax + domain ads.test exact block"},
		{"closing parenthesis", "bulk.test CNAME . )", "err syntax"},
		{"parentheses that change places", "bulk.test TXT ) x (", "err syntax"},
		{"only parentheses", "()", "skip blank"},
		{"escapes", `bulk\.ads.test CNAME .`, "err syntax"},
		{"sender", "promo@bulk.test CNAME .", "err syntax"},
		{"client", "198.51.100.7 CNAME .", "err syntax"},
		{"bad name", "bulk..test CNAME .", "err syntax"},
		{"broken octets", "b\xfclk.test CNAME .", "err bad-utf8"},
		{"broken octets in another type", "bulk.test TXT d\xe9sol\xe9", "skip directive"},
	}.run(t, lists.Settings{Format: "rpz"})
	got, _, err := items(t, "bulk.test CNAME .\npress.test CNAME rpz-passthru.\n", lists.Settings{Format: "rpz", Action: lists.Allow})
	testkit.Must(t, err)
	equal(t, got, []string{"domain bulk.test exact allow", "err unsupported-action"})
}

// TestZoneOfOpenParentheses would take hours if each line looked through all that
// follow it.
func TestZoneOfOpenParentheses(t *testing.T) {
	text := strings.Repeat("a.test TXT (\n", 10_000) + "last.test CNAME .\n"
	_, sum, err := items(t, text, lists.Settings{Format: "rpz"})
	if err != nil || sum.Errors != 10_000 || sum.Entries != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
}
