package policy

import (
	"blockd/policy/rule"
	"blockd/policy/verdict"
)

// Needs is what lists want of a door, which has to agree on it with a mail server before any
// mail comes.
type Needs struct {
	Marks       bool // a list marks messages, or first_seen does
	Quarantines bool // a list sets messages aside
	Header      bool // a list is asked about addresses of the header

	// Message: there is an allow entry whose proof can stand in a message. A list requires
	// dkim, a live entry needs proof, or the serving generation has a list that may hold allow-if-auth entries.
	// Without one no message decides about a sender. A list of that format without such an
	// entry costs clear senders nothing: a milter accepts them at MAIL, and no message of
	// theirs is sent.
	Message bool

	// Login: whether the client has logged in can change a decision, since an exception
	// requires auth, since first_seen spares those who have, or since their recipients are noted. Doors ask for it by
	// themselves where they have SkipAuthenticated.
	Login bool
}

// needsOf is what the rules of lists want, whatever the lists hold. Sessions ask for it.
func needsOf(rules map[string]rule.List) Needs {
	n := Needs{Header: sourcesOf(rules).Header()}
	for _, r := range rules {
		n.Marks = n.Marks || r.OnMatch == rule.Tag
		n.Quarantines = n.Quarantines || r.OnMatch == rule.Quarantine
		n.Message = n.Message || r.Require&verdict.DKIMProof != 0
		n.Login = n.Login || r.Require&verdict.AuthProof != 0
	}
	return n
}

// wanting is Checker.Needs.
func (c *checks) wanting() Needs {
	n := c.needs
	n.Message = c.resolver != nil && (n.Message || c.entries.NeedsProof() || c.hasAuthorEntries())
	return n
}

// authorFormat is the one list format in which an entry can ask for its author's
// proof (allow-if-auth): whether a list has such entries is not kept in an index.
const authorFormat = "spamassassin"

// hasAuthorEntries reports whether the serving generation may have allow-if-auth entries.
func (c *checks) hasAuthorEntries() bool {
	ix := c.serving()
	if ix == nil {
		return false
	}
	for _, list := range ix.Lists() {
		if list.Summary.Format == authorFormat {
			return true
		}
	}
	return false
}
