package servers

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

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
