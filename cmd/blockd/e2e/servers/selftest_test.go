package servers

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
	"blockd/smtpfilter/upstream"
)

// What the open-relay test finds.
const (
	closedRelay = "passes"
	openRelay   = "open relay"
	undecided   = "undecided"
)

// selfTest puts the question to a real server, as the daemon does each minute.
func selfTest(t *testing.T, address, clientInfo, recipient string) (found string, err error) {
	t.Helper()
	err = upstream.New(upstream.Settings{Network: "tcp", Address: address, Hostname: "filter.here.example",
		ClientInfo: clientInfo, ReplyTimeout: time.Minute, SelfTestRecipient: recipient}).SelfTest(t.Context())
	switch {
	case err == nil:
		return closedRelay, nil
	case errors.Is(err, upstream.ErrOpenRelay):
		return openRelay, err
	case errors.Is(err, upstream.ErrUndecided):
		return undecided, err
	}
	return "an error", err
}

// A Postfix that would relay anywhere is never taken for a closed one, whatever it
// objects to ahead of that, and a closed one is.
func TestSelfTestOfPostfix(t *testing.T) {
	const open = "mynetworks=0.0.0.0/0" // an smtpd without any reject_unauth_destination does not start
	cases := []struct {
		name      string
		options   []string
		recipient string // smtp.selftest_recipient
		want      string
		says      string // within the error
	}{
		{"closed", nil, "", closedRelay, ""},
		{"closed, and puts it off", []string{"smtpd_relay_restrictions=defer_unauth_destination"}, "", closedRelay, ""},
		{"closed by the end of a list", []string{"smtpd_relay_restrictions=", "smtpd_recipient_restrictions=permit_auth_destination,reject"}, "", closedRelay, ""},
		{"closed, with reject_unknown_recipient_domain", []string{"smtpd_recipient_restrictions=reject_unknown_recipient_domain"}, "", closedRelay, ""},
		{"open", []string{open}, "", openRelay, ""},
		{"reject_unknown_recipient_domain", []string{open, "smtpd_recipient_restrictions=reject_unknown_recipient_domain"}, "",
			undecided, "set smtp.selftest_recipient"},
		{"reject_unknown_recipient_domain with 550", []string{open, "smtpd_recipient_restrictions=reject_unknown_recipient_domain", "unknown_address_reject_code=550"}, "",
			undecided, "550 5.1.2"},
		{"the same, and a recipient that exists", []string{open, "smtpd_recipient_restrictions=reject_unknown_recipient_domain", "unknown_address_reject_code=550"}, "you@elsewhere.test",
			openRelay, ""},
		{"closed, the same, and a recipient that exists", []string{"smtpd_recipient_restrictions=reject_unknown_recipient_domain", "unknown_address_reject_code=550"}, "you@elsewhere.test",
			closedRelay, ""},
		{"reject_unlisted_recipient", []string{open}, "you@listed.test",
			undecided, "550 5.1.1"},
		{"reject_unknown_client_hostname", []string{open, "smtpd_client_restrictions=reject_unknown_client_hostname"}, "",
			undecided, "203.0.113.9 "},
		{"an access table of clients", []string{open, "smtpd_client_restrictions=check_client_access,inline:{203.0.113.9=REJECT}"}, "",
			undecided, "Client host rejected"},
		{"the same, said at once", []string{open, "smtpd_delay_reject=no", "smtpd_client_restrictions=check_client_access,inline:{203.0.113.9=REJECT}"}, "",
			undecided, "Client host rejected"},
		{"a list of clients in DNS", []string{open, "smtpd_client_restrictions=reject_rbl_client,rbl.test"}, "",
			undecided, "blocked using rbl.test"},
		{"reject_unknown_helo_hostname", []string{open, "smtpd_helo_required=yes", "smtpd_helo_restrictions=reject_unknown_helo_hostname,reject_non_fqdn_helo_hostname"}, "",
			openRelay, ""},
		{"an access table of HELO names", []string{open, "smtpd_helo_restrictions=check_helo_access,inline:{[203.0.113.9]=REJECT}"}, "",
			undecided, "Helo command rejected"},
		{"reject_unknown_sender_domain", []string{open, "smtpd_sender_restrictions=reject_unknown_sender_domain"}, "",
			openRelay, ""},
		{"an access table of senders", []string{open, "smtpd_sender_restrictions=check_sender_access,inline:{<>=REJECT}"}, "",
			undecided, "Sender address rejected"},
		{"the same, said at MAIL", []string{open, "smtpd_delay_reject=no", "smtpd_sender_restrictions=check_sender_access,inline:{<>=REJECT}"}, "",
			undecided, "refused at MAIL"},
	}
	p := e2e.ConfigurePostfix(t, e2e.FreeAddress(t))
	addresses := make([]string, len(cases))
	for i, c := range cases {
		addresses[i] = e2e.FreeAddress(t)
		line := addresses[i] + " inet n - n - - smtpd -o smtpd_authorized_xclient_hosts=127.0.0.1"
		for _, option := range c.options {
			line += "\n  -o { " + strings.Replace(option, "=", " = ", 1) + " }"
		}
		p.Add(t, "master.cf", line+"\n")
	}
	p.Add(t, "main.cf", "relay_domains = listed.test\nrelay_recipient_maps = inline:{me@listed.test=x}\n")
	p.Start(t, besideDNS(t, p.Dir, nameserver.Zone{
		"A elsewhere.test": {"192.0.2.1"}, "MX elsewhere.test": {"10 mx.elsewhere.test."}, "A mx.elsewhere.test": {"192.0.2.1"},
		"A 9.113.0.203.rbl.test": {"127.0.0.2"},
	})...)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			testkit.Eventually(t, "Postfix to listen", func() bool { return e2e.Listens(addresses[i]) })
			found, err := selfTest(t, addresses[i], "xclient", c.recipient)
			if found != c.want || c.says != "" && !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%s: %v, want %s with %q", found, err, c.want, c.says)
			}
			t.Log(err)
		})
	}

	// The daemon's own words, and what passes meanwhile.
	const domain = 6 // reject_unknown_recipient_domain with 550
	d := e2e.Serve(t, e2e.Setup{Upstream: "smtp://" + addresses[domain], SMTP: "client_info = \"xclient\"\n"})
	if status, body := d.Get("/readyz"); status != http.StatusOK || !strings.HasPrefix(body, "degraded\n") || !strings.Contains(body, "set smtp.selftest_recipient") {
		t.Errorf("/readyz = %d %q, want degraded with the setting that helps", status, body)
	}
	d.Logged(t, 1, "upstream may be an open relay")
	c := e2e.DialSMTP(t, d.SMTP)
	c.Command("MAIL FROM:<a@friend.example>")
	testkit.Begins(t, "mail while the test is undecided", c.Command("RCPT TO:<you@here.example>"), "250")
	d = e2e.Configure(t, e2e.Setup{Upstream: "smtp://" + addresses[domain], SMTP: "client_info = \"xclient\"\nselftest_recipient = \"you@elsewhere.test\"\n"})
	d.Unready = true
	d.Start(t)
	testkit.Eventually(t, "the open relay to be found", func() bool {
		status, body := d.Get("/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(body, "open relay")
	})
}

// besideDNS is a command that runs another one in a place of its own in the file system,
// where resolv.conf names a server with this zone.
func besideDNS(t *testing.T, dir string, zone nameserver.Zone) []string {
	t.Helper()
	address := e2e.OneOfLoopback() + ":53"
	by := e2e.BesideResolver(t, dir, address)
	nameserver.ServeAt(t, address, zone)
	return by
}

// What the other servers say to it, as tests have them: closed.
func TestSelfTestOfEachServer(t *testing.T) {
	for _, tt := range []struct {
		name, recipient string
		start           func(t *testing.T) *mailServer
		want            string
	}{
		{"Exim", "", func(t *testing.T) *mailServer { return startExim(t) }, closedRelay},
		{"Sendmail", "", func(t *testing.T) *mailServer { return startSendmail(t) }, closedRelay},
		// It says the same of a relay that it denies and of what it cannot make out.
		{"OpenSMTPD", "", func(t *testing.T) *mailServer { return startOpenSMTPD(t, "") }, undecided},
		{"OpenSMTPD and a recipient that exists", "you@elsewhere.example", func(t *testing.T) *mailServer { return startOpenSMTPD(t, "") }, closedRelay},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := tt.start(t)
			found, err := selfTest(t, s.behind, s.clientInfo, tt.recipient)
			if found != tt.want {
				t.Errorf("%s: %v, want %s", found, err, tt.want)
			}
			c := e2e.DialSMTP(t, s.smtp)
			c.Command("MAIL FROM:<>")
			t.Log(c.Command("RCPT TO:<blockd-selftest@selftest.invalid>"), err)
		})
	}
}
