package lists_test

import (
	"runtime"
	"strings"
	"testing"

	"blockd/lists"
)

func TestDnset(t *testing.T) {
	rows{
		{"the example of the specification", ".bulk.test :127.0.0.4:see $", `domain bulk.test tree block "see bulk.test"`},
		{"bare name is the name alone", "bulk.test", "domain bulk.test exact block"},
		{"*. is below only", "*.bulk.test", "domain bulk.test sub block"},
		{". is both", ".Bulk.Test.", "domain bulk.test tree block"},
		{"exception", "!press.bulk.test", "domain press.bulk.test exact allow"},
		{"exception with blanks and a value", "! .bulk.test :x:no", "domain bulk.test tree allow"},
		{"text without an address", "bulk.test go away", `domain bulk.test exact block "go away"`},
		{"address alone", "bulk.test :2", "domain bulk.test exact block"},
		{"short address", "bulk.test :2:go away", `domain bulk.test exact block "go away"`},
		{"comment behind", "bulk.test # go away", "domain bulk.test exact block"},
		{"other comment behind", "bulk.test ; go away", "domain bulk.test exact block"},
		{"$ is the key without its mark", "*.bulk.test :2:$ $$5", `domain bulk.test sub block "bulk.test $5"`},
		{"default", ":127.0.0.2:listed: $\n.bulk.test\nads.test :3:own\nshop.test :4", `skip default-value + domain bulk.test tree block "listed: bulk.test"` +
			` + domain ads.test exact block "own" + domain shop.test exact block "listed: shop.test"`},
		{"default of nothing", ":2:a\n:3\nbulk.test", "skip default-value + skip default-value + domain bulk.test exact block"},
		{"substitution", "$1 see http://x\n$2 now\nbulk.test $1/$ $2 $3", `skip directive + skip directive + domain bulk.test exact block "see http://x/bulk.test now $3"`},
		{"the first definition counts", "$1 a\n$1 b\nbulk.test $1", `skip directive + skip directive + domain bulk.test exact block "a"`},
		{"what is put in is not looked at again", "$1 $2 $\n$2 x\nbulk.test $1", `skip directive + skip directive + domain bulk.test exact block "$2 $"`},
		{"base template", "$= [$=] $\nbulk.test why\nads.test\nshop.test =own", `skip directive + domain bulk.test exact block "[why] bulk.test"` +
			` + domain ads.test exact block "[ads.test] ads.test" + domain shop.test exact block "own"`},
		{"comment", "# bulk.test", "skip comment"},
		{"other comment", "; bulk.test", "skip comment"},
		{"SOA", "$SOA 0 ns.bulk.test admin.bulk.test 0 1 2 3 4", "skip directive"},
		{"special behind a mark", "#$NS 0 ns.bulk.test", "skip directive"},
		{"definition behind a mark", ":$1 x\nbulk.test $1", `skip directive + domain bulk.test exact block "x"`},
		{"comment about dollars", "#$100 and more", "skip comment"},
		{"unknown special", "$FROBNICATE 1", "skip directive"},
		{"expired", "$TIMESTAMP 2001:02:03:04:05:06 2001:02:04", "skip expired"},
		{"expired after a while", "$TIMESTAMP 20010203 +5d", "skip expired"},
		{"not expired", "$TIMESTAMP 2001-2-3 2999-1-1-10", "skip directive"},
		{"not expired for long", "$TIMESTAMP 2001-02-03 +5000w", "skip directive"},
		{"no time", "$TIMESTAMP 0 -", "skip directive"},
		{"no expiry", "$TIMESTAMP 20010203040506", "skip directive"},
		{"bad time", "$TIMESTAMP 2001:13:01", "err syntax"},
		{"bad expiry", "$TIMESTAMP 20010203 +soon", "err syntax"},
		{"expiry of no time", "$TIMESTAMP 0 +1d", "err syntax"},
		{"expiry beyond all times", "$TIMESTAMP 20010203 +4294967295w", "err syntax"},
		{"sections in a file of one", "a.test\n$DATASET ip4set @\n198.51.100.7", "domain a.test exact block + err unsupported + err syntax"},
		{"bad default", ":x:go away\nbulk.test", "err syntax + domain bulk.test exact block"},
		{"bad value", "bulk.test :x:go away", "err syntax"},
		{"address of nobody", "bulk.test :0:go away", "err syntax"},
		{"value without its second colon", "bulk.test :2 go away", "err syntax"},
		{"every name", ".", "err too-broad"},
		{"every name below", "*.", "err too-broad"},
		{"exception of nothing", "!", "err syntax"},
		{"glob", "ads*.bulk.test", "err unsupported"},
		{"sender", "promo@bulk.test", "err syntax"},
		{"client", "198.51.100.7", "err syntax"},
		{"bad name", "bulk..test", "err syntax"},
		{"broken octets", "bulk.test d\xe9sol\xe9", "err bad-utf8"},
		{"broken octets in a definition", "$1 d\xe9sol\xe9", "err bad-utf8"},
		{"no time at all", "$TIMESTAMP now", "err syntax"},
		{"expiry in hours", "$TIMESTAMP 20010203 +5h", "skip expired"},
		{"expiry in minutes", "$TIMESTAMP 20010203 +5M", "skip expired"},
		{"expiry in seconds", "$TIMESTAMP 20010203 +500", "skip expired"},
	}.run(t, lists.Settings{Format: "rbldnsd"})
	rows{
		{"by its whole name", ".bulk.test", "domain bulk.test tree block"},
		{"the list's reason", "bulk.test :2", "domain bulk.test exact block"},
	}.run(t, lists.Settings{Format: "rbldnsd:dnset"})
	got := taken(t, "bulk.test\nads.test :2:own\n!press.test\n", lists.Settings{Format: "rbldnsd", Reason: "spam"})
	equal(t, got, []string{`domain bulk.test exact block "spam"`, `domain ads.test exact block "own"`, `domain press.test exact allow "spam"`})
}

func TestIP4set(t *testing.T) {
	rows{
		{"address", "198.51.100.23", "ip 198.51.100.23 exact block"},
		{"network", "198.51.100.0/25", "cidr 198.51.100.0/25 tree block"},
		{"prefix", "198.51", "cidr 198.51.0.0/16 tree block"},
		{"prefix with a length", "198.51/15", "cidr 198.50.0.0/15 tree block host-bits"},
		{"one octet with its length", "11/8", "cidr 11.0.0.0/8 tree block"},
		{"range by its last octet", "198.51.100.4-9", "cidr 198.51.100.4/30 tree block + cidr 198.51.100.8/31 tree block"},
		{"range", "198.51.100.4-198.51.100.9", "cidr 198.51.100.4/30 tree block + cidr 198.51.100.8/31 tree block"},
		{"range of prefixes is full to the end", "198.51.100-198.51.101", "cidr 198.51.100.0/23 tree block"},
		{"range of prefixes by its last octet", "198.51-52", "cidr 198.51.0.0/16 tree block + cidr 198.52.0.0/16 tree block"},
		{"range of one", "198.51.100.4-4", "ip 198.51.100.4 exact block"},
		{"host bits", "198.51.100.77/25", "cidr 198.51.100.0/25 tree block host-bits"},
		{"exception", "!198.51.100.23", "ip 198.51.100.23 exact allow"},
		{"value", "198.51.100.23 :2:see $", `ip 198.51.100.23 exact block "see 198.51.100.23"`},
		{"value without a blank", "198.51.100.0/25:2:see $", `cidr 198.51.100.0/25 tree block "see 198.51.100.0/25"`},
		{"comment without a blank", "198.51.100.23#x", "ip 198.51.100.23 exact block"},
		{"default", ":3:open relay\n198.51.100.4-5\n!198.51.100.5", `skip default-value + cidr 198.51.100.4/31 tree block "open relay" + ip 198.51.100.5 exact allow`},
		{"allowed range as a prefix", "$MAXRANGE4 /24\n198.51.100/24\n198.51", "skip directive + cidr 198.51.100.0/24 tree block + err too-broad"},
		{"allowed range as a number", "$maxrange4 4\n198.51.100.4-7\n198.51.100.4-8", "skip directive + cidr 198.51.100.4/30 tree block + err too-broad"},
		{"allowed range does not grow", "$MAXRANGE4 /24\n$MAXRANGE4 /16\n198.51", "skip directive + skip directive + err too-broad"},
		{"allowed range shrinks", "$MAXRANGE4 /16\n$MAXRANGE4 1\n198.51.100.0/31", "skip directive + skip directive + err too-broad"},
		{"exceptions have to keep it too", "$MAXRANGE4 /24\n!198.51", "skip directive + err too-broad"},
		{"allowed range of nothing", "$MAXRANGE4 0", "err syntax"},
		{"allowed range of too many bits", "$MAXRANGE4 /33", "err syntax"},
		{"all addresses allowed", "$MAXRANGE4 /0\n11/8", "skip directive + cidr 11.0.0.0/8 tree block"},
		{"wide network", "198.0.0.0/7", "err too-broad"},
		{"wide range", "11-12", "err too-broad"},
		{"one octet", "198", "err syntax"},
		{"sink", "0.0.0.0", "err syntax"},
		{"range backwards", "198.51.100.9-4", "err syntax"},
		{"range of two lengths", "198.51-198.51.100.4", "err syntax"},
		{"range with a length", "198.51.100.0-198.51.100.4/24", "err syntax"},
		{"leading zero", "198.51.100.023", "err syntax"},
		{"octet over 255", "198.51.256", "err syntax"},
		{"five octets", "198.51.100.4.5", "err syntax"},
		{"prefix too long", "198.51.100.0/33", "err syntax"},
		{"IPv6", "2001:db8::1", "err syntax"},
		{"name", "bulk.test", "err syntax"},
		{"exception of nothing", "! ", "err syntax"},
	}.run(t, lists.Settings{Format: "rbldnsd:ip4set"})
}

func TestCombined(t *testing.T) {
	const text = `$SOA 0 ns.test admin.test 0 1 2 3 4
$1 see http://x
198.51.100.7
$DATASET ip4set:proxies proxies @ # a comment
$2 local
:2:$1 $2
198.51.100.7
bulk.test
$DATASET dnset names
bulk.test $1 $2
.ads.test
$DATASET generic:common proxies @
:2:x
www A 127.0.0.8

# comment
$TTL 5
$DATASET
x.test
$dataset dnset @
$MAXRANGE4 4
last.test
$DATASET ip4set @
198.51.100/24
`
	want := []string{
		"skip directive", "skip directive", "err syntax", // before any dataset
		"skip directive", "skip directive", "skip default-value",
		`ip 198.51.100.7 exact block "see http://x local"`, "err syntax",
		"skip directive", `domain bulk.test exact block "see http://x $2"`, "domain ads.test tree block",
		"skip directive", "err syntax", "skip directive", "skip blank", "skip comment", "skip directive", // www is for visitors
		"err syntax", "err syntax",
		"skip directive", "skip directive", "domain last.test exact block",
		"skip directive", "err too-broad",
	}
	got, sum, err := items(t, text, lists.Settings{Format: "rbldnsd:combined"})
	if err != nil || sum.Format != "rbldnsd:combined" {
		t.Errorf("%+v, %v", sum, err)
	}
	equal(t, got, want)
}

func TestReasonOfTemplatesIsBounded(t *testing.T) {
	text := "$1 " + strings.Repeat("x", 60_000) + "\nbulk.test " + strings.Repeat("$1", 30_000) + "\n"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := taken(t, text, lists.Settings{Format: "rbldnsd"})
	runtime.ReadMemStats(&after)
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 8<<20 {
		t.Errorf("%d octets were allocated for a reason of 400", spent)
	}
	equal(t, got, []string{"skip directive", `domain bulk.test exact block "` + strings.Repeat("x", 400) + `"`})
}

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
	got := taken(t, "bulk.test CNAME .\npress.test CNAME rpz-passthru.\n", lists.Settings{Format: "rpz", Action: lists.Allow})
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

func TestDnsmasq(t *testing.T) {
	rows{
		{"a name of address covers all below", "address=/bulk.test/0.0.0.0", "domain bulk.test tree block"},
		{"several names", "address=/bulk.test/ads.test/::", "domain bulk.test tree block + domain ads.test tree block"},
		{"sink of this machine", "address=/bulk.test/127.0.0.1", "domain bulk.test tree block"},
		{"# is the null address", "address=/bulk.test/#", "domain bulk.test tree block"},
		{"nothing is no such domain", "address=/bulk.test/", "domain bulk.test tree block"},
		{"server without a server", "server=/bulk.test/", "domain bulk.test tree block"},
		{"local", "local=/bulk.test/", "domain bulk.test tree block"},
		{"server that is none", "server=/bulk.test/0.0.0.0", "domain bulk.test tree block"},
		{"blanks around =", "address = /bulk.test/#", "domain bulk.test tree block"},
		{"names below", "address=/*.bulk.test/#", "domain bulk.test sub block"},
		{"dnsmasq reads over a leading dot", "address=/.bulk.test/#", "domain bulk.test tree block"},
		{"comment behind", "address=/bulk.test/# # spam", "domain bulk.test tree block"},
		{"comment", "# address=/bulk.test/#", "skip comment"},
		{"other option", "cache-size=1000", "skip directive"},
		{"option without a value", "bogus-priv", "skip directive"},
		{"options that change where a name is asked", "rev-server=198.51.100.0/24,198.51.100.1", "skip directive"},
		{"files are not included", "conf-file=/etc/passwd", "skip directive"},
		{"server for all names", "server=198.51.100.1", "skip directive"},
		{"a real address", "address=/bulk.test/198.51.100.7", "err not-a-sink"},
		{"a server", "server=/bulk.test/198.51.100.7#53", "err not-a-sink"},
		{"a server of this machine answers", "server=/bulk.test/127.0.0.1#8600", "err not-a-sink"},
		{"# of server is the usual servers", "server=/bulk.test/#", "err not-a-sink"},
		{"every name", "address=/#/0.0.0.0", "err too-broad"},
		{"every name, without slashes", "address=0.0.0.0", "err too-broad"},
		{"names without a dot", "local=//", "err too-broad"},
		{"one empty name refuses the line", "address=/bulk.test//0.0.0.0", "err too-broad"},
		{"a lone dot", "address=/./0.0.0.0", "err too-broad"},
		{"a lone star", "address=/*/0.0.0.0", "err too-broad"},
		{"prefix of names", "address=/*bulk.test/#", "err unsupported"},
		{"one bad name refuses the line", "address=/bulk.test/bad..test/#", "err syntax"},
		{"sender as name", "address=/promo@bulk.test/#", "err syntax"},
		{"names that are not closed", "address=/bulk.test", "err syntax"},
		{"garbage behind the names", "address=/bulk.test/x", "err syntax"},
		{"no option", "bulk.test", "err syntax"},
		{"line of a hosts file", "0.0.0.0 bulk.test", "err syntax"},
		{"broken octets", "address=/b\xfclk.test/#", "err bad-utf8"},
		{"broken octets in another option", "txt-record=d\xe9sol\xe9", "skip directive"},
	}.run(t, lists.Settings{Format: "dnsmasq"})
	no := false
	rows{
		{"bare name", "address=/bulk.test/#", "domain bulk.test exact block"},
		{"names below stay so", "address=/*.bulk.test/#", "domain bulk.test sub block"},
	}.run(t, lists.Settings{Format: "dnsmasq", Subdomains: &no})
}

func TestUnbound(t *testing.T) {
	rows{
		{"refusing type", `local-zone: "bulk.test" always_nxdomain`, "domain bulk.test tree block"},
		{"trailing dot", `local-zone: "bulk.test." refuse`, "domain bulk.test tree block"},
		{"without quotes", "local-zone: bulk.test deny", "domain bulk.test tree block"},
		{"single quotes, no blank", "local-zone:'bulk.test' static", "domain bulk.test tree block"},
		{"redirect", `local-zone: "bulk.test" redirect`, "domain bulk.test tree block"},
		{"inform_deny", `local-zone: "bulk.test" inform_deny`, "domain bulk.test tree block"},
		{"type in quotes and capitals", `local-zone: "bulk.test" "Always_Null"`, "domain bulk.test tree block"},
		{"comment behind", `local-zone: "bulk.test" refuse # spam`, "domain bulk.test tree block"},
		{"clause on the same line", `server: local-zone: "bulk.test" refuse`, "domain bulk.test tree block"},
		{"data with a sink", `local-data: "bulk.test A 0.0.0.0"`, "domain bulk.test exact block"},
		{"data with TTL and class", `local-data: "bulk.test. 3600 IN AAAA ::1"`, "domain bulk.test exact block"},
		{"clause", "server:", "skip directive"},
		{"other option", "verbosity: 1", "skip directive"},
		{"files are not included", `include: "/etc/passwd"`, "skip directive"},
		{"transparent", `local-zone: "bulk.test" transparent`, "skip directive"},
		{"always_transparent", `local-zone: "bulk.test" always_transparent`, "skip directive"},
		{"redirect that is logged", `local-zone: "bulk.test" inform_redirect`, "domain bulk.test tree block"},
		{"nodefault", `local-zone: "10.in-addr.arpa" nodefault`, "skip directive"},
		{"data of another type", `local-data: 'bulk.test TXT "x"'`, "skip directive"},
		{"reverse data", `local-data-ptr: "198.51.100.7 bulk.test"`, "skip directive"},
		{"data with a real address", `local-data: "bulk.test A 198.51.100.7"`, "err not-a-sink"},
		{"the root", `local-zone: "." refuse`, "err too-broad"},
		{"unknown type", `local-zone: "bulk.test" refused`, "err syntax"},
		{"no type", `local-zone: "bulk.test"`, "err syntax"},
		{"no name", "local-zone:", "err syntax"},
		{"open quote", `local-zone: "bulk.test refuse`, "err syntax"},
		{"more behind the type", `local-zone: "bulk.test" refuse deny`, "err syntax"},
		{"data without quotes", "local-data: bulk.test A 0.0.0.0", "err syntax"},
		{"data without an address", `local-data: "bulk.test A"`, "err syntax"},
		{"data without a type", `local-data: "bulk.test"`, "err syntax"},
		{"bad name", `local-zone: "bulk..test" refuse`, "err syntax"},
		{"name with *", `local-zone: "*.bulk.test" refuse`, "err unsupported"},
		{"no option", "bulk.test", "err syntax"},
		{"an address is no option", "2001:db8::1", "err syntax"},
		{"broken octets", "local-zone: \"b\xfclk.test\" refuse", "err bad-utf8"},
	}.run(t, lists.Settings{Format: "unbound"})
}
