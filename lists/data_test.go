package lists_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/lists"
	"blockd/mail/addr"
)

// data returns the path of a real list, and skips the test where there are none.
func data(t testing.TB, name string) string {
	t.Helper()
	return testkit.Shared(t, filepath.Join("lists", name))
}

// keysOf reads a list and returns its keys, without scopes, and its summary.
func keysOf(t testing.TB, path, format string) (map[string]bool, lists.Summary) {
	t.Helper()
	keys := map[string]bool{}
	sum, err := lists.ReadFile(t.Context(), path, lists.Settings{Format: format}, func(it *lists.Item) error {
		if it.Kind != lists.Skip && it.Kind != lists.Err {
			keys[strings.Clone(it.Name())] = true
		}
		return nil
	})
	testkit.Must(t, err)
	return keys, sum
}

// TestRealLists holds each real list against the counts that were made of it
// without this package.
func TestRealLists(t *testing.T) {
	race.Skip(t)
	for _, tt := range []struct {
		name, format, auto    string // auto: what a guess says; "" = ambiguous
		entries, keys, errors int
	}{
		{"disposable_email_blocklist.conf", "plain", "plain", 8335, 8335, 0},
		{"disposable-index.json.gz", "json", "json", 121570, 121558, 0},
		{"disposable-wildcard.json", "json", "json", 399, 399, 0},
		{"free-email-domains.json", "json", "json", 14125, 14125, 0},
		{"badd-boyz.hosts", "hosts", "hosts", 1384, 1384, 0}, // and one name of the machine itself, twice
		{"badd-boyz.domains", "plain", "plain", 1384, 1384, 0},
		{"scam.hosts", "hosts", "hosts", 2214, 2214, 0},
		{"scam.adblock.txt", "adblock", "adblock", 953, 953, 6}, // 959 rules, 6 of them with "*"
		{"blp-scam.hosts", "hosts", "hosts", 8527, 8527, 0},
		{"ransomware.adblock.txt", "adblock", "adblock", 1904, 1904, 0},
		{"phishing.txt.gz", "plain", "plain", 190215, 190215, 0},
		{"malware.ip.gz", "plain", "plain", 20907, 20907, 0},
		{"sw-malware.txt.gz", "plain", "plain", 43726, 43726, 0},
		{"sw-scam.txt", "plain", "plain", 7307, 7307, 0},
		{"sw-dynamic.txt", "plain", "plain", 1462, 1462, 0},
		{"referrer-spammers.txt", "plain", "plain", 2347, 2347, 0},
		{"ipsum-level4.txt", "plain", "plain", 5354, 5354, 0},
		{"cidr-mixed.txt", "plain", "plain", 37827, 37827, 0},
		{"spam-senders.txt", "plain", "plain", 940, 940, 0},
		{"ham-senders.txt", "plain", "plain", 729, 729, 0},
		{"union-domains.txt.gz", "plain", "plain", 1006826, 1006814, 0}, // 12 names also in punycode
		{"converted/sender_access", "postfix", "postfix", 2214, 2214, 0},
		{"converted/spam-senders.crlf.csv", "csv", "", 940, 940, 0},
		{"ipsum-scored.txt.gz", "csv", "", 120430, 120430, 0}, // counts beside addresses
		{"ransomware.dnsmasq.conf", "dnsmasq", "dnsmasq", 1904, 1904, 0},
		{"converted/access.sendmail", "sendmail", "sendmail", 2214, 2214, 0},
		{"converted/scam.unbound.conf", "unbound", "unbound", 2214, 2214, 0},
		{"converted/scam.dnset", "rbldnsd", "rbldnsd", 8527, 8527, 0},
		{"converted/blocklist_from.cf", "spamassassin", "spamassassin", 14614, 7307, 0}, // each name, and those below it
		{"converted/scam.rpz.zone", "rpz", "rpz", 14614, 7307, 0},
		{"converted/spam-senders.exim-lsearch", "lsearch", "", 940, 940, 0},
		{"spamassassin-freemail_domains.cf", "spamassassin", "spamassassin", 0, 0, 0}, // 2,388 mailbox providers: no list
		{"rspamd/dmarc_whitelist.inc", "rspamd", "", 788, 787, 0},
		{"rspamd/redirectors.inc", "rspamd", "plain", 1197, 1197, 0}, // nothing but names
		{"rspamd/maillist.inc", "rspamd", "plain", 176, 176, 0},
		{"rspamd/mid.inc", "rspamd", "", 42, 42, 0}, // regular expressions are the values
		{"rspamd/suspicious_tlds.inc", "rspamd", "", 5, 5, 0},
		{"rspamd/test-domains.list", "rspamd", "", 4, 4, 0},
		{"rspamd/test-ip.list", "rspamd", "plain", 3, 3, 0},
		{"rspamd/test-multiple.list", "rspamd", "", 7, 7, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := data(t, tt.name)
			keys, sum := keysOf(t, path, tt.format)
			if sum.Entries != tt.entries || len(keys) != tt.keys || sum.Errors != tt.errors && tt.name != "ipsum-scored.txt.gz" {
				t.Errorf("%+v, %d keys; want %d entries, %d keys, %d errors", sum, len(keys), tt.entries, tt.keys, tt.errors)
			}
			if tt.auto == "" {
				testkit.Equal(t, "guessed: refused as", refused(t, path, lists.Settings{}), lists.Ambiguous)
			} else if got, guessed := keysOf(t, path, "auto"); guessed.Format != tt.auto || !maps.Equal(got, keys) {
				t.Errorf("guessed: %+v, and other keys", guessed)
			}
		})
	}
}

// TestSameNamesInOtherSyntax: a list and its twin give the same keys.
func TestSameNamesInOtherSyntax(t *testing.T) {
	for _, tt := range [][4]string{
		{"badd-boyz.hosts", "hosts", "badd-boyz.domains", "plain"},
		{"scam.hosts", "hosts", "converted/sender_access", "postfix"},
		{"ransomware.adblock.txt", "adblock", "ransomware.dnsmasq.conf", "dnsmasq"},
		{"scam.hosts", "hosts", "converted/access.sendmail", "sendmail"},
		{"scam.hosts", "hosts", "converted/scam.unbound.conf", "unbound"},
		{"blp-scam.hosts", "hosts", "converted/scam.dnset", "rbldnsd"},
		{"sw-scam.txt", "plain", "converted/blocklist_from.cf", "spamassassin"},
		{"sw-scam.txt", "plain", "converted/scam.rpz.zone", "rpz"},
		{"spam-senders.txt", "plain", "converted/spam-senders.exim-lsearch", "lsearch"},
		{"spam-senders.txt", "plain", "converted/spam-senders.crlf.csv", "csv"},
		{"spam-senders.txt", "plain", "converted/spam-senders.crlf.csv", "csv:1"},
		{"spam-senders.txt", "plain", "converted/spam-senders.crlf.csv", "csv:address"},
	} {
		a, _ := keysOf(t, data(t, tt[0]), tt[1])
		b, _ := keysOf(t, data(t, tt[2]), tt[3])
		if !maps.Equal(a, b) {
			t.Errorf("%s and %s: %d and %d keys, or others", tt[0], tt[2], len(a), len(b))
		}
	}
}

// TestRspamdMapsThatHoldUnsupportedKeys: patterns are refused and said.
func TestRspamdMapsThatHoldUnsupportedKeys(t *testing.T) {
	for _, tt := range []struct {
		name            string
		entries, errors int
	}{
		{"rspamd/spf_dkim_whitelist.inc", 237, 0},
		{"rspamd/surbl-whitelist.inc", 828, 0},
		{"rspamd/test-glob.list", 1, 1},
		{"rspamd/test-regexp.list", 0, 5},
		{"rspamd/test-utf.list", 0, 1},
	} {
		sum, err := lists.ReadFile(t.Context(), data(t, tt.name), lists.Settings{Format: "rspamd"}, func(it *lists.Item) error {
			if it.Kind == lists.Err && it.Class != lists.Unsupported {
				t.Errorf("%s: line %d is %s", tt.name, it.Line, it.Class)
			}
			return nil
		})
		if tt.entries == 0 { // nor is it read as something else
			if got := refused(t, data(t, tt.name), lists.Settings{}); got != lists.Ambiguous {
				t.Errorf("%s, guessed: refused as %s", tt.name, got)
			}
		}
		if sum.Entries != tt.entries || sum.Errors != tt.errors || (err != nil) != (tt.entries == 0) {
			t.Errorf("%s: %+v, %v", tt.name, sum, err)
		}
	}
}

// shipped are the lists of testdata/lists, with the entries that its README states.
var shipped = []struct {
	name, format string
	entries      int
}{
	{"example.txt", "plain", 9},
	{"spam-senders.txt", "plain", 940},
	{"disposable_email_blocklist.conf", "plain", 8335},
	{"sender_access", "postfix", 2214},
}

func TestShippedLists(t *testing.T) {
	readme := testkit.Read(t, testkit.Root(t)+"/testdata/lists/README.md")
	for _, tt := range shipped {
		sum, err := lists.ReadFile(t.Context(), filepath.Join(testkit.Root(t), "testdata/lists", tt.name),
			lists.Settings{Format: tt.format, Guard: newGuard(t, lists.DefaultGuard())}, none)
		if err != nil || sum.Entries != tt.entries || sum.Errors != 0 {
			t.Errorf("%s: %+v, %v, want %d entries", tt.name, sum, err, tt.entries)
		}
		testkit.Has(t, string(readme), "| `"+tt.name+"` | "+tt.format+" | ")
	}
	got := taken(t, string(testkit.Read(t, testkit.Root(t)+"/testdata/lists/example.txt")), lists.Settings{Format: "plain"})
	got = strings.Split(strings.ReplaceAll(strings.Join(got, "\n"), "skip comment\n", ""), "\n")
	equal(t, got, []string{
		"skip blank",
		"addr spammer@bulk.example exact block",
		`addr "odd one"@bulk.example exact block`,
		"addr prize@bulk.example exact block",
		"skip blank",
		"domain junk.example tree block",
		"addr press@junk.example exact allow",
		"skip blank",
		"domain users.example sub block",
		"domain spam.example exact block",
		"addr win-a-prize@ local block",
		"domain xn--bcher-kva.example tree block",
	})
}

// TestShippedListsMeetNoHam: none of the lists that README.md recommends as they
// are covers a sender of legitimate mail.
func TestShippedListsMeetNoHam(t *testing.T) {
	ham := testkit.Value(os.Open(data(t, "ham-senders.txt")))(t)
	defer ham.Close()
	for _, tt := range shipped {
		keys, _ := keysOf(t, filepath.Join(testkit.Root(t), "testdata/lists", tt.name), tt.format)
		testkit.Value(ham.Seek(0, io.SeekStart))(t)
		met := 0
		for lines := bufio.NewScanner(ham); lines.Scan(); {
			a := testkit.Value(addr.Parse(lines.Text()))(t)
			for _, k := range a.Keys(nil) {
				if keys[k.Text] {
					met++
					break
				}
			}
		}
		want := 0
		if tt.name == "disposable_email_blocklist.conf" {
			want = 3 // which README.md says
		}
		testkit.Equal(t, fmt.Sprintf("%s covers: senders of ham", tt.name), met, want)
	}
}

// TestScoresOfARealList: who stands on four lists or more is what the publisher
// puts into a list of its own.
func TestScoresOfARealList(t *testing.T) {
	scored, _ := keysOf(t, data(t, "ipsum-scored.txt.gz"), "csv:1,2>=4")
	if level, _ := keysOf(t, data(t, "ipsum-level4.txt"), "plain"); !maps.Equal(scored, level) || len(level) != 5354 {
		t.Errorf("%d addresses of four lists or more, the publisher has %d", len(scored), len(level))
	}
}

// madeAddresses writes n addresses of 37 octets in the mean, as lists of senders have them.
func madeAddresses(tb testing.TB, n int) string {
	tb.Helper()
	var text bytes.Buffer
	rng := rand.New(rand.NewPCG(1, 2))
	for range n {
		fmt.Fprintf(&text, "%s%s.%s%d@%s%s.%s\n", syllables(rng, 2), syllables(rng, 1), syllables(rng, 2), rng.IntN(1e5),
			syllables(rng, 3), []string{"", "-in"}[rng.IntN(2)], []string{"com", "example", "info", "net", "de"}[rng.IntN(5)])
	}
	return testkit.File(tb, "list.txt", text.Bytes())
}

func syllables(rng *rand.Rand, n int) (text string) {
	for range n {
		text += []string{"el", "mon", "rod", "kater", "an", "ria", "gop", "in", "benz", "la"}[rng.IntN(10)]
	}
	return text
}

// BenchmarkReadBlocks reads a million made-up addresses, and a million real names. It reports
// the time a line, on the clock and of the cores.
func BenchmarkReadBlocks(b *testing.B) {
	s := lists.Settings{Format: "plain", Guard: newGuard(b, lists.DefaultGuard())}
	for name, path := range map[string]string{"addresses": madeAddresses(b, 1_000_000), "domains": data(b, "union-domains.txt.gz")} {
		for _, workers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%d", name, workers), func(b *testing.B) {
				b.ReportAllocs()
				lines, cpu := 0, testkit.CPUTime(b)
				for b.Loop() {
					sum := testkit.Value(lists.ReadBlocks(b.Context(), path, s, workers, func(int, *lists.Item) error { return nil }))(b)
					lines += sum.Lines
				}
				b.ReportMetric(float64(testkit.CPUTime(b)-cpu)/float64(lines), "cpu-ns/line")
				b.ReportMetric(float64(b.Elapsed())/float64(lines), "ns/line")
			})
		}
	}
}

// TestUnionUnderGuard reads a million real names as a server does: what is refused is a public suffix or protected, and nothing else is.
func TestUnionUnderGuard(t *testing.T) {
	race.Skip(t)
	classes := map[lists.Class]int{}
	sum := testkit.Value(lists.ReadFile(t.Context(), data(t, "union-domains.txt.gz"), lists.Settings{Format: "plain", Guard: newGuard(t, lists.DefaultGuard())}, func(it *lists.Item) error {
		if it.Kind == lists.Err {
			classes[it.Class]++
		}
		return nil
	}))(t)
	testkit.Equal(t, "entries and errors", sum.Entries+sum.Errors, 1_006_826)
	testkit.Equal(t, "errors", sum.Errors, classes[lists.PublicSuffix]+classes[lists.Protected])
	if classes[lists.PublicSuffix] == 0 || sum.Errors > 1000 {
		t.Errorf("refused: %v", classes)
	}
}
