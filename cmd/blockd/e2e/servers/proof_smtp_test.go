package servers

import (
	"bufio"
	"crypto/tls"
	"fmt"
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
