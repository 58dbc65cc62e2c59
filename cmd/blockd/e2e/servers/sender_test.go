package servers

import (
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestPostfixReadsTheSameSender sends addresses that a filter and the server
// behind it may read in two ways. blockd judges the sender that Postfix sees:
// what it has not refused itself must stand in Postfix's log as the sender whose
// domain was looked up.
func TestPostfixReadsTheSameSender(t *testing.T) {
	p := e2e.StartPostfix(t, e2e.FreeAddress(t))
	d := e2e.Serve(t, e2e.Setup{
		Upstream: "smtp://" + p.SMTP, SMTP: `client_info = "xclient"`,
		Lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", Files: map[string]string{"bad.txt": "blocked.example\n"},
	})
	tests := []struct{ name, mail, want string }{ // want: the domain in Postfix's log, or the beginning of our reply
		{"plain", `MAIL FROM:<a@good.example>`, "good.example"},
		{"a blank behind the colon", `MAIL FROM: <a@good.example>`, "good.example"},
		{"a parameter in quotes", `MAIL FROM:<"victim@blocked.example> ENVID=a"@good.example>`, "good.example"},
		{"a bracket in quotes", `MAIL FROM:<"a>b"@good.example>`, "good.example"},
		{"an escaped quote", `MAIL FROM:<"a\"b@blocked.example"@good.example>`, "good.example"},
		{"a source route", `MAIL FROM:<@blocked.example:a@good.example>`, "good.example"},
		{"a source route to a listed sender", `MAIL FROM:<@good.example:a@blocked.example>`, "550 5.7.1 <a@blocked.example>"},
		{"a listed sender in capitals", `MAIL FROM:<A@Blocked.EXAMPLE>`, "550 5.7.1 <a@blocked.example>"},
		{"a listed sender in quotes", `MAIL FROM:<"a"@blocked.example>`, "550 5.7.1 <a@blocked.example>"},
		{"a percent hack", `MAIL FROM:<a%blocked.example@good.example>`, "good.example"},
		{"a bang path", `MAIL FROM:<blocked.example!a@good.example>`, "good.example"},
		{"two at signs", `MAIL FROM:<a@blocked.example@good.example>`, "553 5.1.7 "},
		{"a trailing dot", `MAIL FROM:<a@blocked.example.>`, "553 5.1.7 "},
		{"a comment", `MAIL FROM:<a@blocked.example(good.example)>`, "553 5.1.7 "},
		{"no brackets", `MAIL FROM:a@blocked.example`, "50"},
		{"a literal in a route", `MAIL FROM:<@[v@blocked.example> X]:a@good.example>`, "553 5.1.7 "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := len(p.Log())
			c := e2e.DialSMTP(t, d.SMTP)
			got := c.Command("%s", tt.mail)
			if strings.HasPrefix(got, "250") {
				got = c.Command("RCPT TO:<user@here.example>")
			}
			if !strings.HasPrefix(got, "250") {
				if !strings.HasPrefix(got, tt.want) {
					t.Errorf("%s = %q, want %q", tt.mail, got, tt.want)
				}
				return
			}
			c.Command("DATA")
			c.Write([]byte("Subject: who is it?\r\n\r\n.\r\n"))
			e2e.MustBegin(t, "the dot", c.Reply(), "250")
			var from string
			testkit.Eventually(t, "Postfix to log the sender", func() bool {
				_, after, ok := strings.Cut(p.Log()[before:], "from=<")
				from, _, _ = strings.Cut(after, ">, size=")
				return ok && from != after
			})
			testkit.Equal(t, tt.mail+": the domain that Postfix took mail from", from[strings.LastIndex(from, "@")+1:], tt.want)
		})
	}
}
