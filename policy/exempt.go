package policy

import (
	"strings"

	"blockd/mail/addr"
)

// postmaster is the one local-part that is a legal recipient without a domain
// (RFC 5321, section 4.5.1).
const postmaster = "postmaster"

// isExempt reports what Transaction.Exempts does. It goes by the canonical local-part, so that quotes, capitals and a
// source route make no difference. What is no address is not exempt.
func (c *checks) isExempt(recipient string) bool {
	if recipient == "" || len(c.exempt) == 0 {
		return false
	}
	a, err := addr.Parse(recipient)
	if err != nil || !c.exempt[a.Local()] {
		return false
	}
	return a.Domain() != "" || a.Local() == postmaster
}

// exemptLocals makes the set of canonical local-parts. A text that is no
// local-part can never be asked for; the configuration's check reports it.
func exemptLocals(texts []string) map[string]bool {
	exempt := make(map[string]bool, len(texts))
	for _, text := range texts {
		if k, err := addr.LocalKey(text); err == nil {
			exempt[strings.TrimSuffix(k.Text, "@")] = true
		}
	}
	return exempt
}
