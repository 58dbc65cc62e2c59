package upstream

import (
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/smtpfilter/wire"
)

// What servers say to the self-test's recipient, word for word. Those of Postfix, Exim,
// Sendmail and OpenSMTPD are heard from the real ones in e2e (TestSelfTestOfEachServer);
// the others are from their sources and from what their users report.
func TestRefusalOf(t *testing.T) {
	tests := []struct {
		server, reply string
		want          refusal
	}{
		{"Postfix", "554 5.7.1 <blockd-selftest@selftest.invalid>: Relay access denied", refusesRelay},
		{"Postfix that puts it off", "454 4.7.1 <blockd-selftest@selftest.invalid>: Relay access denied", refusesRelay},
		{"Postfix, soft_bounce", "450 4.7.1 <blockd-selftest@selftest.invalid>: Relay access denied", refusesRelay},
		{"Postfix, permit_auth_destination, reject", "554 5.7.1 <blockd-selftest@selftest.invalid>: Recipient address rejected: Access denied", refusesRelay},
		{"Postfix with a footer", "554-5.7.1 <blockd-selftest@selftest.invalid>: Relay access denied|554 5.7.1 For help name the client 203.0.113.9 and the sender", refusesRelay},
		{"Postfix, a client, with a footer", "554-5.7.1 <unknown[203.0.113.9]>: Client host rejected: Access denied|554 5.7.1 Relaying is not permitted here, see the rules", refusesClient},
		{"Postfix, a domain, with a footer", "550-5.1.2 <x@y.example>: no|550 5.1.2 Relaying is not permitted here, see the rules", refusesDomain},
		{"a server that wants TLS first", "530 5.7.0 Must issue a STARTTLS command first", refusesSomething},
		{"Postfix, reject_unknown_recipient_domain", "450 4.1.2 <blockd-selftest@selftest.invalid>: Recipient address rejected: Domain not found", refusesDomain},
		{"Postfix, unknown_address_reject_code = 550", "550 5.1.2 <blockd-selftest@selftest.invalid>: Recipient address rejected: Domain not found", refusesDomain},
		{"Postfix, a domain without mail", "556 5.1.10 <a@example.com>: Recipient address rejected: Domain example.com does not accept mail (nullMX)", refusesDomain},
		{"Postfix, reject_unlisted_recipient", "550 5.1.1 <a@b.example>: Recipient address rejected: User unknown in virtual mailbox table", refusesDomain},
		{"Postfix, relay_recipient_maps", "550 5.1.1 <a@b.example>: Recipient address rejected: User unknown in relay recipient table", refusesDomain},
		{"Postfix, reject_unverified_recipient", "550 5.1.1 <a@b.example>: Recipient address rejected: undeliverable address: host mx.b.example[192.0.2.1] said: 550 no relay here (in reply to RCPT TO command)", refusesDomain},
		{"Postfix, an access map of recipients", "554 5.7.1 <a@b.example>: Recipient address rejected: no such domain", refusesDomain},
		{"Postfix, reject_unknown_client_hostname", "450 4.7.25 Client host rejected: cannot find your hostname, [203.0.113.9]", refusesClient},
		{"Postfix, an access map of clients", "554 5.7.1 <unknown[203.0.113.9]>: Client host rejected: Access denied", refusesClient},
		{"Postfix, the same with other words", "554 5.7.1 <unknown[203.0.113.9]>: Client host rejected: we relay for nobody, not for you", refusesClient},
		{"Postfix, a list of clients", "554 5.7.1 Service unavailable; Client host [203.0.113.9] blocked using zen.spamhaus.org; https://www.spamhaus.org/query/ip/203.0.113.9", refusesClient},
		{"Postfix, reject_unknown_helo_hostname", "450 4.7.1 <[203.0.113.9]>: Helo command rejected: Host not found", refusesHelo},
		{"Postfix, an access map of HELO names", "554 5.7.1 <[203.0.113.9]>: Helo command rejected: Access denied", refusesHelo},
		{"Postfix, reject_unknown_sender_domain", "450 4.1.8 <x@y.example>: Sender address rejected: Domain not found", refusesSender},
		{"Postfix, an access map of senders", "554 5.7.1 <>: Sender address rejected: Access denied", refusesSender},
		{"postgrey", "450 4.2.0 <a@b.example>: Recipient address rejected: Greylisted, see http://postgrey.schweikert.ch/help/b.example.html", refusesForNow},
		{"greylisting with 4.7.1", "451 4.7.1 Greylisting in action, please come back later", refusesForNow},
		{"rspamd", "451 4.7.1 Try again later", refusesForNow},
		{"Exim", "550 relay not permitted", refusesRelay},
		{"Exim behind cPanel", "550-(client.example) [203.0.113.9]:25 is currently not permitted to relay|550-through this server. Perhaps you have not logged into the pop/imap server in the|550-last 30 minutes or do not have SMTP Authentication turned on in your email|550 client.", refusesRelay},
		{"Exim, deny without a message", "550 Administrative prohibition", refusesSomething},
		{"Exim, verify = recipient", "550 Unrouteable address", refusesSomething},
		{"Sendmail", "550 5.7.1 <blockd-selftest@selftest.invalid>... Relaying denied", refusesRelay},
		{"Sendmail, a client without a name", "550 5.7.1 <blockd-selftest@selftest.invalid>... Relaying denied. IP name lookup failed [203.0.113.9]", refusesRelay},
		{"Sendmail, a client with a login to come", "550 5.7.1 <blockd-selftest@selftest.invalid>... Relaying denied. Proper authentication required.", refusesRelay},
		{"Sendmail, its access map", "550 5.7.1 Access denied", refusesClient},
		{"OpenSMTPD", "550 Invalid recipient: <blockd-selftest@selftest.invalid>", refusesSomething},
		{"Exchange 2010", "550 5.7.1 Unable to relay", refusesRelay},
		{"Exchange", "550 5.7.54 SMTP; Unable to relay recipient in non-accepted domain", refusesRelay},
		{"Exchange Online", "550 5.7.64 TenantAttribution; Relay Access Denied [AM0PR01MB1234.eurprd01.prod.outlook.com]", refusesRelay},
		{"qmail", "553 sorry, that domain isn't in my list of allowed rcpthosts (#5.7.1)", refusesRelay},
		{"qmail with chkuser", "553 5.7.1 sorry, that domain isn't in my list of allowed rcpthosts (#5.5.3 - chkuser)", refusesRelay},
		{"mailfront", "553 5.1.1 Sorry, that domain isn't in my list of allowed rcpthosts.", refusesRelay},
		{"Haraka", "550 I cannot deliver mail for <blockd-selftest@selftest.invalid>", refusesRelay},
		{"Stalwart", "550 5.1.2 Relay not allowed.", refusesRelay},
		{"hMailServer", "550 Delivery is not allowed to this address.", refusesRelay},
		{"hMailServer with a login to come", "530 SMTP authentication is required.", refusesRelay},
		{"MailEnable", "503 This mail server requires authentication when attempting to send to a non-local e-mail address. Please check your mail client settings", refusesRelay},
		{"James", "550 5.7.1 Requested action not taken: relaying denied", refusesRelay},
		{"James 2", "550 - Requested action not taken: relaying denied", refusesRelay},
		{"Courier", "513 Relaying denied.", refusesRelay},
		{"Citadel", "551 Relaying denied <blockd-selftest@selftest.invalid>", refusesRelay},
		{"Domino", "554 Relay rejected for policy reasons.", refusesRelay},
		{"qpsmtpd", "550 relaying denied", refusesRelay},
		{"mox", "550 5.1.1 not accepting email for domain", refusesDomain},
		{"a host that is called relay", "550 relay.here.example: no such place", refusesSomething},
		{"a recipient that is called so", "550 <relay-denied@b.example>: no", refusesSomething},
		{"5.7.1 alone", "550 5.7.1 no", refusesRelay},
		{"5.7.1 for spam", "550 5.7.1 Message rejected as spam", refusesClient},
		{"5.7.1 for SPF", "550 5.7.1 SPF check failed", refusesSender},
		{"a 5xx that says nothing", "550 no", refusesSomething},
		{"a 5xx without a text", "550", refusesSomething},
		{"a 4xx that says nothing", "450 no", refusesForNow},
		{"454 that says nothing", "454 no", refusesForNow},
	}
	for _, tt := range tests {
		testkit.Equal(t, tt.server+": "+tt.reply, refusalOf(scripted(tt.reply), false), tt.want)
	}
	if got := refusalOf(scripted("550 Invalid recipient: <a@b.example>"), true); got != refusesRelay {
		t.Errorf("OpenSMTPD and a recipient of the operator's choice: %d", got)
	}
	if got := refusalOf(scripted("550 5.1.1 Invalid recipient: user unknown"), true); got == refusesRelay {
		t.Error("an unknown user of the operator's choice is taken for a denied relay")
	}
}

// scripted is a reply with | between its lines.
func scripted(text string) wire.Reply {
	raw := strings.ReplaceAll(text, "|", "\r\n") + "\r\n"
	code := 0
	for _, c := range raw[:3] {
		code = 10*code + int(c-'0')
	}
	return wire.Reply{Code: code, Raw: []byte(raw)}
}

// Whatever a server says, the answer is one of those, and each of those that leave the
// question open says what an operator can do.
func FuzzRefusalOf(f *testing.F) {
	f.Add(uint16(554), "5.7.1 Relay access denied", false)
	f.Add(uint16(450), "4.1.2 <a@b>: Domain not found", true)
	f.Fuzz(func(t *testing.T, code uint16, text string, chosen bool) {
		r := wire.Reply{Code: 400 + int(code%200), Raw: []byte("000 " + text + "\r\n")}
		of := refusalOf(r, chosen)
		e := &UndecidedError{&RefusedError{Stage: "RCPT", Reply: r}, of, chosen}
		if of > refusesSomething || of != refusesRelay && (e.Reason() == "" || e.Hint() == "" || strings.Contains(e.Error(), "\n")) {
			t.Errorf("refusalOf(%q) = %d: %v", r.Raw, of, e)
		}
	})
}
