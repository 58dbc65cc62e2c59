package lists_test

import (
	"fmt"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/lists"
)

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
	got, _, err := items(t, "welcomelist_from a@bulk.test\nblocklist_from b@bulk.test\n", lists.Settings{Format: "spamassassin", Action: lists.Allow})
	testkit.Must(t, err)
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
		if sum, err := read(); err != nil || sum.Errors != 0 {
			t.Errorf("%s: %+v, %v", name, sum, err)
		}
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
