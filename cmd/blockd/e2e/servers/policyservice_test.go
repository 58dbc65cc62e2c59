package servers

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// postfixLists are what the tests of Postfix's own questions have listed.
var postfixLists = e2e.List("bad") + e2e.List("good", `action = "allow"`) + e2e.List("slow", `on_match = "tempfail"`) + e2e.List("odd", `on_match = "tag"`) +
	e2e.List("aside", `on_match = "quarantine"`) + e2e.List("gone", `format = "postfix"`, "discard = true") + e2e.List("clients")

func postfixFiles() map[string]string {
	return map[string]string{
		"bad.txt":  "bulk.example\n\"bad q\"@x.example\nu@route.example\n100%@shop.example\n",
		"good.txt": "news.bulk.example\n", "slow.txt": "slow.example\n", "odd.txt": "odd.example\n", "aside.txt": "aside.example\n",
		"gone.txt": "gone.example DISCARD\n", "clients.txt": "198.51.100.0/24\n",
	}
}

// asked is a blockd that a Postfix asks.
type asked struct {
	*e2e.Daemon
	policy, socketmap, tcp string // HOST:PORT
}

func configureAsked(t *testing.T, s e2e.Setup) *asked {
	t.Helper()
	a := &asked{policy: e2e.FreeAddress(t), socketmap: e2e.FreeAddress(t), tcp: e2e.FreeAddress(t)}
	s.Postfix = fmt.Sprintf("policy_listen = %q\nsocketmap_listen = %q\ntcp_listen = %q", a.policy, a.socketmap, a.tcp)
	s.SMTP += "\nquarantine = \"quarantine\""
	if s.Lists == "" {
		s.Lists, s.Files = postfixLists, postfixFiles()
	}
	a.Daemon = e2e.Configure(t, s)
	return a
}

func serveAsked(t *testing.T, s e2e.Setup) *asked {
	t.Helper()
	a := configureAsked(t, s)
	a.Start(t)
	return a
}

// senders says who may be asked about senders.
func (a *asked) senders(service string) string {
	switch service {
	case "policy":
		return "check_policy_service inet:" + a.policy
	case "socketmap":
		return "check_sender_access socketmap:inet:" + a.socketmap + ":senders"
	}
	return "check_sender_access tcp:" + a.tcp
}

// Each recipient is answered by itself, in the words that docs/postfix.md promises.
func TestPostfixAsksThePolicyService(t *testing.T) {
	a := serveAsked(t, e2e.Setup{})
	p := e2e.StartPostfix(t, e2e.FreeAddress(t), e2e.Restrictions("smtpd_sender_restrictions", a.senders("policy")))
	c := e2e.DialSMTP(t, p.SMTP)
	for i, line := range []struct{ say, want string }{
		{"MAIL FROM:<a@bulk.example>", "250 2.1.0 Ok"},
		{"RCPT TO:<bob@here.example>", "550 5.7.1 <a@bulk.example>: Sender address rejected: listed in bad (ref *)"},
		{"RCPT TO:<postmaster@here.example>", "250 2.1.5 Ok"},
		{"RCPT TO:<carol@here.example>", "550 5.7.1 <a@bulk.example>: Sender address rejected: listed in bad (ref *)"},
		{"RCPT TO:<Abuse@here.example>", "250 2.1.5 Ok"},
		{"RSET", "250 2.0.0 Ok"},
		{"MAIL FROM:<a@news.bulk.example>", "250 2.1.0 Ok"},
		{"RCPT TO:<bob@here.example>", "250 2.1.5 Ok"},
		{"RSET", "250 2.0.0 Ok"},
		{"MAIL FROM:<>", "250 2.1.0 Ok"},
		{"RCPT TO:<bob@here.example>", "250 2.1.5 Ok"},
		{"RSET", "250 2.0.0 Ok"},
		{"MAIL FROM:<a@slow.example>", "250 2.1.0 Ok"},
		{"RCPT TO:<bob@here.example>", "450 4.7.1 <a@slow.example>: Sender address rejected: listed in slow (ref *)"},
		{"RCPT TO:<bob@elsewhere.example>", "554 5.7.1 <bob@elsewhere.example>: Relay access denied"}, // and not "later"
		{"RSET", "250 2.0.0 Ok"},
		{"MAIL FROM:<100%@shop.example>", "250 2.1.0 Ok"},
		{"RCPT TO:<bob@here.example>", "550 5.7.1 <100%@shop.example>: Sender address rejected: listed in bad (ref *)"},
		{"RSET", "250 2.0.0 Ok"},
	} {
		testkit.Equal(t, fmt.Sprintf("%d: %s", i, line.say), e2e.Plain(c.Command("%s", line.say)), line.want)
	}
	for _, who := range []struct{ xclient, want string }{
		{"ADDR=198.51.100.7 NAME=[UNAVAILABLE]", "550 5.7.1 <a@there.example>: Sender address rejected: client address [198.51.100.7] listed in clients (ref *)"},
		{"ADDR=203.0.113.7 NAME=[UNAVAILABLE]", "250 2.1.5 Ok"},
	} {
		c := e2e.DialSMTP(t, p.SMTP)
		e2e.MustBegin(t, "XCLIENT", c.Command("XCLIENT %s", who.xclient), "220 ")
		c.Command("EHLO client.there.example")
		c.Command("MAIL FROM:<a@there.example>")
		testkit.Equal(t, who.xclient, e2e.Plain(c.Command("RCPT TO:<bob@here.example>")), who.want)
	}
	// One smtpd asks on one connection, for as long as it lives.
	a.CountedSome(t, `blockd_postfix_connections{service="policy"}`)
}

// Who has logged in is asked about only where the configuration says so.
func TestPostfixTellsThePolicyServiceWhoHasLoggedIn(t *testing.T) {
	for skip, want := range map[string]string{"true": "250 ", "false": "550 "} {
		a := serveAsked(t, e2e.Setup{SMTP: "skip_authenticated = " + skip})
		p := e2e.StartPostfix(t, e2e.FreeAddress(t), e2e.Restrictions("smtpd_sender_restrictions", a.senders("policy")))
		c := e2e.DialSMTP(t, p.SMTP)
		e2e.MustBegin(t, "XCLIENT", c.Command("XCLIENT ADDR=192.0.2.7 LOGIN=alice"), "220 ")
		c.Command("EHLO client.there.example")
		c.Command("MAIL FROM:<a@bulk.example>")
		testkit.Begins(t, "skip_authenticated = "+skip, c.Command("RCPT TO:<bob@here.example>"), want)
	}
}

// What Postfix puts in front of our words, by the restrictions that we stand in.
func TestPostfixPrefixesTheWords(t *testing.T) {
	a := serveAsked(t, e2e.Setup{})
	for where, want := range map[string]string{
		"smtpd_client_restrictions":      "550 5.7.1 <unknown[127.0.0.1]>: Client host rejected: listed in bad (ref *)",
		"smtpd_helo_restrictions":        "550 5.7.1 <client.there.example>: Helo command rejected: listed in bad (ref *)",
		"smtpd_sender_restrictions":      "550 5.7.1 <a@bulk.example>: Sender address rejected: listed in bad (ref *)",
		"smtpd_recipient_restrictions":   "550 5.7.1 <bob@here.example>: Recipient address rejected: listed in bad (ref *)",
		"smtpd_data_restrictions":        "250 2.1.5 Ok",
		"smtpd_end_of_data_restrictions": "250 2.1.5 Ok",
	} {
		p := e2e.StartPostfix(t, e2e.FreeAddress(t), e2e.Restrictions(where, a.senders("policy")))
		c := e2e.DialSMTP(t, p.SMTP)
		c.Command("MAIL FROM:<a@bulk.example>")
		testkit.Equal(t, where, e2e.Plain(c.Command("RCPT TO:<bob@here.example>")), want)
	}
}

// A list that is reloaded between two recipients of a message changes nothing for
// that message.
func TestPostfixInstanceHasOneGeneration(t *testing.T) {
	a := serveAsked(t, e2e.Setup{})
	p := e2e.StartPostfix(t, e2e.FreeAddress(t), e2e.Restrictions("smtpd_sender_restrictions", a.senders("policy")))
	begun, later := e2e.DialSMTP(t, p.SMTP), e2e.DialSMTP(t, p.SMTP)
	begun.Command("MAIL FROM:<a@bulk.example>")
	e2e.MustBegin(t, "before the reload", begun.Command("RCPT TO:<bob@here.example>"), "550 ")
	e2e.Replace(t, a.Path("bad.txt"), "other.example\n")
	a.Reload(t)
	a.Says(t, "/v1/check?sender=a@bulk.example", `"verdict":"clear"`)
	testkit.Begins(t, "the second recipient of the same message", begun.Command("RCPT TO:<carol@here.example>"), "550 ")
	later.Command("MAIL FROM:<a@bulk.example>")
	testkit.Begins(t, "the next message", later.Command("RCPT TO:<bob@here.example>"), "250 ")
	begun.Command("RSET")
	begun.Command("MAIL FROM:<a@bulk.example>")
	testkit.Begins(t, "the next message on the same connection", begun.Command("RCPT TO:<bob@here.example>"), "250 ")
}

// What is done with a message rather than with a recipient, as far as Postfix can.
func TestPostfixTreatsAMessage(t *testing.T) {
	a := serveAsked(t, e2e.Setup{})
	p := e2e.StartPostfix(t, e2e.FreeAddress(t), e2e.Restrictions("smtpd_sender_restrictions", a.senders("policy")))
	const again = "452 4.5.3 <%s>: Sender address rejected: send this recipient in a transaction of its own"
	send := func(from, marker string, to ...string) (replies []string) {
		c := e2e.DialSMTP(t, p.SMTP)
		c.Command("MAIL FROM:<%s>", from)
		for _, r := range to {
			replies = append(replies, c.Command("RCPT TO:<%s@here.example>", r))
		}
		e2e.MustBegin(t, "DATA", c.Command("DATA"), "354")
		testkit.Begins(t, "the dot", c.Command("Subject: %s\r\n\r\nx\r\n.", marker), "250")
		return replies
	}
	arrived := func(marker string) (texts []string) {
		for _, path := range e2e.Messages(t, p.Maildir) {
			text, err := os.ReadFile(path)
			if err == nil && bytes.Contains(text, []byte("Subject: "+marker+"\n")) {
				texts = append(texts, string(text))
			}
		}
		return texts
	}
	tests := []struct {
		name, from string
		to         []string
		want       []string // replies; "" = 250
		copies     int      // that arrive
		field      bool     // with one X-Blockd
	}{
		{"tagged once for two recipients", "a@odd.example", []string{"bob", "carol"}, []string{"", ""}, 2, true},
		{"an exempt recipient has no tag", "a@odd.example", []string{"postmaster", "carol"}, []string{"", fmt.Sprintf(again, "a@odd.example")}, 1, false},
		{"tagged, and the exempt recipient by itself", "a@odd.example", []string{"carol", "postmaster"}, []string{"", fmt.Sprintf(again, "a@odd.example")}, 1, true},
		{"a discard entry refuses", "a@gone.example", []string{"bob", "postmaster"},
			[]string{"550 5.7.1 <a@gone.example>: Sender address rejected: listed in gone (ref *)", ""}, 1, false},
		{"held", "a@aside.example", []string{"bob", "carol"}, []string{"", ""}, 0, false},
		{"postmaster's mail is not held", "a@aside.example", []string{"bob", "postmaster"}, []string{"", fmt.Sprintf(again, "a@aside.example")}, 0, false},
		{"clear", "a@there.example", []string{"bob", "postmaster"}, []string{"", ""}, 2, false},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			marker := fmt.Sprintf("case-%d", i)
			for n, got := range send(tt.from, marker, tt.to...) {
				if tt.want[n] == "" && !strings.HasPrefix(got, "250 ") || tt.want[n] != "" && e2e.Plain(got) != tt.want[n] {
					t.Errorf("RCPT TO:<%s>: %q, want %q", tt.to[n], got, tt.want[n])
				}
			}
			if tt.copies > 0 {
				testkit.Eventually(t, "the message", func() bool { return len(arrived(marker)) == tt.copies })
			}
			for _, text := range arrived(marker) {
				if n := strings.Count(text, "X-Blockd: list=odd ref="); n > 1 || (n == 1) != tt.field {
					t.Errorf("%d fields X-Blockd in\n%s", n, text)
				}
			}
		})
	}
	testkit.Eventually(t, "Postfix to hold two messages", func() bool { return len(p.Held(t)) == 2 })
	// All that is to arrive has: only now can something be found that should not.
	testkit.Equal(t, "messages that arrived", len(e2e.Messages(t, p.Maildir)), 7)
}

// The recipes of docs/postfix.md: a Unix socket below Postfix's queue, and a table
// behind a line for those whom everybody may write to.
func TestPostfixRecipes(t *testing.T) {
	socketmap := e2e.FreeAddress(t)
	unix := e2e.StartPostfix(t, e2e.FreeAddress(t),
		e2e.Restrictions("smtpd_sender_restrictions", "check_policy_service { unix:blockd/policy, default_action=DUNNO }"))
	table := e2e.StartPostfix(t, e2e.FreeAddress(t), e2e.Restrictions("smtpd_sender_restrictions",
		"check_recipient_access inline:{ { postmaster@here.example = permit }, { abuse@here.example = permit } }, "+
			"check_sender_access socketmap:inet:"+socketmap+":senders"))
	folder := filepath.Join(unix.Dir, "queue", "blockd")
	testkit.Must(t, os.Mkdir(folder, 0o755))
	e2e.Serve(t, e2e.Setup{Lists: postfixLists, Files: postfixFiles(), SMTP: `quarantine = "quarantine"`,
		Postfix: fmt.Sprintf("policy_listen = %q\nsocket_group = \"postfix\"\nsocketmap_listen = %q", "unix:"+filepath.Join(folder, "policy"), socketmap)})
	if info, err := os.Stat(filepath.Join(folder, "policy")); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the socket: %v, %v, want mode 0660", info, err)
	}
	for _, p := range []*e2e.Postfix{unix, table} {
		c := e2e.DialSMTP(t, p.SMTP)
		c.Command("MAIL FROM:<a@bulk.example>")
		for to, want := range map[string]string{
			"bob": "550 5.7.1 <a@bulk.example>: Sender address rejected: listed in bad (ref *)", "postmaster": "250 2.1.5 Ok", "abuse": "250 2.1.5 Ok",
		} {
			testkit.Equal(t, fmt.Sprintf("%s to %s", p.SMTP, to), e2e.Plain(c.Command("RCPT TO:<%s@here.example>", to)), want)
		}
	}
}

// postmap asks the tables as Postfix does.
func TestPostmapAsksTheTables(t *testing.T) {
	command := testkit.Peer(t, "postmap")
	config := e2e.PostmapConfig(t)
	a := serveAsked(t, e2e.Setup{})
	query := func(key, table string) (string, int) {
		var errs bytes.Buffer
		cmd := exec.Command(command, "-c", config, "-q", key, table)
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return e2e.Plain(strings.TrimSpace(string(out) + errs.String())), cmd.ProcessState.ExitCode()
	}
	for _, tt := range []struct {
		key, table, want string
		code             int
	}{
		{"a@mx.bulk.example", "socketmap:inet:" + a.socketmap + ":senders", "550 5.7.1 listed in bad (ref *)", 0},
		{"a@there.example", "socketmap:inet:" + a.socketmap + ":senders", "", 1},
		{"<>", "socketmap:inet:" + a.socketmap + ":senders", "", 1},
		{"a@mx.bulk.example", "socketmap:inet:" + a.socketmap + ":bad", "550 5.7.1 listed in bad (ref *)", 0},
		{"a@mx.bulk.example", "socketmap:inet:" + a.socketmap + ":slow", "", 1},
		{"a@slow.example", "socketmap:inet:" + a.socketmap + ":senders", "DEFER_IF_PERMIT 4.7.1 listed in slow (ref *)", 0},
		{"a@mx.bulk.example", "tcp:" + a.tcp, "550 5.7.1 listed in bad (ref *)", 0},
		{"bad q@x.example", "tcp:" + a.tcp, "550 5.7.1 listed in bad (ref *)", 0},
		{"100%@shop.example", "tcp:" + a.tcp, "550 5.7.1 listed in bad (ref *)", 0},
		{"a@there.example", "tcp:" + a.tcp, "", 1},
	} {
		if got, code := query(tt.key, tt.table); got != tt.want || code != tt.code {
			t.Errorf("postmap -q %q %s = %q, exit %d, want %q, exit %d", tt.key, tt.table, got, code, tt.want, tt.code)
		}
	}
	if got, code := query("a@mx.bulk.example", "socketmap:inet:"+a.socketmap+":other"); code != 1 || !strings.Contains(got, "permanent error: unknown map") {
		t.Errorf("another map: %q, exit %d", got, code)
	}
	cmd := exec.Command(command, "-c", config, "-q", "-", "tcp:"+a.tcp) // many on one connection
	cmd.Stdin = strings.NewReader(strings.Repeat("a@bulk.example\nb@there.example\n", 500))
	out, err := cmd.Output()
	if err != nil || strings.Count(string(out), "listed in bad") != 500 || strings.Contains(string(out), "there.example") {
		t.Errorf("a thousand keys: %v, %d found", err, strings.Count(string(out), "listed in bad"))
	}
}
