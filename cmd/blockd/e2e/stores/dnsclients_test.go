package stores

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// dnsRspamd asks by its module rbl.
type dnsRspamd struct{ address string }

// rspamdConf names no file of the machine but those of rspamd's package.
const rspamdConf = `options {
  dns { nameserver = ["%[1]s:1"]; timeout = 20s; retransmits = 3; }
  pidfile = "%[2]s/pid"; cache_file = "%[2]s/cache"; history_file = "%[2]s/history"; hs_cache_dir = "%[2]s";
  local_addrs = []; task_timeout = 120s; filters = "";
  url_tld = "%[2]s/endings";
}
logging { type = "console"; level = "info"; }
worker "normal" { bind_socket = "%[3]s"; count = 1; task_timeout = 120s; }
modules { path = "/usr/share/rspamd/plugins/rbl.lua"; }
rbl {
  rbls {
    client { rbl = "` + e2e.IPZone + `"; symbol = "IP_LISTED"; checks = ["from"]; returncodes { IP_LISTED = "127.0.0.2"; } }
    envelope { rbl = "` + e2e.DomainZone + `"; symbol = "FROM_LISTED"; selector = "from('smtp'):domain"; returncodes { FROM_LISTED = "127.0.0.2"; } }
    replies { rbl = "` + e2e.DomainZone + `"; symbol = "REPLYTO_LISTED"; replyto = true; emails_domainonly = true; returncodes { REPLYTO_LISTED = "127.0.0.2"; } }
    bodies { rbl = "` + e2e.DomainZone + `"; symbol = "EMAIL_LISTED"; emails = true; emails_domainonly = true; url_full_hostname = true; returncodes { EMAIL_LISTED = "127.0.0.2"; } }
    digests { rbl = "` + e2e.HashZone + `"; symbol = "HASH_LISTED"; replyto = true; hash = "sha1"; returncodes { HASH_LISTED = "127.0.0.2"; } }
  }
}
`

// startRspamd runs an rspamd whose name server is the one given, until the test ends.
func startRspamd(t *testing.T, nameserver string) *dnsRspamd {
	t.Helper()
	command, dir := testkit.Peer(t, "rspamd"), t.TempDir()
	r := &dnsRspamd{address: e2e.FreeAddress(t)}
	conf := testkit.Write(t, filepath.Join(dir, "rspamd.conf"), fmt.Sprintf(rspamdConf, nameserver, dir, r.address))
	testkit.Write(t, filepath.Join(dir, "endings"), "test\n") // of domains, which rspamd knows addresses in texts by
	args := []string{"-f", "-c", conf}
	if os.Geteuid() == 0 {
		args = append(args, "-i") // it may: its folder belongs to root
	}
	e2e.StartServer(t, exec.Command(command, args...), r.address)
	return r
}

// seen are the zones by which a message is listed, of "ip", "domain" and "hash", in this order.
func (r *dnsRspamd) seen(t *testing.T, client, sender string) string {
	t.Helper()
	var zones []string
	answer := testkit.Value(e2e.Scan(r.address, dnsMessage(client, sender),
		map[string]string{"IP": client, "From": sender, "Helo": "client.there.example", "Rcpt": "user@here.example"}))(t)
	symbols := map[string]bool{}
	for name := range answer.Symbols {
		symbols[name] = true
	}
	if symbols["IP_LISTED"] {
		zones = append(zones, "ip")
	}
	if symbols["FROM_LISTED"] {
		zones = append(zones, "domain")
	}
	if symbols["HASH_LISTED"] {
		zones = append(zones, "hash")
	}
	// The same domain, found by three ways.
	for _, other := range []string{"REPLYTO_LISTED", "EMAIL_LISTED"} {
		if symbols[other] != symbols["FROM_LISTED"] {
			t.Errorf("rspamd says FROM_LISTED %t, %s %t", symbols["FROM_LISTED"], other, symbols[other])
		}
	}
	return strings.Join(zones, " ")
}

// dnsMessage is a message of sender that came from client.
func dnsMessage(client, sender string) string {
	return fmt.Sprintf("X-Envelope-From: <%[2]s>\r\nReceived: from client.there.example (client.there.example [%[1]s])\r\n"+
		"\tby mail.here.example with ESMTP id 1; Mon, 2 Nov 2026 10:00:00 +0000\r\nFrom: %[2]s\r\nReply-To: %[2]s\r\nTo: user@here.example\r\n"+
		"Subject: x\r\nDate: Mon, 2 Nov 2026 10:00:00 +0000\r\nMessage-ID: <x@there.example>\r\n\r\nWrite to %[2]s today.\r\n", client, sender)
}

// spamAssassinRules ask by the plugins of SpamAssassin.
const spamAssassinRules = `loadplugin Mail::SpamAssassin::Plugin::Check
util_rb_tld test
loadplugin Mail::SpamAssassin::Plugin::DNSEval
dns_available yes
dns_server %s
rbl_timeout 120 120
envelope_sender_header X-Envelope-From
clear_trusted_networks
clear_internal_networks
header IP_LISTED eval:check_rbl('client-lastexternal', '` + e2e.IPZone + `.', '127.0.0.2')
tflags IP_LISTED net
header FROM_LISTED eval:check_rbl_envfrom('envelope', '` + e2e.DomainZone + `.', '127.0.0.2')
tflags FROM_LISTED net
loadplugin Mail::SpamAssassin::Plugin::HashBL
header HASH_LISTED eval:check_hashbl_emails('` + e2e.HashZone + `', 'sha1', 'Reply-To', '^127\.0\.0\.2$')
tflags HASH_LISTED net
`

// spamAssassinAsks prints a line of rules for each message that it is given.
const spamAssassinAsks = `my ($dir, @files) = @ARGV;
my $sa = Mail::SpamAssassin->new({rules_filename => "$dir/rules", site_rules_filename => "$dir/rules", userprefs_filename => "$dir/none",
  dont_copy_prefs => 1, home_dir_for_helpers => $dir, userstate_dir => $dir});
for my $file (@files) {
  open my $in, "<", $file or die;
  my $mail = $sa->parse($in, 1);
  my $status = $sa->check($mail);
  print $status->get_names_of_tests_hit, "\n";
  $status->finish; $mail->finish;
}`

// spamAssassinSees is seen for SpamAssassin, which takes two seconds to start: all cases in one run.
func spamAssassinSees(t *testing.T, nameserver string, cases []dnsCase) (seen []string) {
	t.Helper()
	dir := t.TempDir()
	testkit.Write(t, filepath.Join(dir, "rules", "local.cf"), fmt.Sprintf(spamAssassinRules, withPort(t, nameserver)))
	args := []string{"-MMail::SpamAssassin", "-e", spamAssassinAsks, dir}
	for i, c := range cases {
		args = append(args, testkit.Write(t, filepath.Join(dir, fmt.Sprint("message-", i)), strings.ReplaceAll(dnsMessage(c.client, c.sender), "\r\n", "\n")))
	}
	testkit.Peer(t, "spamassassin")
	cmd := exec.Command(testkit.Peer(t, "perl"), args...)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	out, err := cmd.CombinedOutput()
	answers := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if err != nil || len(answers) != len(cases) {
		t.Fatalf("SpamAssassin: %v\n%s", err, out)
	}
	for _, rules := range answers {
		var zones []string
		if strings.Contains(rules, "IP_LISTED") {
			zones = append(zones, "ip")
		}
		if strings.Contains(rules, "FROM_LISTED") {
			zones = append(zones, "domain")
		}
		if strings.Contains(rules, "HASH_LISTED") {
			zones = append(zones, "hash")
		}
		seen = append(seen, strings.Join(zones, " "))
	}
	return seen
}

// withPort is an address as SpamAssassin writes one.
func withPort(t *testing.T, address string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	testkit.Must(t, err)
	return "[" + host + "]:" + port
}

// dnsPostfix asks by smtpd's restrictions and by postscreen.
type dnsPostfix struct {
	*e2e.Postfix
	screen string // HOST:PORT of postscreen, which takes the PROXY protocol
}

// startDNSPostfix runs a Postfix whose resolver is the name server given, at port 53.
func startDNSPostfix(t *testing.T, nameserver string) *dnsPostfix {
	t.Helper()
	p := &dnsPostfix{Postfix: e2e.ConfigurePostfix(t, e2e.FreeAddress(t)), screen: e2e.FreeAddress(t)}
	p.Add(t, "main.cf", `
smtpd_client_restrictions = reject_rbl_client `+e2e.IPZone+`=127.0.0.2
smtpd_sender_restrictions = reject_rhsbl_sender `+e2e.DomainZone+`=127.0.0.2
smtpd_error_sleep_time = 0
postscreen_upstream_proxy_protocol = haproxy
postscreen_upstream_proxy_timeout = 60s
postscreen_dnsbl_sites = `+e2e.IPZone+`=127.0.0.2
postscreen_dnsbl_action = enforce
postscreen_dnsbl_timeout = 60s
# Without a banner there is no pause before the greeting: it comes when the list has answered.
postscreen_greet_banner =
postscreen_greet_wait = 60s
`)
	p.Add(t, "master.cf", p.screen+` inet n - n - 1 postscreen
smtpd   pass - - n - - smtpd
dnsblog unix - - n - 0 dnsblog
tlsproxy unix - - n - 0 tlsproxy
`)
	p.Start(t, e2e.BesideResolver(t, p.Dir, nameserver)...)
	return p
}

func (p *dnsPostfix) seen(t *testing.T, client, sender string) string {
	t.Helper()
	var zones []string
	for _, reply := range []string{p.reply(t, client, "x@clear.test"), p.reply(t, "192.0.2.1", sender)} {
		switch {
		case strings.HasPrefix(reply, "554 5.7.1 Service unavailable; Client host ["+client+"] blocked using "+e2e.IPZone+"; "):
			zones = append(zones, "ip")
		case strings.HasPrefix(reply, "554 5.7.1 Service unavailable; Sender address ["+sender+"] blocked using "+e2e.DomainZone+"; "):
			zones = append(zones, "domain")
		case !strings.HasPrefix(reply, "250 "):
			t.Errorf("Postfix says %q of %s and <%s>", reply, client, sender)
		}
	}
	return strings.Join(zones, " ")
}

// reply is what smtpd says to RCPT.
func (p *dnsPostfix) reply(t *testing.T, client, sender string) string {
	t.Helper()
	c := e2e.DialTalk(t, p.SMTP)
	defer c.Conn.Close()
	c.Command("EHLO client.there.example")
	if client != "" {
		e2e.MustBegin(t, "XCLIENT", c.Command("XCLIENT NAME=[UNAVAILABLE] ADDR=%s", client), "220 ")
	}
	c.Command("EHLO client.there.example")
	c.Command("MAIL FROM:<%s>", sender)
	return c.Command("RCPT TO:<user@here.example>")
}

// screened returns the reply to RCPT of postscreen, or of the smtpd that it passes the client to.
func (p *dnsPostfix) screened(t *testing.T, from string) string {
	t.Helper()
	conn, r := e2e.DialRaw(t, p.screen)
	defer conn.Close()
	c := &e2e.Client{T: t, Conn: conn, R: r}
	c.Write(fmt.Appendf(nil, "PROXY TCP4 %s 127.0.0.1 40000 25\r\n", from))
	e2e.MustBegin(t, "the greeting of postscreen", c.Reply(), "220 ")
	c.Command("EHLO client.there.example")
	c.Command("MAIL FROM:<x@clear.test>")
	return c.Command("RCPT TO:<user@here.example>")
}
