package milter

import (
	"blockd/header"
	"blockd/msgauth"
	"blockd/policy"
	"blockd/spool"
)

// transaction is one MAIL to its end. The zero transaction is none, and so is a
// message that was accepted at MAIL. One that is not open and learns has nothing to
// be asked about, but for its end.
type transaction struct {
	open     bool
	reads    bool             // its header is looked at
	learns   bool             // the end of the message is of interest: see policy.Checker.Completed
	sender   string           // as the client wrote it
	checker  *policy.Checker  // of one generation
	verdicts []policy.Verdict // of the envelope: one, or two where the mail server has another sender than the client wrote
	origin   policy.Origin
	fields   header.Senders
	results  results

	// Of a message that may have to prove something.
	awaiting    []string         // recipients whose answer comes at its end
	answer      policy.Reply     // that of the first of them, once it is there; zero = accepted
	fieldsAwait bool             // an address in its header does too
	judged      []policy.Verdict // of those addresses
	copied      *spool.Copy      // what came of it so far; nil = nothing
	torn        error            // why no more of it is kept
	ended       bool
	facts       *msgauth.Message // once ended; nil = it proves nothing

	// What the first recipient that was not refused has settled for the message.
	settled   bool
	recipient string
	fate      fate
	group     policy.Group // of whom its header is asked about
}

// fate is what becomes of a message at its end.
type fate struct {
	outcome policy.Outcome // Accept, Tag, Quarantine or Discard
	stakes  stakes
	tag     policy.Tag // of Mark and Quarantine
	ref     string
	sender  string
}

// decide returns the decision about a recipient, and the verdict behind it: the
// one that weighs most.
func (t *transaction) decide(recipient string) (policy.Verdict, policy.Decision) {
	return t.weigh(recipient, t.checker.Recipient)
}

// weigh is decide by one of the ways to ask.
func (t *transaction) weigh(recipient string, ask func(policy.Verdict, string) policy.Decision) (policy.Verdict, policy.Decision) {
	v := t.verdicts[0]
	d := ask(v, recipient)
	for _, other := range t.verdicts[1:] {
		if o := ask(other, recipient); weight(o.Outcome) > weight(d.Outcome) {
			v, d = other, o
		}
	}
	return v, d
}

// weight orders outcomes: a listed sender is not helped by another spelling that
// is not listed.
func weight(o policy.Outcome) int {
	switch o {
	case policy.Refuse:
		return 5
	case policy.Defer:
		return 4
	case policy.Discard:
		return 3
	case policy.Quarantine:
		return 2
	case policy.Mark:
		return 1
	}
	return 0
}

// unreadable reports whether v is about a sender that is no address in either
// spelling, and nothing about its client has decided.
func (t *transaction) unreadable(v policy.Verdict) bool {
	return v.Kind == policy.Unknown && !v.Internal()
}

// joins reports whether a recipient can be one of this message's: what is done with
// a message is done for all its recipients, and so the first one settles it. Others
// are to come again by themselves.
func (t *transaction) joins(c *policy.Checker, recipient string, d policy.Decision, all stakes) bool {
	f := fate{outcome: d.Outcome, stakes: all, tag: d.Tag, ref: d.Ref, sender: t.sender}
	var g policy.Group
	if t.reads {
		g = c.Group(recipient, t.verdicts...)
	}
	if !t.settled {
		t.settled, t.recipient, t.fate, t.group = true, recipient, f, g
		return true
	}
	return t.fate.outcome == f.outcome && t.fate.stakes == f.stakes && t.fate.tag.List == f.tag.List && t.group == g
}
