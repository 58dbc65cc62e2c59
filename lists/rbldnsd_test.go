package lists_test

import (
	"runtime"
	"strings"
	"testing"

	"blockd/internal/testkit"
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
	got, _, err := items(t, "bulk.test\nads.test :2:own\n!press.test\n", lists.Settings{Format: "rbldnsd", Reason: "spam"})
	testkit.Must(t, err)
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
		"err unsupported", "err unsupported", "err unsupported", "skip blank", "skip comment", "skip directive",
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
	got, _, err := items(t, text, lists.Settings{Format: "rbldnsd"})
	testkit.Must(t, err)
	runtime.ReadMemStats(&after)
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 8<<20 {
		t.Errorf("%d octets were allocated for a reason of 400", spent)
	}
	equal(t, got, []string{"skip directive", `domain bulk.test exact block "` + strings.Repeat("x", 400) + `"`})
}
