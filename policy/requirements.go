package policy

import (
	"net/netip"

	"blockd/msgauth"
	"blockd/verdict"
)

// Auth is what an allow entry has to show (docs/auth.md). The zero Auth believes
// one on the sender's word, unless its list requires proof.
type Auth struct {
	Ignore   bool           // an allow entry without proof overrides nothing
	Clients  []netip.Prefix // whose mail has ClientProof
	Tempfail bool           // what could not be told now is 451, and not the block

	// Resolver finds SPF and DKIM; nil = neither is ever found.
	Resolver *msgauth.Resolver
}

// requirementsOf are those of the configuration.
func requirementsOf(rules map[string]ListRule, a Auth) *verdict.Requirements {
	r := &verdict.Requirements{Require: map[string]verdict.Proof{}, Ignore: a.Ignore, Clients: a.Clients}
	for name, rule := range rules {
		if rule.Require != 0 {
			r.Require[name] = rule.Require
		}
	}
	return r
}
