package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

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
			p := configurePostfix(t, freeAddress(t))
			ours, theirs := freeAddress(t), freeAddress(t)
			d := serve(t, setup{lists: "[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", files: map[string]string{"bad.txt": "bad.example\n"}, milter: fmt.Sprintf("listen = %q\n", ours)})
			fragment := strings.ReplaceAll(string(testkit.Read(t, filepath.Join(root, "packaging/containers", tt.file))), "inet:blockd:8892", "inet:"+ours)
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
			p.add(t, "main.cf", base+kept.String())
			if tt.defined {
				serve(t, setup{lists: "[[list]]\nname = \"second\"\npath = \"second.txt\"\n", files: map[string]string{"second.txt": "other.example\n"},
					milter: fmt.Sprintf("listen = %q\n", theirs)})
			}
			p.start(t)
			c := dialSMTP(t, p.smtp)
			for from, want := range map[string]string{"a@bad.example": "listed in bad", "friend@there.example": "", "a@other.example": map[bool]string{true: "listed in second"}[tt.defined]} {
				c.command("MAIL FROM:<%s>", from)
				reply := c.command("RCPT TO:<you@here.example>")
				if want == "" && !strings.HasPrefix(reply, "250") || want != "" && (!strings.HasPrefix(reply, "550 5.7.1") || !strings.Contains(reply, want)) {
					t.Errorf("%s: %q, want %q", from, reply, want)
				}
				c.command("RSET")
			}
			c.command("QUIT")

			d.stop(t)
			away := dialSMTP(t, p.smtp)
			away.command("MAIL FROM:<a@bad.example>")
			if reply := away.command("RCPT TO:<you@here.example>"); !strings.HasPrefix(reply, "250") {
				t.Errorf("while blockd is away: %q", reply)
			}
		})
	}
}
