package servers

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
	"blockd/internal/testkit/sealed"
)

// proofLists block x.example, and let it pass with a proof.
const proofLists = `
[auth]
resolver = %q
max_message = "2MiB"
[[list]]
name = "bad"
path = "bad.txt"
[[list]]
name = "partners"
path = "partners.txt"
action = "allow"
require = ["spf", "dkim"]
`

var proofFiles = map[string]string{"bad.txt": "x.example\ny.example\nbad.example\n", "partners.txt": "x.example\ny.example\n"}

// foldedLetter is a message that a mail server must not change on its way to a milter.
const foldedLetter = "From: Ann\r\n <a@x.example>\r\nTo:  bob@here.example \r\nSubject: one\r\n\ttwo\r\n   three\r\n" +
	"Date: Sat, 21 Nov 2026 10:00:00 +0000\r\nMessage-ID: <1@x.example>\r\nX-Empty: \r\nX-Blanks:    four\r\n" +
	"MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n" +
	".a dot\r\n\r\n  blanks at the end  \r\ntab\t\r\nB\u00fccher\r\n" + "\r\n\r\n"

// TestSignaturesThroughMailServers sends signed mail through real mail servers: what
// they hand to the milter verifies, to the octet.
func TestSignaturesThroughMailServers(t *testing.T) {
	for name, start := range map[string]func(*testing.T, string) (smtp string){
		"Postfix": func(t *testing.T, milter string) string {
			return e2e.StartPostfix(t, e2e.FreeAddress(t), "smtpd_milters=inet:"+milter, "milter_default_action=tempfail").SMTP
		},
		"Sendmail": func(t *testing.T, milter string) string {
			host, port, _ := strings.Cut(milter, ":")
			return startSendmail(t, fmt.Sprintf("INPUT_MAIL_FILTER(`blockd', `S=inet:%s@%s, F=T, T=S:10s;R:10s')dnl", port, host)).smtp
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := sealed.NewPost(t, nameserver.Zone{"TXT y.example": {"v=spf1 ip4:127.0.0.0/8 -all"}})
			address := e2e.FreeAddress(t)
			d := e2e.Serve(t, e2e.Setup{Lists: fmt.Sprintf(proofLists, p.Address), Files: proofFiles, Milter: fmt.Sprintf("listen = %q\n", address)})
			smtp := start(t, address)
			c := e2e.DialSMTP(t, smtp)
			want := func(what, reply, prefix string, more ...string) {
				t.Helper()
				if !strings.HasPrefix(reply, prefix) {
					t.Errorf("%s: %q, want %q", what, reply, prefix)
				}
				for _, text := range more {
					if !strings.Contains(reply, text) {
						t.Errorf("%s: %q, want %q in it", what, reply, text)
					}
				}
			}

			for _, text := range []string{"Subject: clear\r\n\r\nhi\r\n", foldedLetter} {
				want("clear sender", c.Send("a@there.example", "you@here.example", []byte(text)), "250")
			}
			want("listed without exception", c.Send("a@bad.example", "you@here.example", nil), "550", "listed in bad (ref ")
			want("exempt recipient", c.Send("a@x.example", "postmaster@here.example", []byte(foldedLetter)), "250")
			testkit.Equal(t, fmt.Sprintf("queries of ordinary mail, %v", p.Asked()), p.Count(), 0)

			want("SPF", c.Send("a@y.example", "you@here.example", []byte("Subject: spf\r\n\r\nhi\r\n")), "250")
			large := foldedLetter + strings.Repeat("A line of some length, as there are many.\r\n", 30_000) // 1.2 MiB: in a file
			for _, text := range []string{foldedLetter, sealed.Letter("a@x.example"), large, strings.TrimSuffix(sealed.Letter("a@x.example"), "Text.\r\n")} {
				for _, selector := range []string{sealed.Ed25519, sealed.RSA} {
					for _, how := range []dkim.Canonicalization{dkim.CanonicalizationSimple, dkim.CanonicalizationRelaxed} {
						signed := p.Sign(t, text, "x.example", selector, func(o *dkim.SignOptions) {
							o.HeaderCanonicalization, o.BodyCanonicalization = how, how
						})
						want(fmt.Sprintf("%d octets signed by %s, %s", len(text), selector, how), c.Send("a@x.example", "you@here.example", []byte(signed)), "250")
					}
				}
			}
			const refused = "listed in bad (ref "
			signed := p.Sign(t, foldedLetter, "x.example", sealed.RSA, nil)
			want("envelope only", c.Send("a@x.example", "you@here.example", []byte("From: a@evil.example\r\n\r\nhi\r\n")), "554 5.7.1 ", refused)
			want("no signature", c.Send("a@x.example", "you@here.example", []byte(foldedLetter)), "554 5.7.1 ", "<a@x.example>: Sender address rejected: ", refused)
			want("another body", c.Send("a@x.example", "you@here.example", []byte(signed+"more\r\n")), "554 5.7.1 ", refused)
			want("second From", c.Send("a@x.example", "you@here.example", []byte("From: a@evil.example\r\n"+signed)), "554 5.7.1 ", refused)
			want("signature of another domain", c.Send("a@x.example", "you@here.example",
				[]byte(p.Sign(t, foldedLetter, "evil.example", sealed.RSA, nil))), "554 5.7.1 ", refused)
			want("over max_message", c.Send("a@x.example", "you@here.example",
				[]byte(p.Sign(t, foldedLetter+strings.Repeat(strings.Repeat("x", 70)+"\r\n", 40_000), "x.example", sealed.RSA, nil))), "554 5.7.1 ", refused)

			want("MAIL", c.Command("MAIL FROM:<a@x.example>"), "250")
			want("first", c.Command("RCPT TO:<you@here.example>"), "250")
			want("exempt", c.Command("RCPT TO:<postmaster@here.example>"), "452 4.5.3 ")
			want("second", c.Command("RCPT TO:<other@here.example>"), "250")
			want("RSET", c.Command("RSET"), "250")
			want("MAIL", c.Command("MAIL FROM:<a@x.example>"), "250")
			want("exempt", c.Command("RCPT TO:<postmaster@here.example>"), "250")
			want("ordinary", c.Command("RCPT TO:<you@here.example>"), "452 4.5.3 ")
			want("QUIT", c.Command("QUIT"), "221")
			for series, want := range map[string]string{
				`blockd_milter_messages_total{outcome="accepted"}`: "16", `blockd_milter_messages_total{outcome="refused"}`: "6",
				"blockd_milter_panics_total": "0", `blockd_milter_bad_packets_total{why="form"}`: "0",
			} {
				d.Counted(t, series, want)
			}
			testkit.Equal(t, "files of messages that are open", openNameless(t, d), 0)
		})
	}
}

// openNameless counts the files of d that have no name any more.
func openNameless(t *testing.T, d *e2e.Daemon) (n int) {
	t.Helper()
	folder := fmt.Sprintf("/proc/%d/fd", d.Cmd.Process.Pid)
	testkit.Eventually(t, "the list of open files", func() bool {
		all, err := os.ReadDir(folder)
		n = 0
		for _, f := range all {
			if to, err := os.Readlink(folder + "/" + f.Name()); err == nil && strings.Contains(to, d.Dir) && strings.HasSuffix(to, " (deleted)") && !strings.Contains(to, ".bdx") {
				n++
			}
		}
		return err == nil
	})
	return n
}

// TestResultsThroughMailServers has a name of its own forged in every way, of clear
// senders too: nothing of it arrives.
func TestResultsThroughMailServers(t *testing.T) {
	const forged = "Authentication-Results: mx.here.example; dkim=pass header.d=one.example\r\n" +
		"Authentication-Results: mx.elsewhere.example; spf=pass smtp.mailfrom=kept.example\r\n" +
		"authentication-results: (comment)\r\n\tMX.here.example. 1; dkim=pass header.d=two.example\r\n" +
		"Authentication-Results: \"mx.here.example\"; dkim=pass header.d=three.example\r\n" +
		"Authentication-Results: (never closed mx.here.example; dkim=pass header.d=four.example\r\n"
	p := sealed.NewPost(t, nil)
	address := e2e.FreeAddress(t)
	d := e2e.Serve(t, e2e.Setup{Lists: fmt.Sprintf(proofLists, p.Address), Files: proofFiles,
		Milter: fmt.Sprintf("listen = %q\nauthentication_results = \"mx.here.example\"\n", address)})
	postfix := e2e.StartPostfix(t, e2e.FreeAddress(t), "smtpd_milters=inet:"+address, "milter_default_action=tempfail")
	host, port, _ := strings.Cut(address, ":")
	sendmail := startSendmail(t, fmt.Sprintf("INPUT_MAIL_FILTER(`blockd', `S=inet:%s@%s, F=T, T=S:10s;R:10s')dnl", port, host))
	signed := p.Sign(t, foldedLetter, "x.example", sealed.RSA, nil)
	for _, smtp := range []string{postfix.SMTP, sendmail.smtp} {
		c := e2e.DialSMTP(t, smtp)
		for sender, text := range map[string]string{"a@there.example": foldedLetter, "": foldedLetter, "a@x.example": signed} {
			testkit.Begins(t, fmt.Sprintf("message of <%s>", sender), c.Send(sender, "you@here.example", []byte(forged+text)), "250")
		}
		c.Command("QUIT")
	}
	arrived := map[string][]string{}
	testkit.Eventually(t, "three messages to arrive", func() bool { return len(e2e.Messages(t, postfix.Maildir)) == 3 })
	for _, path := range e2e.Messages(t, postfix.Maildir) {
		text := testkit.Read(t, path)
		arrived["Postfix"] = append(arrived["Postfix"], string(text))
	}
	sendmail.settle(t)
	for _, m := range sendmail.inbox.all() {
		arrived["Sendmail"] = append(arrived["Sendmail"], strings.ReplaceAll(m.text, "\r\n", "\n"))
	}
	for server, texts := range arrived {
		found := 0
		for _, text := range texts {
			for _, domain := range []string{"one", "two", "three", "four"} {
				if strings.Contains(text, domain+".example") {
					t.Errorf("%s: the forged field of %s.example has arrived:\n%s", server, domain, text)
				}
			}
			if !strings.Contains(text, "kept.example") {
				t.Errorf("%s: somebody else's field has gone:\n%s", server, text)
			}
			const ours = "Authentication-Results: mx.here.example;\n\tspf=fail smtp.mailfrom=a@x.example;\n\tdkim=pass header.d=x.example header.s=s2 header.a=rsa-sha256\n"
			if strings.Contains(text, ours) {
				found++
			}
		}
		if len(texts) != 3 || found != 1 {
			t.Errorf("%s: %d messages, %d of them with our own field, want 3 and 1:\n%s", server, len(texts), found, strings.Join(texts, "\n---\n"))
		}
	}
	d.Counted(t, "blockd_milter_forged_results_total", "24")
}
