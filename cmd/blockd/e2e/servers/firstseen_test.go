package servers

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestFirstSeen sends mail of new domains through the SMTP filter, a Postfix that asks the policy service and
// one that asks the milter: each first message is tagged, the second is not, and all doors know what one has
// seen. Then a restart, and on_first = "tempfail": what was known is known, and what is new is put off once.
func TestFirstSeen(t *testing.T) {
	policy, milter := e2e.FreeAddress(t), e2e.FreeAddress(t)
	behindPolicy := e2e.StartPostfix(t, e2e.FreeAddress(t), e2e.Restrictions("smtpd_recipient_restrictions", "check_policy_service inet:"+policy+", permit"))
	behindMilter := e2e.StartPostfix(t, e2e.FreeAddress(t), "smtpd_milters=inet:"+milter)
	d := e2e.Serve(t, e2e.Setup{Milter: fmt.Sprintf("listen = %q", milter), Postfix: fmt.Sprintf("policy_listen = %q", policy),
		Lists: "[first_seen]\ndomains = true\non_first = \"tag\"\n"})
	doors := []struct{ name, smtp, maildir string }{
		{"smtp", d.SMTP, d.Maildir}, {"policy", behindPolicy.SMTP, behindPolicy.Maildir}, {"milter", behindMilter.SMTP, behindMilter.Maildir},
	}
	send := func(smtp, sender, subject string) string {
		t.Helper()
		c := e2e.DialSMTP(t, smtp)
		reply := c.Send(sender, "you@here.example", []byte("Subject: "+subject+"\r\n\r\nhi\r\n"))
		c.Command("QUIT")
		return reply
	}
	// tagged reports whether the message with a subject has the field.
	tagged := func(maildir, subject string) (yes bool) {
		t.Helper()
		testkit.Eventually(t, "the message "+subject, func() bool {
			for _, path := range e2e.Messages(t, maildir) {
				text := string(testkit.Read(t, path))
				if strings.Contains(text, "Subject: "+subject) {
					yes = strings.Contains(text, "X-Blockd-First-Seen: yes")
					return true
				}
			}
			return false
		})
		return yes
	}
	for _, door := range doors {
		for i, want := range []bool{true, false} {
			subject := fmt.Sprintf("%s-%d", door.name, i)
			e2e.MustBegin(t, subject, send(door.smtp, fmt.Sprintf("sender%d@new-%s.example", i, door.name), subject), "250")
			testkit.Equal(t, subject+": tagged", tagged(door.maildir, subject), want)
		}
	}
	if send(d.SMTP, "a@new-milter.example", "known"); tagged(d.Maildir, "known") {
		t.Error("the SMTP filter does not know what the milter has seen")
	}
	d.Stop(t)

	d.Edit(t, `on_first = "tag"`, `on_first = "tempfail"`)
	d.Start(t)
	for i, door := range doors {
		testkit.Begins(t, door.name+": of a domain known before the restart", send(door.smtp, "b@new-"+doors[(i+1)%3].name+".example", "after a restart"), "250")
		sender := "a@later-" + door.name + ".example"
		got := send(door.smtp, sender, "first attempt")
		if !strings.HasPrefix(got, "45") || !strings.Contains(got, "4.7.1") || !strings.Contains(got, "domain new here, try again later (ref ") {
			t.Errorf("%s: first attempt: %q", door.name, got)
		}
		ref := e2e.Reference.FindStringSubmatch(got)
		if ref == nil {
			continue
		}
		testkit.Begins(t, door.name+": second attempt", send(door.smtp, sender, "second attempt"), "250")
		d.Prints(t, "history --ref "+ref[1], sender, "had not sent mail here before")
	}
	d.Counted(t, `blockd_first_seen_total{outcome="deferred"}`, "3")
	if files, err := filepath.Glob(d.Path("blockd.bdx.domains.bds")); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}
