package policy

import (
	"strings"

	"blockd/addr"
	"blockd/lists"
)

// Outcome is what becomes of one recipient of a transaction.
type Outcome uint8

// The outcomes.
const (
	Accept Outcome = iota
	Refuse         // permanent, 550
	Defer          // temporary, 451
)

// Decision is the answer to one RCPT (or to MAIL, where the filter refuses there).
type Decision struct {
	Outcome Outcome
	Reply   string // of Refuse and Defer: the whole reply line without CRLF, "550 5.7.1 <…>: …"
	Ref     string // in Reply and in the log; "" when accepted without a match
	Exempt  bool   // a listed sender, accepted because of the recipient
	Shadow  bool   // accepted, but a shadow list would have refused
}

// Recipient decides about one recipient of a sender with verdict v. recipient is
// the address of RCPT TO without angle brackets, as the client wrote it; "" asks
// about the sender alone. Each decision has a reference of its own.
func (c *Checker) Recipient(v Verdict, recipient string) Decision {
	switch {
	case v.Kind == Blocked && c.isExempt(recipient):
		return Decision{Ref: newRef(), Exempt: true}
	case v.Kind == Blocked:
		return refusal(&v)
	case v.Internal() && c.defers && !c.isExempt(recipient):
		ref := newRef()
		return Decision{Outcome: Defer, Ref: ref, Reply: replyUnchecked(v.Sender.String(), ref)}
	case v.Internal(), len(v.Matches) > 0:
		return Decision{Ref: newRef(), Shadow: v.Shadow >= 0}
	}
	return Decision{}
}

// refusal is the decision about a blocked sender. An entry that asks to discard
// counts as a block: no front door of ours may say 250 to what nobody will have.
func refusal(v *Verdict) Decision {
	ref, list := newRef(), v.ListName(v.Decider)
	if v.Matches[v.Decider].Action == lists.Tempfail {
		return Decision{Outcome: Defer, Ref: ref, Reply: replyDeferred(v.Sender.String(), list, ref)}
	}
	return Decision{Outcome: Refuse, Ref: ref, Reply: replyRefused(v.Sender.String(), list, ref)}
}

// postmaster is the one local-part that is a legal recipient without a domain
// (RFC 5321, section 4.5.1).
const postmaster = "postmaster"

// isExempt goes by the canonical local-part, so that quotes, capitals and a
// source route make no difference. What is no address is not exempt.
func (c *Checker) isExempt(recipient string) bool {
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
