package servers

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
	"blockd/smtpfilter/upstream"
)

// TestTLSWithPostfix has a real Postfix as the next server that takes nothing in
// the clear: XCLIENT inside TLS, the self-test, and mail that arrives.
func TestTLSWithPostfix(t *testing.T) {
	cert := selfsigned.New(t, "mail.here.example")
	pin := upstream.PinOf(cert.Leaf)
	byPin := fmt.Sprintf("upstream_tls_pin = [%q]\n", base64.StdEncoding.EncodeToString(pin[:]))
	// Where Postfix's unprivileged processes may read them.
	dir := publicDir(t)
	certPath, keyPath := cert.Write(t, dir)
	shown := []string{"smtpd_tls_cert_file=" + certPath, "smtpd_tls_key_file=" + keyPath, "smtpd_tls_loglevel=1"}
	tests := []struct {
		name     string
		postfix  []string // options of smtpd
		settings string   // of [smtp]
	}{
		{"starttls by name and authority", []string{"smtpd_tls_security_level=encrypt"},
			"upstream_tls = \"starttls\"\nupstream_tls_name = \"mail.here.example\"\nupstream_tls_ca = \"" + certPath + "\"\n"},
		{"starttls by pin", []string{"smtpd_tls_security_level=encrypt"}, "upstream_tls = \"starttls\"\n" + byPin},
		{"implicit by pin", []string{"smtpd_tls_wrappermode=yes"}, "upstream_tls = \"implicit\"\n" + byPin},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := e2e.StartPostfix(t, e2e.FreeAddress(t), append(tt.postfix, shown...)...)
			d := e2e.Serve(t, e2e.Setup{Upstream: "smtp://" + p.SMTP, Lists: e2e.BadList, Files: e2e.BadFiles, SMTP: "client_info = \"xclient\"\n" + tt.settings})
			c := e2e.DialSMTP(t, d.SMTP)
			testkit.Begins(t, "a listed sender", c.Send("a@bulk.example", "you@here.example", nil), "550 5.7.1 ")
			testkit.Begins(t, "a clear sender", c.Send("friend@there.example", "you@here.example", e2e.Crlf([]byte("Subject: under TLS\n\nhi\n"))), "250 ")
			testkit.Eventually(t, "the message to arrive", func() bool { return len(e2e.Messages(t, p.Maildir)) == 1 })
			d.CountedSome(t, `blockd_upstream_selftest_total{result="passed"}`)
			testkit.Eventually(t, "Postfix to tell of TLS", func() bool { return strings.Contains(p.Log(), "TLS connection established from") })
		})
	}
}

// Where TLS is asked for and cannot be had, no mail passes, and the log and
// /readyz say why.
func TestUpstreamWithoutTLSGetsNothing(t *testing.T) {
	p := e2e.StartPostfix(t, e2e.FreeAddress(t))
	d := e2e.Configure(t, e2e.Setup{Upstream: "smtp://" + p.SMTP, SMTP: "client_info = \"xclient\"\nupstream_tls = \"starttls\"\n"})
	d.Unready = true
	d.Start(t)
	d.Says(t, "/readyz", "smtp.upstream: upstream does not offer STARTTLS, and nothing is sent in the clear")
	c := e2e.DialTalk(t, d.SMTP)
	testkit.Begins(t, "EHLO", c.Command("EHLO client.there.example"), "421 4.4.1 ")
}

// TestTLSClients connects openssl and swaks, by STARTTLS and with TLS from the
// first octet, and renews the certificate under their eyes.
func TestTLSClients(t *testing.T) {
	cert := selfsigned.New(t, "filter.here.example")
	d := e2e.Configure(t, e2e.Setup{Lists: e2e.BadList, Files: e2e.BadFiles,
		SMTP: "tls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\ntls_listen = \"127.0.0.1:0\"\n"})
	tlsAddress := e2e.FreeAddress(t)
	d.Edit(t, "127.0.0.1:0", tlsAddress)
	certPath, _ := cert.Write(t, d.Dir)
	d.Start(t)

	for _, args := range [][]string{{"--tls", "--server", d.SMTP}, {"--tlsc", "--server", tlsAddress}} {
		t.Run("swaks "+args[0], func(t *testing.T) {
			args := append(args, "--tls-verify", "--tls-ca-path", certPath, "--ehlo", "client.there.example",
				"--from", "friend@there.example", "--to", "you@here.example", "--body", "hello")
			before := len(e2e.Messages(t, d.Maildir))
			if out, err := exec.Command(testkit.Peer(t, "swaks"), args...).CombinedOutput(); err != nil || !bytes.Contains(out, []byte("TLS started with cipher TLS")) {
				t.Errorf("swaks %q: %v\n%s", args, err, out)
			}
			testkit.Equal(t, "messages in the Maildir", len(e2e.Messages(t, d.Maildir)), before+1)
		})
	}
	openssl := testkit.Peer(t, "openssl")
	serial := func() string {
		cmd := exec.Command(openssl, "s_client", "-starttls", "smtp", "-connect", d.SMTP, "-CAfile", certPath, "-verify_return_error", "-quiet")
		cmd.Stdin = strings.NewReader("EHLO c.example\r\nQUIT\r\n")
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("221 2.0.0 ")) {
			return fmt.Sprintf("openssl s_client: %v\n%s", err, out)
		}
		return ""
	}
	testkit.Equal(t, "faults of openssl s_client", serial(), "")
	for _, old := range []string{"-tls1", "-tls1_1"} {
		cmd := exec.Command(openssl, "s_client", "-starttls", "smtp", "-connect", d.SMTP, old, "-cipher", "DEFAULT@SECLEVEL=0")
		if out, err := cmd.CombinedOutput(); err == nil && !bytes.Contains(out, []byte("Cipher is (NONE)")) {
			t.Errorf("openssl s_client %s: a handshake below TLS 1.2\n%s", old, out)
		}
	}
	// certPath is both what is shown and what is trusted: with the new pair in
	// place only a daemon that shows it passes.
	selfsigned.New(t, "filter.here.example").Write(t, d.Dir)
	if fault := serial(); fault == "" {
		t.Error("the new certificate is trusted before it can have been taken up, or the test trusts anything")
	}
	d.Reload(t)
	fault := ""
	testkit.Eventually(t, "the new certificate to be shown", func() bool { fault = serial(); return fault == "" })
	testkit.Write(t, filepath.Join(d.Dir, "key.pem"), "torn")
	d.Reload(t)
	d.Counted(t, "blockd_smtp_tls_certificate_current", "0") // the torn pair is noticed
	testkit.Equal(t, "with a torn pair on disk, for the one before", serial(), "")
	if got := d.Metric("blockd_smtp_tls_certificate_valid_until_timestamp_seconds"); got == "" || got == "0" {
		t.Errorf("valid until = %q", got)
	}
}

// The command line of docs/smtp.md prints what upstream_tls_pin wants.
func TestPinOfOpenSSL(t *testing.T) {
	testkit.Peer(t, "openssl")
	text := testkit.Read(t, filepath.Join(e2e.Root, "docs", "smtp.md"))
	_, line, ok := strings.Cut(string(text), "\n    openssl x509 ")
	line, _, ok2 := strings.Cut(line, "\n\n")
	if !ok || !ok2 {
		t.Fatal("docs/smtp.md has no command for a pin")
	}
	dir := t.TempDir()
	cert := selfsigned.New(t, "mail.here.example")
	cert.Write(t, dir)
	cmd := exec.Command("/bin/sh", "-c", "openssl x509 "+line)
	cmd.Dir = dir
	out, err := cmd.Output()
	pin := upstream.PinOf(cert.Leaf)
	if want := base64.StdEncoding.EncodeToString(pin[:]); err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("%v: printed %q, want %q", err, out, want)
	}
}

// saslUser gives a user a password in a database of Cyrus SASL.
func saslUser(t *testing.T, db, domain, user, password string) {
	t.Helper()
	cmd := exec.Command(testkit.Peer(t, "saslpasswd2"), "-p", "-c", "-f", db, "-u", domain, user)
	cmd.Stdin = strings.NewReader(password)
	e2e.Ran(t, cmd)
}

// saslPostfix is a Postfix that a user at here.example may log in at with the password top-secret. It is not started yet.
func saslPostfix(t *testing.T, mechanisms, user string, options ...string) *e2e.Postfix {
	t.Helper()
	db := filepath.Join(publicDir(t), "sasldb") // Postfix reads it as its own user
	saslUser(t, db, "here.example", user, "top-secret")
	testkit.Must(t, os.Chmod(db, 0o644))
	p := e2e.ConfigurePostfix(t, e2e.FreeAddress(t), append([]string{"smtpd_sasl_auth_enable=yes", "smtpd_sasl_type=cyrus",
		"smtpd_sasl_local_domain=here.example", "smtpd_relay_restrictions=permit_sasl_authenticated,reject_unauth_destination"}, options...)...)
	// Debian's Postfix looks for SASL's settings beside main.cf and nowhere else.
	testkit.Write(t, filepath.Join(p.Config, "sasl", "smtpd.conf"), fmt.Sprintf("pwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: %s\nmech_list: %s\n", db, mechanisms))
	return p
}

// TestAuthWithPostfix has swaks log in through blockd to a real Postfix that asks
// Cyrus SASL, by each mechanism that may pass.
func TestAuthWithPostfix(t *testing.T) {
	swaks := testkit.Peer(t, "swaks")
	p := saslPostfix(t, "PLAIN LOGIN CRAM-MD5 DIGEST-MD5", "user")
	p.Start(t)
	d := e2e.Configure(t, e2e.Setup{Upstream: "smtp://" + p.SMTP, Lists: e2e.BadList, Files: e2e.BadFiles,
		SMTP: "client_info = \"xclient\"\nauth = \"forward\"\ntls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\n"})
	cert := selfsigned.New(t, "filter.here.example")
	cert.Write(t, d.Dir)
	d.Start(t)

	send := func(args ...string) string {
		args = append([]string{"--server", d.SMTP, "--ehlo", "client.there.example", "--body", "hello"}, args...)
		out, _ := exec.Command(swaks, args...).CombinedOutput()
		return string(out)
	}
	login := []string{"--tls", "--auth-user", "user@here.example", "--auth-password", "top-secret", "--from", "user@bulk.example"}
	for _, mechanism := range []string{"PLAIN", "LOGIN", "CRAM-MD5"} {
		t.Run(mechanism, func(t *testing.T) {
			before := strings.Count(p.Log(), "sasl_method="+mechanism)
			// A listed sender, to be relayed: both are for users only.
			out := send(append(login, "--auth", mechanism, "--to", "you@elsewhere.example")...)
			if !strings.Contains(out, "235 2.7.0 ") || !strings.Contains(out, "queued as") {
				t.Errorf("swaks:\n%s", out)
			}
			testkit.Eventually(t, "Postfix to know the user", func() bool {
				return strings.Count(p.Log(), "sasl_method="+mechanism+", sasl_username=user@here.example") > before
			})
		})
	}
	refused := []struct {
		name, want string
		args       []string
	}{
		{"a wrong password", "535 5.7.8 ", append(login, "--auth", "PLAIN", "--auth-password", "wrong", "--to", "you@here.example")},
		{"in the clear", "not advertise", append(login[1:], "--auth", "PLAIN", "--to", "you@here.example")},
		{"without a login", "550 5.7.1 <user@bulk.example>", []string{"--tls", "--from", "user@bulk.example", "--to", "you@here.example"}},
		{"without a login, to be relayed", "554 5.7.1 <you@elsewhere.example>", []string{"--tls", "--from", "user@friend.example", "--to", "you@elsewhere.example"}},
	}
	for _, tt := range refused {
		t.Run(tt.name, func(t *testing.T) {
			if out := send(tt.args...); !strings.Contains(out, tt.want) || strings.Contains(out, "queued as") {
				t.Errorf("swaks says nothing of %q:\n%s", tt.want, out)
			}
		})
	}
	// A mechanism that may add a layer of its own is not offered. swaks cannot show it: what it
	// says depends on the modules of Perl beside it.
	under := testkit.Value(smtp.Dial(d.SMTP))(t)
	defer under.Close()
	testkit.Must(t, under.StartTLS(&tls.Config{ServerName: "filter.here.example", RootCAs: cert.Pool()}))
	if _, offered := under.Extension("AUTH"); offered != "PLAIN LOGIN CRAM-MD5" {
		t.Errorf("offered: AUTH %s", offered)
	}
	if log := d.WholeLog(t); strings.Contains(log, "top-secret") {
		t.Error("the password is in blockd's log")
	}
}
