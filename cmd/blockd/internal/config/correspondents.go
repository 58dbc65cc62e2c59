package config

import (
	"strings"
	"time"

	"blockd/mail/addr"
	"blockd/records/correspondents"
)

// Correspondents is [correspondents]: the people that users of this server write to (docs/correspondents.md).
type Correspondents struct {
	// Whether the recipients of mail from authenticated clients, and from those in smtp.trusted, are remembered, as keyed
	// hashes. An entry that would refuse one of them is held back when a list is loaded. Without it, what
	// "blockd learn" was given is still used.
	Learn bool `toml:"learn"`
	// How long one is remembered after the last mail to it.
	Keep Duration `toml:"keep" want:"1d to 3650d"`
	// Whether a correspondent with SPF or DKIM proof is not refused by a block list. Entries of "blockd add" refuse it in
	// any case.
	Excuse bool `toml:"excuse"`
}

func defaultCorrespondents() Correspondents {
	return Correspondents{Learn: true, Keep: Duration(365 * day)}
}

// CorrespondentSettings are those of package correspondents.
func (c Config) CorrespondentSettings() correspondents.Settings {
	s := correspondents.Settings{Path: c.Index.Path + ".correspondents", Keep: time.Duration(c.Correspondents.Keep), Own: c.OwnDomains()}
	for _, p := range c.Policies { // their recipients are users of this server
		for _, r := range p.Recipients {
			if key, err := addr.DomainKey(r[strings.LastIndexByte(r, '@')+1:]); err == nil && key.Labels > 1 {
				s.Own = append(s.Own, key.Text)
			}
		}
	}
	return s
}
