package main

import (
	"fmt"
	"net/netip"
	"path/filepath"
)

// validateActions checks what [smtp] does with clients and mail beside refusing.
func (s SMTP) validateActions(f *Faults) {
	f.oneOf("smtp.client_reject_at", s.ClientRejectAt, "rcpt", "connect")
	f.oneOf("smtp.helo", s.Helo, "off", "valid")
	f.oneOf("smtp.ptr", s.PTR, "off", "exists", "confirmed")
	f.oneOf("smtp.auth", s.Auth, "off", "forward")
	if s.Auth == "forward" && s.TLSCert == "" {
		f.add("smtp.auth", "\"forward\" needs smtp.tls_cert: passwords are taken under TLS alone")
	}
	if _, i, err := s.trusted(); err != nil {
		f.add(fmt.Sprintf("smtp.trusted[%d]", i), "%v", err)
	}
	if s.Quarantine != "" && s.QuarantineMax < s.MaxMessageSize {
		f.add("smtp.quarantine_max", "want room for one message at least, which is max_message_size, %d, have %d", s.MaxMessageSize, s.QuarantineMax)
	}
	if up, err := parseUpstream(s.Upstream); err == nil && s.Quarantine != "" && up.scheme == "maildir" &&
		filepath.Clean(up.address) == filepath.Clean(s.Quarantine) {
		f.add("smtp.quarantine", "is the mailbox of smtp.upstream: mail set aside would be delivered")
	}
	const most = 1 << 20
	if s.MaxTarpits < 1 || s.MaxTarpits > most {
		f.add("smtp.max_tarpits", "want 1 to %d, have %d", most, s.MaxTarpits)
	}
}

// validateQuarantine checks that what is to be set aside has a place.
func (c Config) validateQuarantine(f *Faults) {
	if !c.SMTP.open() || c.SMTP.Quarantine != "" {
		return
	}
	for i, l := range c.Lists {
		if l.OnMatch == "quarantine" {
			f.add(fmt.Sprintf("list[%d].on_match", i), `"quarantine" needs smtp.quarantine`)
		}
	}
}

// trusted returns the networks of smtp.trusted, or the first one that is none and
// its place.
func (s SMTP) trusted() (nets []netip.Prefix, at int, err error) {
	return networks(s.Trusted, "no list would be asked of anybody")
}
