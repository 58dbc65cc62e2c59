package policy

// authorFormat is the one list format in which an entry can ask for its author's
// proof (allow-if-auth): whether a list has such entries is not kept in an index.
const authorFormat = "spamassassin"

// NeedsMessages reports whether there is an allow entry whose proof can stand in a
// message: a list requires dkim, or the serving generation has a list that may hold
// allow-if-auth entries. Without one no verdict is ever Tentative. A list of that format
// without such an entry costs clear senders nothing: a milter accepts them at MAIL, and
// no message of theirs is sent.
func (c *Checker) NeedsMessages() bool {
	if c.resolver == nil {
		return false
	}
	for _, rule := range c.rules {
		if rule.Require&DKIMProof != 0 {
			return true
		}
	}
	for _, list := range c.live().Lists() {
		if list.Summary.Format == authorFormat {
			return true
		}
	}
	return false
}

// Awaits reports whether v, the verdict of an envelope or of a header field, is
// Tentative for a recipient: nothing settles it but the message. An exempt recipient
// has the message in any case.
func (c *Checker) Awaits(v Verdict, recipient string) bool {
	return c.wants(v, recipient)&lateProofs != 0
}

// wants are the proofs that could have v changed for a recipient.
func (c *Checker) wants(v Verdict, recipient string) Proof {
	if c.isExempt(recipient) {
		return 0
	}
	return c.For(v, recipient).Wants
}
