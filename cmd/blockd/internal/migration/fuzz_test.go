package migration_test

import (
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/internal/migration"
	"blockd/internal/testkit"
)

// FuzzPostconf: nothing that postconf could say, and no main.cf beside it, crashes or hangs.
func FuzzPostconf(f *testing.F) {
	f.Add("a = $b\n", "smtp inet n - y - - smtpd\nsmtp/inet/mynetworks = 192.0.2.0/24\n")
	f.Add("smtpd_sender_restrictions =\n c\n y\n", "smtpd_restriction_classes = c\nc = c permit_mynetworks\nsmtpd_sender_restrictions = c y\n")
	f.Add("", "smtpd_sender_restrictions = check_sender_access { inline:{ {a@b.test = REJECT x} }, y }\n")
	f.Fuzz(func(t *testing.T, main, says string) {
		path := testkit.File(t, "main.cf", main)
		testkit.Write(t, filepath.Join(filepath.Dir(path), "master.cf"), main)
		r, err := migration.ReadSaid(t.Context(), path, says)
		checkResult(t, r, err)
	})
}

// FuzzConfigdump: nothing that rspamadm could say crashes or hangs.
func FuzzConfigdump(f *testing.F) {
	f.Add("A {\n}\n", `{"A": {"type": "from", "action": "reject", "map": ["x", "https://lists.example/y", {"z": 1}], "score": 1.5}}`)
	f.Add("A {}\nA {}\n", `{"A": [{"type": "ip"}, {"map": true, "type": ["from", null]}], "multimap": {"multimap": {"B": {}}}}`)
	f.Fuzz(func(t *testing.T, text, says string) {
		r, err := migration.ReadSaid(t.Context(), testkit.File(t, "multimap.conf", text), says)
		checkResult(t, r, err)
	})
}

// FuzzLocalCF: whatever a local.cf holds, what comes out of it is lists that read back
// as what was meant, or an error.
func FuzzLocalCF(f *testing.F) {
	f.Add("blocklist_from a@b.test *@c.test *.d.test x*@e.test\nunblocklist_from a@b.test\n")
	f.Add("if (version >= 4)\nwelcomelist_from a@b.test\nelse\nblacklist_from #\nendif\nall_spam_to x@y.test\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := testkit.File(t, "local.cf", strings.ReplaceAll(text, "include", "xinclude"))
		r, err := migration.SpamAssassin(t.Context(), path, migration.Options{})
		checkResult(t, r, err)
	})
}

// FuzzTables: the same for the tables of Postfix.
func FuzzTables(f *testing.F) {
	f.Add("bulk.test REJECT\na@b.test OK\n198.51.100 DUNNO\n<> REJECT\n.x.test 450 later\n")
	f.Add("198.51.100.0/24 REJECT\n!203.0.113.0/24 OK\nif 192.0.2.0/24\n192.0.2.1 OK\nendif\n")
	f.Add("/^promo[0-9]+@/i REJECT $1\nif /x/\n/y/ OK\nendif\n!/z/ DUNNO\n/[\\w]+@bulk/ REJECT\n")
	f.Fuzz(func(t *testing.T, text string) {
		const main = "myhostname = mx.here.example\nrecipient_delimiter = +\nsmtpd_sender_restrictions = check_sender_access hash:t check_client_access cidr:t check_client_access hash:t " +
			"check_sender_access pcre:t check_sender_access regexp:t check_recipient_access hash:t check_sender_access hash:t\n"
		path := testkit.File(t, "main.cf", main)
		testkit.Write(t, filepath.Join(filepath.Dir(path), "t"), text)
		r, err := migration.ReadSaid(t.Context(), path, main)
		checkResult(t, r, err)
	})
}

// checkResult: every finding that is carried over has a list, and no text of the
// result has a line end where none belongs.
func checkResult(t *testing.T, r *migration.Result, err error) {
	t.Helper()
	if err != nil {
		return
	}
	for _, f := range r.Findings {
		if strings.ContainsAny(f.Text+f.Now+f.List, "\n\r\x00") {
			t.Errorf("a control in %q, %q", f.Text, f.Now)
		}
		if f.Outcome == migration.Lost && (f.List != "" || f.Now == "") || f.Outcome != migration.NotAsked && f.Outcome < migration.Lost {
			t.Errorf("%s: %s, list %q, %q", f.Place, f.Outcome, f.List, f.Now)
		}
	}
	for m := range r.Mails {
		if m.About == nil || strings.ContainsAny(m.String(), "\n\x00") {
			t.Errorf("the mail %q", m.String())
		}
	}
	if config := string(r.Config("lists")); strings.Count(config, "[[list]]") != len(r.Lists) {
		t.Errorf("%d lists in\n%s", len(r.Lists), config)
	}
}
