package servers

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
	"blockd/internal/testkit/sealed"
	"blockd/internal/testkit/selfsigned"
)

// TestCorrespondents has a user log in at a real Postfix through the SMTP filter, at one that asks the policy service and at one
// that has the milter, and write to a person each; two more are learned from that Postfix's log. A load that would refuse them is held back,
// through a restart and an upgrade too, and explain shows them to who may know. Entries that are let in refuse them, but for
// excuse = true and proof. forget leaves no file that names one.
func TestCorrespondents(t *testing.T) {
	swaks := testkit.Peer(t, "swaks")
	// Sockets for Postfix's group: what comes by TCP of this machine makes nobody a correspondent.
	sockets, world := publicDir(t), e2e.Sink(t)
	policy, milter := "unix:"+filepath.Join(sockets, "policy"), "unix:"+filepath.Join(sockets, "milter")
	mta := func(options ...string) *e2e.Postfix {
		p := saslPostfix(t, "PLAIN", "anna", append(options, "smtpd_tls_auth_only=no")...)
		p.Add(t, "main.cf", "relayhost = [127.0.0.1]:"+strings.TrimPrefix(world, "127.0.0.1:")+"\n")
		p.Add(t, "master.cf", "smtp unix - - n - - smtp\n")
		p.Start(t)
		return p
	}
	post := sealed.NewPost(t, nameserver.Zone{"TXT spf.example": {"v=spf1 ip4:127.0.0.0/8 -all"}})
	next := mta()
	asks := mta(e2e.Restrictions("smtpd_recipient_restrictions", "check_policy_service "+policy+", permit"))
	filters := mta("smtpd_milters=" + milter)
	d := e2e.Configure(t, e2e.Setup{Upstream: "smtp://" + next.SMTP, Milter: fmt.Sprintf("listen = %q\nsocket_group = \"postfix\"", milter),
		Postfix: fmt.Sprintf("policy_listen = %q\nsocket_group = \"postfix\"", policy),
		SMTP:    "client_info = \"xclient\"\nauth = \"forward\"\ntls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\n",
		Lists:   fmt.Sprintf("[auth]\nresolver = %q\n[correspondents]\nexcuse = false\n[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", post.Address), Files: map[string]string{"bad.txt": "bulk.example\n"}})
	selfsigned.New(t, "filter.here.example").Write(t, d.Dir)
	d.Start(t)

	people := map[string]string{"carol@smtp.example": d.SMTP, "dora@policy.example": asks.SMTP, "emil@milter.example": filters.SMTP}
	write := func(who, server string) {
		args := []string{"--server", server, "--from", "anna@here.example", "--to", who, "--auth", "PLAIN", "--auth-user", "anna@here.example", "--auth-password", "top-secret"}
		if server == d.SMTP {
			args = append(args, "--tls")
		}
		if out, _ := exec.Command(swaks, args...).CombinedOutput(); !strings.Contains(string(out), "queued as") {
			t.Fatalf("%s:\n%s", who, out)
		}
	}
	for who, server := range people {
		write(who, server)
	}
	stranger := e2e.DialSMTP(t, d.SMTP)
	stranger.Send("someone@far.example", "you@here.example", []byte("Subject: hello\r\n\r\nhello\r\n"))
	stranger.Command("QUIT")
	d.Counted(t, "blockd_correspondents", "3")

	// blockd has not seen these two: the log of Postfix tells of them, and of carol once more.
	write("a@x.example", next.SMTP)
	write("frank@spf.example", next.SMTP)
	testkit.Eventually(t, "Postfix to deliver to other servers", func() bool { return strings.Count(next.Log(), ", status=sent (250 ") >= 3 })
	if out := d.Must(t, "learn", "--maillog", filepath.Join(next.Dir, "maillog")); !strings.HasPrefix(out, "learned from 3 messages of users to 3 recipients; 5 correspondents known; ") {
		t.Errorf("learn: %s", out)
	}
	people["a@x.example"], people["frank@spf.example"] = "", ""
	d.Counted(t, "blockd_correspondents", "5")

	testkit.Write(t, d.Path("bad.txt"), "bulk.example\nspam.example\ncarol@smtp.example\npolicy.example\nemil@\nyou@far.example\nx.example\nspf.example\n")
	check := func(when string) {
		t.Helper()
		d.Says(t, "/v1/check?sender=x@spam.example", `"blocked"`)
		for who := range people {
			testkit.Has(t, d.Ends(t, 1, "check", "--explain", who), "your users wrote to this sender, last on ")
		}
		testkit.Has(t, d.Must(t, "lists"), "5 held back")
		if status, text := d.Get("/readyz"); status != 200 || !strings.HasPrefix(text, "ok\n") || !strings.Contains(text, "list bad: 5 held back: they would refuse correspondents") {
			t.Errorf("%s, /readyz: %d, %q", when, status, text)
		}
	}
	check("at once")
	testkit.Has(t, d.Must(t, "lint", "--held", "bad"), "(correspondents)", "policy.example")
	if _, body := d.Get("/v1/check?explain=1&sender=carol@smtp.example"); strings.Contains(body, "correspondent") {
		t.Errorf("anybody is told: %s", body)
	}
	d.Kill(t)
	d.Start(t)
	check("after a kill")
	d.Stop(t)
	d.Start(t)
	check("after a restart")

	d.Must(t, "compile", "--accept", "bad")
	d.Says(t, "/v1/check?sender=carol@smtp.example", `"blocked"`)
	signed := post.Sign(t, sealed.Letter("a@x.example"), "x.example", sealed.RSA, nil)
	said := func(server, from, text string) string {
		c := e2e.DialSMTP(t, server)
		defer c.Command("QUIT")
		return c.Send(from, "you@here.example", []byte(text))[:4]
	}
	doors := []string{d.SMTP, filters.SMTP, asks.SMTP}
	for i, door := range []string{"SMTP", "milter", "policy"} {
		for _, from := range []string{"a@x.example", "frank@spf.example", "emil@milter.example"} {
			testkit.Begins(t, fmt.Sprintf("excuse = false, %s: %s", door, from), said(doors[i], from, signed), "55")
		}
	}
	d.Edit(t, "excuse = false", "excuse = true")
	if code, out := d.Reloaded(t); code != 0 {
		t.Fatal(out)
	}
	for _, tt := range []struct{ what, from, text, smtp, milter, policy string }{
		{"with DKIM", "a@x.example", signed, "250 ", "250 ", "55"}, // the policy service sees no message
		{"with SPF", "frank@spf.example", "Subject: hello\r\n\r\nhello\r\n", "250 ", "250 ", "250 "},
		{"forged, no signature", "a@x.example", sealed.Letter("a@x.example"), "55", "55", "55"},
		{"forged, signed by another", "a@x.example", post.Sign(t, sealed.Letter("a@x.example"), "evil.example", sealed.RSA, nil), "55", "55", "55"},
		{"without any proof", "emil@milter.example", sealed.Letter("emil@milter.example"), "55", "55", "55"},
		{"no correspondent, with SPF", "other@spf.example", "Subject: hello\r\n\r\nhello\r\n", "55", "55", "55"},
	} {
		for i, want := range []string{tt.smtp, tt.milter, tt.policy} {
			testkit.Begins(t, fmt.Sprintf("%s: %s at %s", tt.what, tt.from, doors[i]), said(doors[i], tt.from, tt.text), want)
		}
	}
	d.Counted(t, "blockd_correspondents_excused_total", "5")
	testkit.Eventually(t, "the history to have them, and their marks", func() bool {
		_, refused, _ := d.Command(t, "history", "--json", "--sender", "emil@milter.example")
		_, excused, _ := d.Command(t, "history", "--json", "--sender", "frank@spf.example", "--outcome", "accept")
		return strings.Contains(refused, `"correspondent":true`) && strings.Contains(excused, `"excused":true`)
	})

	d.Upgraded(t)
	d.Counted(t, "blockd_correspondents", "5")
	if out := d.Must(t, "forget", "emil@milter.example"); !strings.HasPrefix(out, "erased: ") || !strings.Contains(out, "the correspondent") {
		t.Errorf("forget: %q", out)
	}
	d.Counted(t, "blockd_correspondents", "4")
	d.Stop(t)
	filepath.WalkDir(d.Dir, func(path string, f fs.DirEntry, err error) error {
		if err != nil || f.IsDir() || strings.HasSuffix(path, ".log") || f.Name() == "log" {
			return nil // the log is not kept by the daemon
		}
		if text, _ := os.ReadFile(path); strings.Contains(string(text), "emil@milter.example") {
			t.Errorf("%s names a forgotten person", path)
		}
		return nil
	})
}

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
