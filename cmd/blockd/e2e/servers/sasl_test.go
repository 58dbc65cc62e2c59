package servers

import (
	"crypto/tls"
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
)

// TestAuthWithPostfix has swaks log in through blockd to a real Postfix that asks
// Cyrus SASL, by each mechanism that may pass.
func TestAuthWithPostfix(t *testing.T) {
	swaks, saslpasswd := testkit.Peer(t, "swaks"), testkit.Peer(t, "saslpasswd2")
	db := filepath.Join(publicDir(t), "sasldb") // Postfix reads it as its own user
	cmd := exec.Command(saslpasswd, "-p", "-c", "-f", db, "-u", "here.example", "user")
	cmd.Stdin = strings.NewReader("top-secret")
	e2e.Ran(t, cmd)
	testkit.Must(t, os.Chmod(db, 0o644))
	p := e2e.ConfigurePostfix(t, e2e.FreeAddress(t), "smtpd_sasl_auth_enable=yes", "smtpd_sasl_type=cyrus",
		"smtpd_sasl_local_domain=here.example", "smtpd_relay_restrictions=permit_sasl_authenticated,reject_unauth_destination")
	// Debian's Postfix looks for SASL's settings beside main.cf and nowhere else.
	testkit.Must(t, os.Mkdir(filepath.Join(p.Config, "sasl"), 0o755))
	testkit.Write(t, filepath.Join(p.Config, "sasl", "smtpd.conf"), fmt.Sprintf(
		"pwcheck_method: auxprop\nauxprop_plugin: sasldb\nsasldb_path: %s\nmech_list: PLAIN LOGIN CRAM-MD5 DIGEST-MD5\n", db))
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
