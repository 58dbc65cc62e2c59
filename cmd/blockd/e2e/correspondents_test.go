package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
	swaks, saslpasswd := testkit.Peer(t, "swaks"), testkit.Peer(t, "saslpasswd2")
	db := filepath.Join(publicDir(t), "sasldb")
	cmd := exec.Command(saslpasswd, "-p", "-c", "-f", db, "-u", "here.example", "anna")
	cmd.Stdin = strings.NewReader("top-secret")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("saslpasswd2: %v\n%s", err, out)
	}
	if err := os.Chmod(db, 0o644); err != nil {
		t.Fatal(err)
	}
	policy, milter, world := freeAddress(t), freeAddress(t), sink(t)
	mta := func(options ...string) *postfix {
		p := configurePostfix(t, freeAddress(t), append([]string{"smtpd_sasl_auth_enable=yes", "smtpd_sasl_type=cyrus", "smtpd_tls_auth_only=no",
			"smtpd_sasl_local_domain=here.example", "smtpd_relay_restrictions=permit_sasl_authenticated,reject_unauth_destination"}, options...)...)
		if err := os.Mkdir(filepath.Join(p.config, "sasl"), 0o755); err != nil {
			t.Fatal(err)
		}
		testkit.Write(t, filepath.Join(p.config, "sasl", "smtpd.conf"), fmt.Sprintf("pwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: %s\nmech_list: PLAIN\n", db))
		p.add(t, "main.cf", "relayhost = [127.0.0.1]:"+strings.TrimPrefix(world, "127.0.0.1:")+"\n")
		p.add(t, "master.cf", "smtp unix - - n - - smtp\n")
		p.start(t)
		return p
	}
	post := sealed.NewPost(t, nameserver.Zone{"TXT spf.example": {"v=spf1 ip4:127.0.0.0/8 -all"}})
	next := mta()
	asks := mta(restrictions("smtpd_recipient_restrictions", "check_policy_service inet:"+policy+", permit"))
	filters := mta("smtpd_milters=inet:" + milter)
	d := configure(t, setup{upstream: "smtp://" + next.smtp, milter: fmt.Sprintf("listen = %q", milter), postfix: fmt.Sprintf("policy_listen = %q", policy),
		smtp:  "client_info = \"xclient\"\nauth = \"forward\"\ntls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\n",
		lists: fmt.Sprintf("[auth]\nresolver = %q\n[correspondents]\nexcuse = false\n[[list]]\nname = \"bad\"\npath = \"bad.txt\"\n", post.Address), files: map[string]string{"bad.txt": "bulk.example\n"}})
	selfsigned.New(t, "filter.here.example").Write(t, d.dir)
	d.start(t)

	people := map[string]string{"carol@smtp.example": d.smtp, "dora@policy.example": asks.smtp, "emil@milter.example": filters.smtp}
	write := func(who, server string) {
		args := []string{"--server", server, "--from", "anna@here.example", "--to", who, "--auth", "PLAIN", "--auth-user", "anna@here.example", "--auth-password", "top-secret"}
		if server == d.smtp {
			args = append(args, "--tls")
		}
		if out, _ := exec.Command(swaks, args...).CombinedOutput(); !strings.Contains(string(out), "queued as") {
			t.Fatalf("%s:\n%s", who, out)
		}
	}
	for who, server := range people {
		write(who, server)
	}
	stranger := dialSMTP(t, d.smtp)
	stranger.send("someone@far.example", "you@here.example", []byte("Subject: hello\r\n\r\nhello\r\n"))
	stranger.command("QUIT")
	d.counted(t, "blockd_correspondents", "3")

	// blockd has not seen these two: the log of Postfix tells of them, and of carol once more.
	write("a@x.example", next.smtp)
	write("frank@spf.example", next.smtp)
	testkit.Eventually(t, "Postfix to deliver to other servers", func() bool { return strings.Count(next.log(), ", status=sent (250 ") >= 3 })
	if out := d.must(t, "learn", "--maillog", filepath.Join(next.dir, "maillog")); !strings.HasPrefix(out, "learned from 3 messages of users to 3 recipients; 5 correspondents known; ") {
		t.Errorf("learn: %s", out)
	}
	people["a@x.example"], people["frank@spf.example"] = "", ""
	d.counted(t, "blockd_correspondents", "5")

	testkit.Write(t, d.path("bad.txt"), "bulk.example\nspam.example\ncarol@smtp.example\npolicy.example\nemil@\nyou@far.example\nx.example\nspf.example\n")
	check := func(when string) {
		t.Helper()
		testkit.Eventually(t, when+": the rest of the load to act", func() bool {
			_, body := d.get("/v1/check?sender=x@spam.example")
			return strings.Contains(body, `"blocked"`)
		})
		for who := range people {
			if code, out, _ := d.command(t, "check", "--explain", who); code != 1 || !strings.Contains(out, "your users wrote to this sender, last on ") {
				t.Errorf("%s, %s: %d\n%s", when, who, code, out)
			}
		}
		if out := d.must(t, "lists"); !strings.Contains(out, "5 held back") {
			t.Errorf("%s, lists:\n%s", when, out)
		}
		if status, text := d.get("/readyz"); status != 200 || !strings.HasPrefix(text, "ok\n") || !strings.Contains(text, "list bad: 5 held back: they would refuse correspondents") {
			t.Errorf("%s, /readyz: %d, %q", when, status, text)
		}
	}
	check("at once")
	if out := d.must(t, "lint", "--held", "bad"); !strings.Contains(out, "(correspondents)") || !strings.Contains(out, "policy.example") {
		t.Errorf("lint --held:\n%s", out)
	}
	if _, body := d.get("/v1/check?explain=1&sender=carol@smtp.example"); strings.Contains(body, "correspondent") {
		t.Errorf("anybody is told: %s", body)
	}
	d.kill(t)
	d.start(t)
	check("after a kill")
	d.stop(t)
	d.start(t)
	check("after a restart")

	d.must(t, "compile", "--accept", "bad")
	testkit.Eventually(t, "the entries to act", func() bool {
		_, body := d.get("/v1/check?sender=carol@smtp.example")
		return strings.Contains(body, `"blocked"`)
	})
	signed := post.Sign(t, sealed.Letter("a@x.example"), "x.example", sealed.RSA, nil)
	said := func(server, from, text string) string {
		c := dialSMTP(t, server)
		defer c.command("QUIT")
		return c.send(from, "you@here.example", []byte(text))[:4]
	}
	doors := []string{d.smtp, filters.smtp, asks.smtp}
	for i, door := range []string{"SMTP", "milter", "policy"} {
		for _, from := range []string{"a@x.example", "frank@spf.example", "emil@milter.example"} {
			if got := said(doors[i], from, signed); !strings.HasPrefix(got, "55") {
				t.Errorf("excuse = false, %s: %s is answered %s", door, from, got)
			}
		}
	}
	d.edit(t, "excuse = false", "excuse = true")
	if code, out := d.reloaded(t); code != 0 {
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
			if got := said(doors[i], tt.from, tt.text); !strings.HasPrefix(got, want) {
				t.Errorf("%s: %s is answered %s at %s, want %s", tt.what, tt.from, got, doors[i], want)
			}
		}
	}
	d.counted(t, "blockd_correspondents_excused_total", "5")
	testkit.Eventually(t, "the history to have them, and their marks", func() bool {
		_, refused, _ := d.command(t, "history", "--json", "--sender", "emil@milter.example")
		_, excused, _ := d.command(t, "history", "--json", "--sender", "frank@spf.example", "--outcome", "accept")
		return strings.Contains(refused, `"correspondent":true`) && strings.Contains(excused, `"excused":true`)
	})

	d.upgraded(t)
	d.counted(t, "blockd_correspondents", "5")
	if out := d.must(t, "forget", "emil@milter.example"); !strings.HasPrefix(out, "erased: ") || !strings.Contains(out, "the correspondent") {
		t.Errorf("forget: %q", out)
	}
	d.counted(t, "blockd_correspondents", "4")
	d.stop(t)
	filepath.WalkDir(d.dir, func(path string, f fs.DirEntry, err error) error {
		if err != nil || f.IsDir() || strings.HasSuffix(path, ".log") || f.Name() == "log" {
			return nil // the log is not kept by the daemon
		}
		if text, _ := os.ReadFile(path); strings.Contains(string(text), "emil@milter.example") {
			t.Errorf("%s names a forgotten person", path)
		}
		return nil
	})
}
