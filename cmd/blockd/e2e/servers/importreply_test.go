package servers

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestImportAnswersAsPostfix: a Postfix that asks its own table, and one that asks blockd
// with what `blockd import` made of that table, answer the same RCPT. Where the report says
// "the same", it is the same to the octet.
func TestImportAnswersAsPostfix(t *testing.T) {
	postmap := testkit.Peer(t, "postmap")
	table := `
bare.example        REJECT
text.example        REJECT bulk mail, see https://here.example/no-bulk
status.example      REJECT 5.7.9 no bulk mail
statusonly.example  REJECT 5.7.9
looksso.example     REJECT 550 roses
percent.example     REJECT 100% spam, %sender %% $1
code.example        550 5.7.9 no bulk mail
codeonly.example    551 we do not want it
classes.example     554 4.7.9 which class?
nodetail.example    554 5.7.9
permanent.example   552 5.1.1 no such sender
later.example       450 4.7.2 come back later
laterodd.example    451 5.7.2 come back later
laterplain.example  450 come back later
lateronly.example   450
latercode.example   450 4.7.1
coded.example       450 4.7.1 100% %sender $1 %ref %contact
dollar.example      550 5.7.1 pay $5, ${1} and $(x)
greek.example       554 5.7.1 όχι
toolong.example     550 5.7.1 ` + strings.Repeat("a text of more than one line has ", 17) + `
reject.example      DEFER_IF_REJECT not now
greylist.example    DEFER
defertext.example   DEFER the disk is full
permit.example      DEFER_IF_PERMIT
permittext.example  DEFER_IF_PERMIT 4.7.3 come back
gone.example        521 5.7.1 go away
full.example        421 4.7.1 too many of you
blanks.example      REJECT   two  blanks	and a tab
utf8.example        REJECT kein Bedarf für Müll
long.example        REJECT ` + "long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long long" + `
held.example        HOLD
marked.example      PREPEND X-From-Shop: yes
fine.example        OK
x+y@text.example    REJECT a mailbox
local@              REJECT local-parts
`
	for _, setting := range []string{"", "access_map_reject_code = 550\naccess_map_defer_code = 451\n", "soft_bounce = yes\n"} {
		t.Run(strings.TrimSpace(setting), func(t *testing.T) {
			const patterns = "/@(pat|odd)\\.example$/ REJECT from a pattern\n/^promo.*@/ REJECT from a pattern\n"
			there := e2e.ConfigurePostfix(t, e2e.FreeAddress(t))
			testkit.Write(t, filepath.Join(there.Config, "senders"), table)
			testkit.Write(t, filepath.Join(there.Config, "patterns"), patterns)
			there.Add(t, "main.cf", "smtpd_sender_restrictions = check_sender_access hash:$config_directory/senders, check_sender_access regexp:$config_directory/patterns\n"+setting)
			e2e.Ran(t, exec.Command(postmap, "-c", there.Config, "hash:"+filepath.Join(there.Config, "senders")))
			there.Start(t)

			out := t.TempDir()
			told := map[string]importLine{}
			for _, l := range runImport(t, filepath.Join(there.Config, "main.cf"), out).lines {
				key, _, _ := strings.Cut(l.Text, " ")
				told[key] = l
			}
			policy := e2e.FreeAddress(t)
			serveImport(t, out, policy)
			here := e2e.ConfigurePostfix(t, e2e.FreeAddress(t))
			here.Add(t, "main.cf", "smtpd_sender_restrictions = check_policy_service inet:"+policy+"\n"+setting)
			here.Start(t)

			same := 0
			ask := func(key, sender string) {
				reply := func(address string) string { // which may be the last of its session
					c := e2e.DialSMTP(t, address)
					defer c.Conn.Close()
					c.Command("MAIL FROM:<%s>", sender)
					return c.Command("RCPT TO:<you@here.example>")
				}
				was, is := reply(there.SMTP), reply(here.SMTP)
				line, known := told[key]
				switch {
				case !known:
					t.Errorf("%s: the report has no such line", key)
				case line.Outcome == "the same":
					if same++; was != is {
						t.Errorf("%s: said to be the same\nPostfix %q\nblockd  %q\nmeant   %s", line.Text, was, is, line.Text)
					}
				default:
					t.Logf("%s: %s, %s\nPostfix %q\nblockd  %q", line.Text, line.Outcome, line.Now, was, is)
				}
				if was[0] != is[0] {
					t.Errorf("%s: Postfix %q, blockd %q", key, was, is)
				}
			}
			for line := range strings.Lines(strings.TrimSpace(table)) {
				key := strings.Fields(line)[0]
				switch {
				case strings.HasSuffix(key, "@"):
					ask(key, key+"there.example")
				case strings.Contains(key, "@"):
					ask(key, key)
				default:
					ask(key, "a@"+key)
				}
			}
			ask("/@(pat|odd)\\.example$/", "a@pat.example")
			ask("/^promo.*@/", "promo9@there.example")
			if same < 20 {
				t.Errorf("%d entries are said to be the same; nothing is shown", same)
			}
			t.Log(fmt.Sprint(same, " replies are the same to the octet"))
		})
	}
}

// TestImportAnswersClientsAndRecipients is TestImportAnswersAsPostfix for the tables of clients and of recipients.
func TestImportAnswersClientsAndRecipients(t *testing.T) {
	postmap := testkit.Peer(t, "postmap")
	clients := map[string]string{"192.0.2.1": "REJECT", "192.0.2.2": "REJECT no mail from dial-up lines, %ref $1", "192.0.2.3": "450 4.7.2 not yet",
		"192.0.2.4": "554 gone for good", "192.0.2.5": "DEFER", "192.0.2.6": "521 5.7.1 go away", "192.0.2.7": "REJECT kein Bedarf für Müll", "192.0.2.8": "550 5.7.9 no"}
	recipients := map[string]string{"a@here.example": "REJECT", "b@here.example": "550 5.1.1 moved to b@new.example", "c@here.example": "450 4.2.1 on holiday, 100% sure",
		"d@here.example": "DEFER", "e@here.example": "551 has left"}
	lines := func(table map[string]string) (text string) {
		for key, value := range table {
			text += key + " " + value + "\n"
		}
		return text
	}
	there := e2e.ConfigurePostfix(t, e2e.FreeAddress(t))
	for name, table := range map[string]map[string]string{"clients": clients, "recipients": recipients} {
		path := filepath.Join(there.Config, name)
		testkit.Write(t, path, lines(table))
		e2e.Ran(t, exec.Command(postmap, "-c", there.Config, "hash:"+path))
	}
	const common = "smtpd_authorized_xclient_hosts = 127.0.0.0/8\n"
	there.Add(t, "main.cf", "smtpd_recipient_restrictions = check_client_access hash:$config_directory/clients, check_recipient_access hash:$config_directory/recipients, permit_mynetworks, reject_unauth_destination\n"+common)
	there.Start(t)
	out := t.TempDir()
	told := map[string]importLine{}
	for _, l := range runImport(t, filepath.Join(there.Config, "main.cf"), out).lines {
		key, _, _ := strings.Cut(l.Text, " ")
		told[key] = l
	}
	policy := e2e.FreeAddress(t)
	serveImport(t, out, policy)
	here := e2e.ConfigurePostfix(t, e2e.FreeAddress(t))
	here.Add(t, "main.cf", "smtpd_recipient_restrictions = check_policy_service inet:"+policy+", permit_mynetworks, reject_unauth_destination\n"+common)
	here.Start(t)
	ask := func(key, client, recipient string) {
		reply := func(address string) string {
			c := asClient(t, address, client, false)
			defer c.Conn.Close()
			if got := c.Command("MAIL FROM:<x@there.example>"); !strings.HasPrefix(got, "250") {
				return got
			}
			return c.Command("RCPT TO:<%s>", recipient)
		}
		was, is := reply(there.SMTP), reply(here.SMTP)
		line, known := told[key]
		switch {
		case !known:
			t.Errorf("%s: the report has no such line", key)
		case line.Outcome == "the same":
			if was != is {
				t.Errorf("%s: said to be the same\nPostfix %q\nblockd  %q", line.Text, was, is)
			}
		default:
			t.Logf("%s: %s, %s\nPostfix %q\nblockd  %q", line.Text, line.Outcome, line.Now, was, is)
		}
		if known && line.Outcome != "not carried over" && was[0] != is[0] {
			t.Errorf("%s: Postfix %q, blockd %q", key, was, is)
		}
	}
	for key := range clients {
		ask(key, key, "you@here.example")
	}
	for key := range recipients {
		ask(key, "192.0.2.99", key)
	}
	if len(told) < len(clients)+len(recipients) {
		t.Errorf("the report has %d lines; nothing is shown", len(told))
	}
}
