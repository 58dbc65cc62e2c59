package migration_test

import (
	"fmt"
	"strings"
	"testing"

	"blockd/cmd/blockd/internal/migration"
	"blockd/internal/testkit"
)

// cases is the folder of configurations that are imported.
func cases(t *testing.T) string { return testkit.Root(t) + "/testdata/migration/" }

// outcomes are those of a result by entry, each with what is said of it.
func outcomes(r *migration.Result) map[string]string {
	said := map[string]string{}
	for _, f := range r.Findings {
		said[strings.Join(strings.Fields(f.Text), " ")] = strings.TrimSuffix(f.Outcome.String()+": "+f.Now, ": ")
	}
	return said
}

// expect compares what is said of some entries by how it begins.
func expect(t *testing.T, r *migration.Result, want map[string]string) {
	t.Helper()
	said := outcomes(r)
	for text, begins := range want {
		if have, ok := said[text]; !ok || !strings.HasPrefix(have, begins) {
			t.Errorf("of %q the report says %q (there: %t), want %q", text, have, ok, begins)
		}
	}
}

func TestRspamdRules(t *testing.T) {
	r := testkit.Value(migration.ReadRecorded(t, cases(t)+"rspamd/local.d/multimap.conf"))(t)
	expect(t, r, map[string]string{
		"promo@bulk.example":                "other words: at RCPT",
		"bulk2.example":                     "other words: at RCPT",
		"offers":                            "other words: at RCPT",
		"mail.other.example":                "narrower: logged, not scored", // the score's; of the tld map it is dead
		"https://lists.example/domains.map": "not carried over: blockd reads its keys",
		"/^win[0-9]+@/i":                    "other words: at RCPT",
		"/^(?=x)y/":                         "not carried over: unsupported pattern",
		"/lottery/":                         "wider: in any case",
		"192.0.2.1":                         "the same",
		"mail.example":                      "not carried over: no address or network",
		"SUBJECTS":                          "not carried over: blockd has no lists for the type",
		"LOVED":                             "not carried over: a score that speaks for a mail",
	})
	config := string(r.Config("lists"))
	testkit.Has(t, config, `name = "sender_block"`, `mode = "shadow"`, `on_match = "tempfail"`, "patterns = true")
}

func TestSpamAssassinDirectives(t *testing.T) {
	r := testkit.Value(migration.SpamAssassin(t.Context(), cases(t)+"spamassassin/local.cf", migration.Options{}))(t)
	const envelope = "narrower: by the envelope sender and From:"
	expect(t, r, map[string]string{
		"blocklist_from promo@bulk.example":                            "not carried over: taken back by line 14",
		"blocklist_from *@spam.example":                                envelope,
		"blacklist_from *.below.example":                               envelope,
		"blacklist_from win*@lottery.example":                          envelope,
		"welcomelist_from news@shop.example":                           envelope,
		"whitelist_from news@shop.example":                             "not carried over: not if (version >= 4.000000) does not hold",
		"blocklist_from forged@partner.example":                        "wider: also without the condition of line 10",
		"welcomelist_from_dkim boss@partner.example":                   "wider: also without the condition of line 10",
		"welcomelist_from_rcvd *@partner.example mail.partner.example": "not carried over: an exception for senders whose mail comes from a named server",
		"trusted_networks 192.0.2/24":                                  "not carried over",
		"all_spam_to spamtrap@here.example":                            "the same",
		"blocklist_from *@more.example":                                envelope,
	})
	testkit.Got(len(r.Policies), len(testkit.At(r.Policies, 0).Lists))(t, r.Policies, 1, 0)
}

func TestPostfixExample(t *testing.T) {
	r := testkit.Value(migration.ReadRecorded(t, cases(t)+"postfix/main.cf"))(t)
	expect(t, r, map[string]string{
		"permit_mynetworks":         "the same",
		"permit_sasl_authenticated": "the same",
		"bulk.example REJECT bulk mail, see https://here.example/no-bulk": "the same",
		"friend@bulk.example OK":                             "wider: here it frees from",
		".shop.example REJECT":                               "not carried over: never matched there",
		"198.51.100.7 REJECT":                                "not carried over: never matched there",
		"<> REJECT no bounces":                               "not carried over: bounces always pass",
		"trap@here.example DISCARD":                          "narrower: dropped at a milter door alone; the policy service and the SMTP filter refuse it",
		"hold@odd.example HOLD":                              "narrower: with an extension behind the recipient_delimiter it is let pass",
		"dear@partner.example REJECT left the company":       "not carried over: never reached there",
		"zip REJECT":                                         "the same: by allow_public_suffix",
		"maybe.example REJECT":                               "the same",
		"here.example = REJECT we do not write from outside": "the same: by force",
		"dynamic.isp.example REJECT":                         "not carried over: the client's name",
		"203.0.114.0/24 REJECT":                              "not carried over: never matched there: a network with a slash",
		"203.0.113.1/24 REJECT":                              "not carried over: Postfix passes over it",
		"postmaster@ OK":                                     "the same",
		"reject_rbl_client zen.spamhaus.org":                 "not carried over: blockd asks no DNS lists",
	})
	testkit.Got(len(r.Policies), strings.Join(testkit.At(r.Policies, 0).Recipients, " "))(t, fmt.Sprintf("policies = %v", r.Policies), 1, "postmaster@ spamtrap@here.example")
	for _, name := range r.Policies[0].Lists {
		if name == "newsletters" {
			t.Error("newsletters is asked behind the exceptions for recipients, and counts for them")
		}
	}
}

// Hostile and broken configurations give an error or a note with the line, never a
// guess.
func TestFaultsNameTheirLine(t *testing.T) {
	for _, tt := range []struct{ name, file, text, want string }{
		{"a loop of parameters", "main.cf", "a = $b\nb = $a\nsmtpd_sender_restrictions = $a\n", `postconf: warning: unreasonable macro call nesting: "b"`},
		{"an open bracket", "main.cf", "x = 1\nsmtpd_sender_restrictions = ${x\n", `postconf: warning: truncated macro reference: "${x"`},
		{"an open brace", "main.cf", "smtpd_sender_restrictions = check_sender_access inline:{ a\n", "main.cf:1: smtpd_sender_restrictions: a brace that is not closed"},
		{"a class in itself", "main.cf", "smtpd_restriction_classes = c\nc = c\nsmtpd_sender_restrictions = c\n", "restriction classes name one another"},
		{"a NUL", "main.cf", "a = 1\nb = \x00\n", "main.cf:2: a NUL"},
		{"a line without a value", "main.cf", "x = 1\nsmtpd_sender_restrictions\n", `postconf: fatal: ./main.cf, line 2: missing '=' after attribute name`},
		{"an open section", "multimap.conf", "A {\n type = \"from\";\n", "multimap.conf:3 unmatched open brace at 1"},
		{"an open quote", "multimap.conf", "A {\n type = \"from;\n}\n", "multimap.conf: line: 2, column: 14 - 'unexpected newline'"},
		{"an open comment", "multimap.conf", "\n/* A\n", "multimap.conf: at the end of chunk: unfinished multiline comment"},
		{"sections without end", "multimap.conf", strings.Repeat("a {", 100), "unmatched open brace at 1"},
		{"an include of itself", "local.cf", "include local.cf\n", "local.cf:1: files include one another more than 10 deep"},
		{"conditions without end", "local.cf", strings.Repeat("ifplugin x\n", 100), "local.cf:65: conditions more than 64 deep"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := testkit.File(t, tt.file, tt.text)
			testkit.Got(migration.Read(t, path))(t, "error", "…", "…"+tt.want+"…")
		})
	}
}
