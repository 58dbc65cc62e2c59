package servers

import (
	"crypto/tls"
	"fmt"
	"net/smtp"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
)

// milterLists are what the milter tests refuse, allow, mark and so on by.
var milterLists = e2e.List("bad", "max_freed = 1.0 # tests take its entries out again") + e2e.List("junk", `on_match = "quarantine"`) +
	e2e.List("watch", `on_match = "tag"`) + e2e.List("gone", `format = "postfix"`, "discard = true") +
	e2e.List("writers", `match = ["from", "reply-to"]`) + "[[policy]]\nrecipients = [\"vip@here.example\"]\nlists = []\n"

var milterFiles = map[string]string{
	"bad.txt": "bad.example\n\"bad b\"@x.example\n192.0.2.0/24\n", "junk.txt": "junk.example\n", "watch.txt": "watch.example\n",
	"gone.txt": "gone.example DISCARD\n", "writers.txt": "phish.example\n",
}

// withMilter starts a blockd that is nothing but a milter, and a Postfix that asks
// it. The answers to RCPT come by themselves, and the milter's last.
func withMilter(t *testing.T, unix bool, options ...string) (*e2e.Daemon, *e2e.Postfix) {
	t.Helper()
	s := e2e.Setup{Lists: milterLists, Files: milterFiles}
	where := ""
	if unix {
		where = filepath.Join(publicDir(t), "milter")
		s.Milter = fmt.Sprintf("listen = %q\nsocket_group = \"postfix\"\n", "unix:"+where)
		where = "unix:" + where
	} else {
		address := e2e.FreeAddress(t)
		s.Milter = fmt.Sprintf("listen = %q\n", address)
		where = "inet:" + address
	}
	s.SMTP = "quarantine = \"aside\"\n"
	// First Postfix: where it is missing, so is the group.
	p := e2e.StartPostfix(t, e2e.FreeAddress(t), append([]string{"smtpd_milters=" + where, "milter_default_action=tempfail",
		"smtpd_authorized_xclient_hosts=127.0.0.1"}, options...)...)
	return e2e.Serve(t, s), p
}

// Postfix may not know the client's address: a proxy in front of it did not say, or XCLIENT said that it is unknown. It then tells the milter
// "unknown" in place of an address, but still calls it IPv4 or IPv6. Such mail is filtered by its sender as usual.
func TestMilterOfAnUnknownClient(t *testing.T) {
	_, p := withMilter(t, false)
	for _, address := range []string{"[UNAVAILABLE]", "192.0.2.7", "198.51.100.7"} {
		c := e2e.DialTalk(t, p.SMTP)
		for _, command := range []string{"EHLO client.example", "XCLIENT NAME=[UNAVAILABLE] ADDR=" + address, "EHLO client.example"} {
			if reply := c.Command("%s", command); reply[0] != '2' {
				t.Fatalf("%s = %q", command, reply)
			}
		}
		want := "250"
		if address == "192.0.2.7" {
			want = "550" // listed
		}
		testkit.Begins(t, "MAIL of client "+address, c.Command("MAIL FROM:<friend@there.example>"), "250")
		testkit.Begins(t, "RCPT of client "+address, c.Command("RCPT TO:<you@here.example>"), want)
		c.Command("RSET")
		c.Command("MAIL FROM:<promo@bad.example>")
		testkit.Begins(t, fmt.Sprintf("RCPT of client %s and a listed sender", address), c.Command("RCPT TO:<you@here.example>"), "550")
	}
}

func TestMilterWithPostfix(t *testing.T) {
	for name, unix := range map[string]bool{"TCP": false, "Unix socket": true} {
		t.Run(name, func(t *testing.T) {
			d, p := withMilter(t, unix)
			c := e2e.DialSMTP(t, p.SMTP)
			want := func(reply, form string) {
				t.Helper()
				if !regexp.MustCompile("^(?s:" + form + ")$").MatchString(reply) {
					t.Errorf("reply %q, want %s", reply, form)
				}
			}
			const refused = `550 5\.7\.1 <\S+>: Sender address rejected: listed in bad \(ref \w{10}\)`

			// One transaction: refused, heard, refused, heard; and once more.
			for range 2 {
				want(c.Command("MAIL FROM:<100%%promo@mx.bad.example>"), "250.*")
				want(c.Command("RCPT TO:<you@here.example>"), refused)
				want(c.Command("RCPT TO:<postmaster@here.example>"), "250.*")
				want(c.Command("RCPT TO:<other@here.example>"), `550 5\.7\.1 <100%promo@mx\.bad\.example>: .*`)
				want(c.Command("RCPT TO:<vip@here.example>"), "250.*")
				want(c.Command("RSET"), "250.*")
			}
			want(c.Send("friend@there.example", "you@here.example", e2e.Crlf([]byte("Subject: clear\n\nhi\n"))), "250.*")
			want(c.Send("", "you@here.example", e2e.Crlf([]byte("Subject: bounce\n\nhi\n"))), "250.*")

			// What the client writes in front of an address does not help it.
			want(c.Command("MAIL FROM:(c)<a@bad.example>"), "250.*")
			want(c.Command("RCPT TO:<you@here.example>"), refused)
			want(c.Command("RSET"), "250.*")
			want(c.Command("MAIL FROM:<\"bad b\"@x.example>"), "250.*")
			want(c.Command("RCPT TO:<you@here.example>"), `550 5\.7\.1 <"bad b"@x\.example>: .*`)
			want(c.Command("RSET"), "250.*")

			// What is done with the whole message.
			want(c.Send("a@watch.example", "you@here.example", e2e.Crlf([]byte("Subject: marked\nX-Blockd: forged\n\nhi\n"))), "250.*")
			want(c.Send("a@gone.example", "you@here.example", e2e.Crlf([]byte("Subject: dropped\n\nhi\n"))), "250.*")
			want(c.Send("a@junk.example", "you@here.example", e2e.Crlf([]byte("Subject: held\n\nhi\n"))), "250.*")
			want(c.Command("MAIL FROM:<a@gone.example>"), "250.*")
			want(c.Command("RCPT TO:<you@here.example>"), "250.*")
			want(c.Command("RCPT TO:<postmaster@here.example>"), `452 4\.5\.3 .*`)
			want(c.Command("RSET"), "250.*")

			// By the header, which nothing in the envelope tells of.
			want(c.Send("a@there.example", "you@here.example", e2e.Crlf([]byte("From: A <a@there.example>\nReply-To: b@c.example,\n \"B\" <b@phish.example>\nSubject: answer me\n\nhi\n"))),
				`550 5\.7\.1 <b@phish\.example>: Reply-To address rejected: listed in writers \(ref \w{10}\)`)
			for _, field := range []string{"From : b@phish.example", "From: b @phish.example", "From: <<b@phish.example>>", "From: b@phish.example <>"} {
				want(c.Send("a@there.example", "you@here.example", e2e.Crlf([]byte("Subject: answer me\n"+field+"\n\nhi\n"))), `550 5\.7\.1 <b@phish\.example>: From address rejected: .*`)
			}
			hidden := e2e.DialSMTP(t, p.SMTP) // a session of its own: Postfix slows down one of many errors
			for _, field := range []string{"From: b@phi\u00ADsh.example", "From: B <\u202Eb\u200D\u202C@phish.exam\uFE0Fple>", "From: b\uFF20phish.example", `From: <b@"phish.example">`,
				"From: B <=?utf-8?Q?b?=@phish.example>", "From: a@there.example, <=?utf-8?B?YkBwaGlzaC5leGFtcGxl?=>", "From: b@phi\xADsh.example"} {
				want(hidden.Send("a@there.example", "you@here.example", e2e.Crlf([]byte(field+"\n\nhi\n"))), `550 5\.7\.1 <\S+@phish\.example>: From address rejected: .*`)
			}
			want(c.Send("a@there.example", "postmaster@here.example", e2e.Crlf([]byte("From: b@phish.example\nSubject: to postmaster\n\nhi\n"))), "250.*")
			want(c.Command("QUIT"), "221.*")

			testkit.Eventually(t, "four messages to arrive", func() bool { return len(e2e.Messages(t, p.Maildir)) == 4 })
			all := ""
			for _, path := range e2e.Messages(t, p.Maildir) {
				text := testkit.Read(t, path)
				all += string(text)
			}
			for _, text := range []string{"Subject: clear\n", "Subject: bounce\n", "Subject: to postmaster\n"} {
				if !strings.Contains(all, text) {
					t.Errorf("no %q in what arrived:\n%s", text, all)
				}
			}
			if ours, forged := strings.Index(all, "X-Blockd: list=watch ref="), strings.Index(all, "X-Blockd: forged"); ours < 0 || forged < ours {
				t.Errorf("our X-Blockd is not in front of the forged one:\n%s", all)
			}
			testkit.Eventually(t, "Postfix to hold one message", func() bool { return len(p.Held(t)) == 1 })
			for series, want := range map[string]string{
				`blockd_milter_messages_total{outcome="discarded"}`: "1", `blockd_milter_messages_total{outcome="quarantined"}`: "1",
				`blockd_milter_messages_total{outcome="tagged"}`: "1", `blockd_milter_messages_total{outcome="refused"}`: "12",
				`blockd_milter_panics_total`: "0", `blockd_milter_bad_packets_total{why="form"}`: "0",
			} {
				d.Counted(t, series, want)
			}
		})
	}
}

// TestMilterUnderTLS says EHLO, STARTTLS and EHLO again, in two sessions: what the
// milter knows of the client outlives it.
func TestMilterUnderTLS(t *testing.T) {
	cert := selfsigned.New(t, "mail.here.example")
	certPath, keyPath := cert.Write(t, publicDir(t))
	d, p := withMilter(t, false, "smtpd_tls_security_level=may", "smtpd_tls_cert_file="+certPath, "smtpd_tls_key_file="+keyPath)
	for range 2 {
		plain := testkit.Value(smtp.Dial(p.SMTP))(t)
		testkit.Must(t, plain.Hello("client.there.example"))
		testkit.Must(t, plain.StartTLS(&tls.Config{ServerName: "mail.here.example", RootCAs: cert.Pool()}))
		for range 2 {
			testkit.Must(t, plain.Mail("a@bad.example"))
			if err := plain.Rcpt("you@here.example"); err == nil || !strings.Contains(err.Error(), "listed in bad") {
				t.Errorf("RCPT: %v", err)
			}
			if err := plain.Rcpt("postmaster@here.example"); err != nil {
				t.Errorf("RCPT postmaster: %v", err)
			}
			testkit.Must(t, plain.Reset())
		}
		if err := plain.Mail("friend@there.example"); err != nil {
			t.Errorf("MAIL of a clear sender: %v", err)
		}
		plain.Quit()
	}
	d.Counted(t, `blockd_milter_recipients_total{outcome="refused"}`, "4")
}

// The fragments of packaging/containers make Postfix ask blockd and whoever it asked before, in main.cf files as these images
// have them. The milter that was there before is a second blockd, with a list of its own. Neither stops mail by being away.
func TestContainerFragments(t *testing.T) {
	for name, tt := range map[string]struct {
		file    string
		base    string // what the image has in front of the fragment; %s is the place of its own milter
		theirs  string // what the fragment calls that place; "": the base names it
		defined bool   // there is such a milter
	}{
		"postfix":                               {file: "postfix/postfix/main.cf"},
		"docker-mailserver with rspamd":         {"docker-mailserver/postfix-main.cf", "milter_default_action = accept\nrspamd_milter = %s\nsmtpd_milters = $rspamd_milter\n", "", true},
		"docker-mailserver with OpenDKIM":       {"docker-mailserver/postfix-main.cf", "milter_default_action = accept\ndkim_milter = %s\nsmtpd_milters = $dkim_milter\n", "", true},
		"docker-mailserver with none of either": {"docker-mailserver/postfix-main.cf", "milter_default_action = accept\nsmtpd_milters =\n", "", false},
		"mailcow": {"mailcow/extra.cf", "milter_default_action = accept\nmilter_protocol = 6\nsmtpd_milters = inet:rspamd:9900\n" +
			"milter_mail_macros = i {mail_addr} {client_addr} {client_name} {auth_authen}\n", "inet:rspamd:9900", true},
	} {
		t.Run(name, func(t *testing.T) {
			p := e2e.ConfigurePostfix(t, e2e.FreeAddress(t))
			ours, theirs := e2e.FreeAddress(t), e2e.FreeAddress(t)
			d := e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", Files: map[string]string{"bad.txt": "bad.example\n"}, Milter: fmt.Sprintf("listen = %q\n", ours)})
			fragment := strings.ReplaceAll(string(testkit.Read(t, filepath.Join(e2e.Root, "packaging/containers", tt.file))), "inet:blockd:8892", "inet:"+ours)
			base := tt.base
			if tt.theirs != "" {
				base, fragment = strings.ReplaceAll(base, tt.theirs, "inet:"+theirs), strings.ReplaceAll(fragment, tt.theirs, "inet:"+theirs)
			} else if tt.defined {
				base = fmt.Sprintf(base, "inet:"+theirs)
			}
			// The test has names, networks and a mailbox of its own.
			kept := strings.Builder{}
			for line := range strings.Lines(fragment) {
				if key, _, _ := strings.Cut(line, " ="); key != "myhostname" && key != "mydestination" && key != "inet_interfaces" && key != "mynetworks" {
					kept.WriteString(line)
				}
			}
			if !strings.Contains(kept.String(), ours) {
				t.Fatalf("%s does not ask blockd", tt.file)
			}
			p.Add(t, "main.cf", base+kept.String())
			if tt.defined {
				e2e.Serve(t, e2e.Setup{Lists: "[[list]]\nname = \"second\"\npath = \"second.txt\"\n", Files: map[string]string{"second.txt": "other.example\n"},
					Milter: fmt.Sprintf("listen = %q\n", theirs)})
			}
			p.Start(t)
			c := e2e.DialSMTP(t, p.SMTP)
			for from, want := range map[string]string{"a@bad.example": "listed in bad", "friend@there.example": "", "a@other.example": map[bool]string{true: "listed in second"}[tt.defined]} {
				c.Command("MAIL FROM:<%s>", from)
				reply := c.Command("RCPT TO:<you@here.example>")
				if want == "" && !strings.HasPrefix(reply, "250") || want != "" && (!strings.HasPrefix(reply, "550 5.7.1") || !strings.Contains(reply, want)) {
					t.Errorf("%s: %q, want %q", from, reply, want)
				}
				c.Command("RSET")
			}
			c.Command("QUIT")

			d.Stop(t)
			away := e2e.DialSMTP(t, p.SMTP)
			away.Command("MAIL FROM:<a@bad.example>")
			testkit.Begins(t, "while blockd is away", away.Command("RCPT TO:<you@here.example>"), "250")
		})
	}
}
