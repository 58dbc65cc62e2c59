package session

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit/dialogue"
	"blockd/internal/testkit/script"
	"blockd/mail/addr"
	"blockd/policy"
)

// TestOnlyAcceptedMessagesCount: a sender has written when upstream has said 250 to the
// end of its message, and not before, whatever it does.
func TestOnlyAcceptedMessagesCount(t *testing.T) {
	lists := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{
		{Name: "bad", Entries: []string{"bad.example"}}, {Name: "trial", Kind: "shadow", Entries: []string{"trial.example"}},
		{Name: "good", Kind: "allow", Entries: []string{"good.example"}},
	}}
	ix := lists.Index(t)
	const opening = "MAIL FROM:<a@there.example>|250 RCPT TO:<bob@here.example>|250 "
	tests := []struct {
		rule   string
		server func(*script.Server)
		say    string // command|answer, "_" for a blank, "#" for a line's end
		want   string
	}{
		{"20 times MAIL, RCPT and RSET", nil, strings.Repeat(opening+"RSET|250 ", 20), ""},
		{"a client that goes away", nil, opening, ""},
		{"a client that goes away in DATA", nil, opening + "DATA|354", ""},
		{"a message that upstream refuses", func(s *script.Server) { s.On(script.Dot, "554 spam") }, opening + "DATA|354 hello\r\n.|554", ""},
		{"a message that upstream puts off", func(s *script.Server) { s.On(script.Dot, "451 later") }, opening + "DATA|354 hello\r\n.|451", ""},
		{"a message", nil, opening + "DATA|354 hello\r\n.|250", "a@there.example from 192.0.2.7"},
		{"a message in chunks", nil, opening + "BDAT_7_LAST#hello|250", "a@there.example from 192.0.2.7"},
		{"half a message in chunks", nil, opening + "BDAT_7#hello|250 RSET|250", ""},
		{"two messages", nil, opening + "DATA|354 hello\r\n.|250 MAIL FROM:<b@other.example>|250 RCPT TO:<bob@here.example>|250 DATA|354 hello\r\n.|250",
			"a@there.example from 192.0.2.7 b@other.example from 192.0.2.7"},
		{"a listed sender, to postmaster", nil, "MAIL FROM:<a@bad.example>|250 RCPT TO:<postmaster@here.example>|250 DATA|354 hello\r\n.|250", ""},
		{"a sender of a shadow list", nil, "MAIL FROM:<a@trial.example>|250 RCPT TO:<bob@here.example>|250 DATA|354 hello\r\n.|250", ""},
		{"an allowed sender", nil, "MAIL FROM:<a@good.example>|250 RCPT TO:<bob@here.example>|250 DATA|354 hello\r\n.|250", ""},
		{"a bounce", nil, "MAIL FROM:<>|250 RCPT TO:<bob@here.example>|250 DATA|354 hello\r\n.|250", ""},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var told []string
				checker := policy.New(func() *index.Index { return ix }, policy.Settings{RecipientsExempt: []string{"postmaster"},
					Completed: func(a addr.Addr, client netip.Addr) { told = append(told, a.String()+" from "+client.String()) },
				}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
				server := &script.Server{Caps: []string{"PIPELINING", "CHUNKING"}}
				if tt.server != nil {
					tt.server(server)
				}
				_, c := begin(t, server, checker, Settings{Chunking: true})
				say := strings.NewReplacer("MAIL FROM", "MAIL_FROM", "RCPT TO", "RCPT_TO").Replace(tt.say)
				for _, step := range strings.Split(strings.TrimSpace(say), " ") {
					command, answer, _ := strings.Cut(step, "|")
					c.want(strings.NewReplacer("_", " ", "#", "\r\n").Replace(command), answer)
				}
				c.close()
				server.Wait()
				if got := strings.Join(told, " "); got != tt.want {
					t.Errorf("told of %q, want %q", got, tt.want)
				}
			})
		})
	}
}
