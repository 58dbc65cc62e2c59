package servers

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
	"blockd/internal/testkit/sealed"
	"blockd/internal/testkit/selfsigned"
)

// proofLists block x.example, and let it pass with a proof.
var proofLists = "[auth]\nresolver = %q\nmax_message = \"2MiB\"\n" + e2e.List("bad") + e2e.List("partners", `action = "allow"`, `require = ["spf", "dkim"]`)

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

			want("two dots in a row", c.Send("a..b@there.example", "you@here.example", []byte("Subject: dots\r\n\r\nhi\r\n")), "250")
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

// TestProofBeforePostfix has blockd decide about signed mail in front of a real
// Postfix: what is let pass arrives to the octet, and of what is not, nothing.
func TestProofBeforePostfix(t *testing.T) {
	p := sealed.NewPost(t, nameserver.Zone{"TXT y.example": {"v=spf1 ip4:127.0.0.0/8 -all"}})
	pf := e2e.StartPostfix(t, e2e.FreeAddress(t))
	overTLS := e2e.FreeAddress(t)
	d := e2e.Configure(t, e2e.Setup{Upstream: "smtp://" + pf.SMTP,
		SMTP:  fmt.Sprintf("client_info = \"xclient\"\nchunking = true\ntls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\ntls_listen = %q\n", overTLS),
		Lists: fmt.Sprintf(proofLists, p.Address) + "[[list]]\nname = \"phish\"\npath = \"phish.txt\"\nmatch = [\"from\"]\n",
		Files: map[string]string{"bad.txt": proofFiles["bad.txt"], "partners.txt": proofFiles["partners.txt"], "phish.txt": "phish.example\n"}})
	selfsigned.New(t, "filter.here.example").Write(t, d.Dir)
	d.Start(t)
	c := e2e.DialSMTP(t, d.SMTP)
	var passed []string
	want := func(what, prefix, from, text string) {
		t.Helper()
		testkit.Begins(t, what, c.Send(from, "you@here.example", []byte(text)), prefix)
		if prefix == "250" {
			passed = append(passed, strings.ReplaceAll(text, "\r\n", "\n"))
		}
	}
	want("clear sender", "250", "a@there.example", foldedLetter)
	want("listed without exception", "550 5.7.1 ", "a@bad.example", "")
	testkit.Equal(t, fmt.Sprintf("queries of ordinary mail, %v", p.Asked()), p.Count(), 0)
	want("SPF", "250", "a@y.example", "Subject: spf\r\n\r\nhi\r\n")
	large := foldedLetter + strings.Repeat("A line of some length, as there are many.\r\n", 30_000) // 1.2 MiB: in a file
	for _, text := range []string{foldedLetter, large} {
		for _, selector := range []string{sealed.Ed25519, sealed.RSA} {
			signed := p.Sign(t, text, "x.example", selector, func(o *dkim.SignOptions) {
				o.HeaderCanonicalization, o.BodyCanonicalization = dkim.CanonicalizationSimple, dkim.CanonicalizationSimple
			})
			want(fmt.Sprintf("%d octets signed by %s", len(text), selector), "250", "a@x.example", signed)
		}
	}
	signed := p.Sign(t, foldedLetter, "x.example", sealed.RSA, nil)
	const refused = "554 5.7.1 <a@x.example>: Sender address rejected: listed in bad (ref "
	want("no signature", refused, "a@x.example", foldedLetter)
	want("another body", refused, "a@x.example", signed+"more\r\n")
	want("second From", refused, "a@x.example", "From: a@evil.example\r\n"+signed)
	want("signature of another domain", refused, "a@x.example", p.Sign(t, foldedLetter, "evil.example", sealed.RSA, nil))
	want("over max_message", refused, "a@x.example", p.Sign(t, foldedLetter+strings.Repeat(strings.Repeat("x", 70)+"\r\n", 40_000), "x.example", sealed.RSA, nil))
	want("a listed author", "554 5.7.1 <b@phish.example>: From address rejected: listed in phish (ref ", "a@there.example", "From: Bank <b@phish.example>\r\n\r\nhi\r\n")

	// The last chunk is an octet short until the verdict.
	for _, tt := range []struct{ text, want string }{{signed, "250"}, {foldedLetter, refused}, {signed + "more\r\n", refused}, {signed, "250"}} {
		for _, line := range []string{"MAIL FROM:<a@x.example>", "RCPT TO:<you@here.example>"} {
			e2e.MustBegin(t, line, c.Command("%s", line), "250")
		}
		c.Write(fmt.Appendf(nil, "BDAT 100\r\n%sBDAT %d LAST\r\n%s", tt.text[:100], len(tt.text)-100, tt.text[100:]))
		testkit.Begins(t, "first chunk", c.Reply(), "250")
		testkit.Begins(t, "last chunk", c.Reply(), tt.want)
		if tt.want == "250" {
			passed = append(passed, strings.ReplaceAll(tt.text, "\r\n", "\n"))
		}
	}
	testkit.Begins(t, "QUIT", c.Command("QUIT"), "221")

	// A client under TLS is watched while its message is looked at, and can go on behind that.
	conn := testkit.Value(tls.Dial("tcp", overTLS, &tls.Config{InsecureSkipVerify: true}))(t)
	defer conn.Close()
	c = &e2e.Client{T: t, Conn: conn, R: bufio.NewReader(conn)}
	c.Reply()
	c.Command("EHLO client.there.example")
	want("under TLS, no signature", refused, "a@x.example", foldedLetter)
	want("under TLS, signed", "250", "a@x.example", signed)
	want("under TLS, SPF", "250", "a@y.example", "Subject: tls\r\n\r\nhi\r\n")
	testkit.Begins(t, "QUIT", c.Command("QUIT"), "221")

	testkit.Eventually(t, fmt.Sprintf("Postfix to deliver %d messages", len(passed)), func() bool { return len(e2e.Messages(t, pf.Maildir)) >= len(passed) })
	slices.SortFunc(passed, func(a, b string) int { return len(b) - len(a) }) // a signed letter ends as the one without
	for _, path := range e2e.Messages(t, pf.Maildir) {                        // whole, behind the fields that Postfix puts on top
		octets := testkit.Read(t, path)
		text := string(octets)
		i := slices.IndexFunc(passed, func(p string) bool { return strings.HasSuffix(text, "\n"+p) })
		if i < 0 {
			t.Errorf("arrived, and was not let pass as it is: %.300q", text)
			continue
		}
		passed = slices.Delete(passed, i, i+1)
	}
	for _, text := range passed {
		t.Errorf("let pass and has not arrived as it was: %.300q", text)
	}
	testkit.Equal(t, "files of messages that are open", openNameless(t, d), 0)
	for series, want := range map[string]string{`blockd_smtp_messages_total{outcome="refused"}`: "9", "blockd_smtp_panics_total": "0"} {
		d.Counted(t, series, want)
	}
}

// TestGrantWithProof: where SPF passed the client that was refused, what an operator grants lets in mail with SPF or DKIM, and no
// forger, at the SMTP filter and in the milter of a real Postfix; without a record of SPF it lets in all, and says so.
func TestGrantWithProof(t *testing.T) {
	p := sealed.NewPost(t, nameserver.Zone{"TXT x.example": {"v=spf1 ip4:127.0.0.1 -all"}, "TXT broken.example": {"!SERVFAIL"}})
	door, milter := e2e.FreeAddress(t), e2e.FreeAddress(t)
	d := e2e.Serve(t, e2e.Setup{
		Lists: fmt.Sprintf("[auth]\nresolver = %q\ndns_timeout = \"2s\"\n[receipts]\nlisten = %q\n[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", p.Address, door),
		Files: map[string]string{"bad.txt": "x.example\nopen.example\nbroken.example\n"}, Milter: fmt.Sprintf("listen = %q\n", milter)})
	postfix := e2e.StartPostfix(t, e2e.FreeAddress(t), "smtpd_milters=inet:"+milter, "milter_default_action=tempfail")
	send := func(from, at, sender, letter string) string {
		t.Helper()
		c := e2e.DialFrom(t, from, at)
		defer c.Conn.Close()
		return c.Send(sender, "you@here.example", []byte(letter))
	}
	// asked has a refused person ask, and returns the reference.
	asked := func(from, sender string) string {
		t.Helper()
		refused := send(from, d.SMTP, sender, "")
		_, ref, ok := strings.Cut(refused, "(ref ")
		ref, _, _ = strings.Cut(ref, ")")
		if !ok || !strings.HasPrefix(refused, "550 ") {
			t.Fatalf("%s is not refused: %s", sender, refused)
		}
		var resp *http.Response
		testkit.Eventually(t, "the page", func() (ok bool) { // the history writes a moment later
			var err error
			if resp, err = http.PostForm("http://"+door+"/r/"+ref, url.Values{}); err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
		return ref
	}
	want := func(what, got, prefix string) {
		t.Helper()
		if !strings.HasPrefix(got, prefix) {
			t.Errorf("%s: %q, want %q", what, got, prefix)
		}
	}
	const plain = "From: a@x.example\r\nSubject: hi\r\n\r\nhi\r\n"
	proved, forged := asked("127.0.0.1", "a@x.example"), asked("127.0.0.1", "a@open.example")
	states := map[string]string{}
	for line := range strings.Lines(d.Must(t, "requests", "--json")) {
		var q struct{ Ref, State, Time, List, Proof string }
		if err := json.Unmarshal([]byte(line), &q); err != nil || q.State != "open" || q.Time == "" || q.List != "bad" {
			t.Errorf("%s: %v", line, err)
		}
		states[q.Ref] = q.Proof
	}
	if states[proved] != "spf" || states[forged] != "none" {
		t.Errorf("proofs: %v", states)
	}
	if out := d.Must(t, "requests", "grant", proved); !strings.HasPrefix(out, "granted: a@x.example may write until ") || !strings.HasSuffix(out, ", with spf or dkim as proof\n") {
		t.Errorf("grant: %s", out)
	}
	testkit.Has(t, d.Must(t, "list"), "allow with spf or dkim")
	signed := p.Sign(t, "From: a@x.example\r\nSubject: hi\r\nTo: you@here.example\r\nDate: Sat, 21 Nov 2026 10:00:00 +0000\r\nMessage-ID: <1@x.example>\r\n\r\nhi\r\n", "x.example", sealed.RSA, nil)
	for name, at := range map[string]string{"SMTP filter": d.SMTP, "milter of Postfix": postfix.SMTP} {
		want(name+", the sender", send("127.0.0.1", at, "a@x.example", plain), "250")
		want(name+", the sender from elsewhere, signed", send("127.0.0.2", at, "a@x.example", signed), "250")
		want(name+", a forger", send("127.0.0.2", at, "a@x.example", plain), "55")
		want(name+", another address there", send("127.0.0.1", at, "b@x.example", plain), "55")
	}
	if out := d.Must(t, "requests", "grant", forged); !strings.HasSuffix(out, "; no proof is asked for, so whoever writes this address may\n") {
		t.Errorf("grant without proof: %s", out)
	}
	want("without proof", send("127.0.0.2", d.SMTP, "a@open.example", plain), "250")

	// What DNS does not tell is not taken for proof, and not for its absence.
	broken := asked("127.0.0.1", "a@broken.example")
	if code, _, stderr := d.Command(t, "requests", "grant", broken); code == 0 || !strings.Contains(stderr, "DNS does not tell whether SPF passes 127.0.0.1 for a@broken.example") {
		t.Errorf("grant while DNS fails: %d, %s", code, stderr)
	}
	testkit.Has(t, d.Must(t, "requests"), broken, "unknown")
	if out := d.Must(t, "requests", "grant", "--no-proof", broken); !strings.HasSuffix(out, "; no proof is asked for, so whoever writes this address may\n") {
		t.Errorf("grant --no-proof: %s", out)
	}
	want("granted without asking DNS", send("127.0.0.2", d.SMTP, "a@broken.example", plain), "250")
	// The requirement outlives the process.
	d.Stop(t)
	d.Start(t)
	want("after a restart, a forger", send("127.0.0.2", d.SMTP, "a@x.example", plain), "55")
	want("after a restart, the sender", send("127.0.0.1", d.SMTP, "a@x.example", plain), "250")
}
