package config

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"

	"blockd/mail/addr"
	"blockd/smtpfilter/upstream"
)

// SMTP is [smtp]: the SMTP filter, the server behind it, and what all doors decide alike:
// reject_at, recipients_exempt, on_error, client_reject_at, trusted, skip_authenticated and
// drain_timeout.
type SMTP struct {
	// Where mail comes in: HOST:PORT; "" shuts this door.
	Listen string `toml:"listen"`
	// The name in greetings and EHLO; "" is the machine's own.
	Hostname string `toml:"hostname"`
	// The next server, which gets every message that is not refused: "smtp://HOST:PORT",
	// "lmtp://HOST:PORT", "lmtp+unix:/PATH", or "maildir:DIR" for a Maildir that blockd writes itself.
	Upstream string `toml:"upstream"`
	// What the next server learns about the client: "xclient", "proxy-v2" or "none". It is required for
	// smtp://, because a server that trusts this machine would relay for every client.
	ClientInfo string `toml:"client_info"`
	// Where a listed sender is refused. At "mail" no recipient is known yet, so recipients_exempt and
	// [[policy]] do not act.
	RejectAt string `toml:"reject_at" want:"rcpt|mail"`
	// "lazy" answers MAIL here, and sends it on with the first RCPT that is not refused here: less waiting for
	// the next server, which never hears of a sender that is refused. Its refusal of MAIL becomes the answer to RCPT. "strict"
	// sends MAIL on at once, unless its sender is listed.
	Mail string `toml:"mail" want:"lazy|strict"`
	// Recipients that always accept mail, by local part and at any domain, so that a sender who is refused
	// by mistake can complain (RFC 5321, section 4.5.1).
	RecipientsExempt []string `toml:"recipients_exempt"`
	// What happens to mail while the index cannot be read. An error never refuses for good.
	OnError string `toml:"on_error" want:"accept|tempfail"`
	// Serve in front of an smtp:// server that takes mail for any recipient from any client. Without it, a
	// test at the start and each minute finds such a server, and it is not served.
	AllowOpenUpstream bool `toml:"allow_open_upstream"`
	// The recipient that this test offers: an address whose domain resolves in DNS and is not yours. "" is
	// one whose domain does not exist; /readyz says when that is not enough.
	SelfTestRecipient string `toml:"selftest_recipient"`
	// Where a listed client is refused. At "rcpt" exempt recipients still get its mail, at "connect" it
	// gets 554 instead of the greeting.
	ClientRejectAt string `toml:"client_reject_at" want:"rcpt|connect"`
	// Clients in these networks are never checked, such as your own: ["10.0.0.0/8"].
	Trusted []string `toml:"trusted"`
	// "valid" refuses a client at RCPT if its EHLO is no host name and no address literal, or is this
	// server's own name.
	Helo string `toml:"helo" want:"off|valid"`
	// "exists" refuses a client at RCPT if its address has no name in DNS (PTR), "confirmed" also if none
	// of its names leads back to it. Clients in trusted networks, authenticated clients and this machine
	// are spared. A failure of DNS is no reason to refuse.
	PTR string `toml:"ptr" want:"off|exists|confirmed"`
	// "forward" passes AUTH on to the next server. It is offered only under TLS, and only if that server is
	// reached by TLS or is on this machine.
	Auth string `toml:"auth" want:"off|forward"`
	// Clients that have logged in are not checked against lists of senders.
	SkipAuthenticated bool `toml:"skip_authenticated"`
	// Offer CHUNKING and BINARYMIME (the command BDAT) if the next server does. A chunk has no lines, so
	// bare LF and the like pass.
	Chunking bool `toml:"chunking"`
	// A Maildir for mail that matches a list with on_match = "quarantine". What is there is shown, released and
	// removed by `blockd quarantine`, and never by itself.
	Quarantine string `toml:"quarantine"`
	// The size of that Maildir, at least max_message_size. When it is full, such mail gets 451.
	QuarantineMax Octets `toml:"quarantine_max"`
	// How many messages that Maildir may hold, at least 1. When it has so many, such mail gets 451.
	QuarantineMaxMessages int `toml:"quarantine_max_messages"`
	// A second door, with TLS from the first octet (port 465); "" is none.
	TLSListen string `toml:"tls_listen"`
	// The certificate for clients, with its chain, in PEM; with it STARTTLS is offered. A renewed pair is
	// taken up by itself, and one that cannot be used leaves the one before in service.
	TLSCert string `toml:"tls_cert"`
	// Its key, in PEM.
	TLSKey string `toml:"tls_key"`
	// Networks of load balancers, such as ["10.0.0.0/8"]. Their connections must begin with a PROXY header
	// (version 1 or 2) that names the client; all others must not.
	ProxyFrom []string `toml:"proxy_from"`
	// TLS with the next server. It is demanded, never optional: if it fails, no mail passes.
	UpstreamTLS string `toml:"upstream_tls" want:"none|starttls|implicit"`
	// The name that the next server's certificate must have; "" is the host of upstream.
	UpstreamTLSName string `toml:"upstream_tls_name"`
	// A PEM file of the authorities that may have signed it; "" is the system's.
	UpstreamTLSCA string `toml:"upstream_tls_ca"`
	// Public keys that the next server may have, each the base64 of its SHA-256. Then name and authority do
	// not matter.
	UpstreamTLSPin []string `toml:"upstream_tls_pin"`
	// Clients at one time. From 80 % of them on, a client has 30 s for a command instead of 5 min.
	MaxConnections int `toml:"max_connections" want:"1 to 1048576"`
	// Clients at one time from one IPv4 address or IPv6 /64, loopback too.
	MaxConnectionsPerIP int `toml:"max_connections_per_ip" want:"1 to 1048576"`
	// New connections a minute from such an address; 0 is any number.
	MaxRatePerIP int `toml:"max_rate_per_ip" want:"0 to 1048576"`
	// Commands a minute of one session; 0 is any number.
	MaxCommandRate int `toml:"max_command_rate" want:"0 to 1048576"`
	// Recipients of a message (RFC 5321, section 4.5.3.1.8, asks for 100).
	MaxRecipients int `toml:"max_recipients" want:"100 to 100000"`
	// The size of a message; the next server's own SIZE counts too.
	MaxMessageSize Octets `toml:"max_message_size" want:"64 KiB to 1 TiB"`
	// The errors of a client since its last accepted message, refusals by lists included, that end its
	// session. After half of them each answer waits for 1 s. Five times as many commands that move no mail
	// end it too.
	HardErrors int `toml:"hard_errors" want:"2 to 1048576"`
	// A client that talks before the greeting, within this time, is sent away. "0s" greets at once.
	GreetWait Duration `toml:"greet_wait" want:"0s to 1m"`
	// The time that a transaction has until its end of data after SIGTERM.
	DrainTimeout Duration `toml:"drain_timeout" want:"1s to 1h"`
}

// Open reports whether [smtp] asks for a door at all.
func (s SMTP) Open() bool { return s.Listen != "" || s.TLSListen != "" }

func (s SMTP) validate(f *Faults) {
	f.hostPort("smtp.listen", s.Listen)
	f.name("smtp.hostname", s.Hostname)
	up, err := ParseUpstream(s.Upstream)
	if err != nil {
		f.add("smtp.upstream", "%v", err)
	}
	for _, door := range []struct{ key, listen string }{{"smtp.listen", s.Listen}, {"smtp.tls_listen", s.TLSListen}} {
		if up.Network == "tcp" && sameDoor(door.listen, up.Address) {
			f.add("smtp.upstream", "%s is this filter's own door (%s): mail would run in a circle", up.Address, door.key)
		}
	}
	s.validateClientInfo(f, up)
	s.validateSelfTest(f, up)
	s.validateTLS(f)
	s.validateUpstreamTLS(f, up)
	s.validateActions(f)
	for i, local := range s.RecipientsExempt {
		if _, err := addr.LocalKey(local); err != nil {
			f.add(fmt.Sprintf("smtp.recipients_exempt[%d]", i), "want what stands before the @, have %v", err)
		}
	}
	f.networks("smtp.proxy_from", s.ProxyFrom, "whoever connects could name any client")
}

// validateClientInfo has no default to fall back on for a mail server behind:
// it would see every client as this filter's address, and if it trusts that
// address it relays for everybody.
func (s SMTP) validateClientInfo(f *Faults, up Upstream) {
	switch {
	case s.ClientInfo != "":
		f.oneOf("smtp.client_info", s.ClientInfo, "none", "xclient", "proxy-v2")
		if up.Scheme == "maildir" && s.ClientInfo != "none" {
			f.add("smtp.client_info", "the mailbox of maildir: takes none, have %q", s.ClientInfo)
		}
	case up.Scheme == "smtp":
		f.add("smtp.client_info", `must be said for an smtp:// upstream: "xclient", "proxy-v2", `+
			`or "none" if that server trusts this machine with nothing`)
	}
}

// validateSelfTest takes an address only that can go into RCPT as it is.
func (s SMTP) validateSelfTest(f *Faults, up Upstream) {
	const key = "smtp.selftest_recipient"
	if s.SelfTestRecipient == "" {
		return
	}
	a, err := addr.Parse(s.SelfTestRecipient)
	wireable := !strings.ContainsFunc(s.SelfTestRecipient, func(r rune) bool { return r <= ' ' || r > '~' || r == '<' || r == '>' })
	switch {
	case err != nil || !wireable || a.Domain() == "" || strings.HasPrefix(a.Domain(), "["):
		f.add(key, "want an address such as someone@elsewhere.example, in ASCII, have %q", s.SelfTestRecipient)
	case up.Scheme != "" && up.Scheme != "smtp":
		f.add(key, "has no effect: only an smtp:// upstream is tested")
	}
}

func (s SMTP) validateTLS(f *Faults) {
	f.hostPort("smtp.tls_listen", s.TLSListen)
	f.pair("smtp", s.TLSCert, s.TLSKey)
	if s.TLSCert == "" && s.TLSKey == "" && s.TLSListen != "" {
		f.add("smtp.tls_listen", "needs smtp.tls_cert and smtp.tls_key")
	}
}

// validateUpstreamTLS refuses what would look like protection and be none.
func (s SMTP) validateUpstreamTLS(f *Faults, up Upstream) {
	if s.UpstreamTLS == upstream.TLSNone {
		for _, unused := range []struct {
			key string
			set bool
		}{
			{"smtp.upstream_tls_name", s.UpstreamTLSName != ""},
			{"smtp.upstream_tls_ca", s.UpstreamTLSCA != ""},
			{"smtp.upstream_tls_pin", len(s.UpstreamTLSPin) > 0},
		} {
			if unused.set {
				f.add(unused.key, `has no effect while smtp.upstream_tls is "none"`)
			}
		}
	} else if up.Scheme != "" && up.Network != "tcp" {
		f.add("smtp.upstream_tls", "%s is on this machine and speaks no TLS: want \"none\"", s.Upstream)
	}
	f.name("smtp.upstream_tls_name", s.UpstreamTLSName)
	if len(s.UpstreamTLSPin) > 0 && (s.UpstreamTLSCA != "" || s.UpstreamTLSName != "") {
		f.add("smtp.upstream_tls_pin", "decides alone: take smtp.upstream_tls_ca and smtp.upstream_tls_name out")
	}
	for i, pin := range s.UpstreamTLSPin {
		if _, err := parsePin(pin); err != nil {
			f.add(fmt.Sprintf("smtp.upstream_tls_pin[%d]", i), "%v", err)
		}
	}
}

// parsePin reads the base64 of a public key's SHA-256, as `openssl pkey -pubin
// -outform der | openssl dgst -sha256 -binary | base64` prints it.
func parsePin(text string) (upstream.Pin, error) {
	sum, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(sum) != len(upstream.Pin{}) {
		return upstream.Pin{}, fmt.Errorf("want the base64 of a SHA-256, 44 signs, have %q", text)
	}
	return upstream.Pin(sum), nil
}

// validateActions checks what [smtp] does with clients and mail beside refusing.
func (s SMTP) validateActions(f *Faults) {
	if s.Auth == "forward" && s.TLSCert == "" {
		f.add("smtp.auth", "\"forward\" needs smtp.tls_cert: passwords are taken under TLS alone")
	}
	f.networks("smtp.trusted", s.Trusted, "no list would be asked of anybody")
	if s.Quarantine != "" && s.QuarantineMax < s.MaxMessageSize {
		f.add("smtp.quarantine_max", "want room for one message at least, which is max_message_size, %s, have %s", s.MaxMessageSize, s.QuarantineMax)
	}
	if s.Quarantine != "" && s.QuarantineMaxMessages < 1 {
		f.add("smtp.quarantine_max_messages", "want at least 1, have %d", s.QuarantineMaxMessages)
	}
	if up, err := ParseUpstream(s.Upstream); err == nil && s.Quarantine != "" && up.Scheme == "maildir" &&
		filepath.Clean(up.Address) == filepath.Clean(s.Quarantine) {
		f.add("smtp.quarantine", "is the mailbox of smtp.upstream: mail set aside would be delivered")
	}
}

// validateQuarantine checks that what is to be set aside has a place.
func (c Config) validateQuarantine(f *Faults) {
	if !c.SMTP.Open() || c.SMTP.Quarantine != "" {
		return
	}
	for i, l := range c.Lists {
		if l.OnMatch == "quarantine" {
			f.add(fmt.Sprintf("list[%d].on_match", i), `"quarantine" needs smtp.quarantine`)
		}
	}
}

// validateForeign refuses a recipient of the open-relay test who is at home here: any server
// takes mail for its own domains.
func (c Config) validateForeign(f *Faults) {
	a, err := addr.Parse(c.SMTP.SelfTestRecipient)
	if err != nil {
		return // validateSelfTest has said so
	}
	for _, own := range c.OwnDomains() {
		if a.Domain() == own || strings.HasSuffix(a.Domain(), "."+own) {
			f.add("smtp.selftest_recipient", "want a recipient at a domain that is not yours, have %s", a.Domain())
			return
		}
	}
}
