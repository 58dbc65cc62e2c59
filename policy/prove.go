package policy

import (
	"context"
	"io"
	"net/netip"

	"blockd/addr"
	"blockd/msgauth"
)

// Origin is where a transaction comes from, as far as a front door knows it at
// MAIL.
type Origin struct {
	Client        netip.Addr // of the mail, not of a proxy; zero = unknown
	Helo          string
	Authenticated bool // the client has logged in
}

// Prove returns v as it is with evidence: decided anew by the same entries.
// Evidence is of the sender, so it holds for every recipient.
func (c *Checker) Prove(v Verdict, e Evidence) Verdict {
	v.Evidence = e
	v.decide(nil)
	return v
}

// ProveOrigin looks for those proofs that could have v, the verdict of an envelope,
// changed for recipient and that are known before the message: login, SPF, and for an
// address of a header field the client's network. Of
// mail that nobody blocks, that no entry could have allowed, or that is for an exempt
// recipient, it costs nothing; else SPF is asked for once, for as long as the result is handed on.
//
// It may wait for DNS as long as the resolver's budget lasts; ctx ends it earlier,
// with an unknown result.
func (c *Checker) ProveOrigin(ctx context.Context, v Verdict, recipient string, o Origin) Verdict {
	wants := c.wants(v, recipient)
	e := v.Evidence
	if wants&ClientProof != 0 { // the verdict of a header field does not know the client
		c.learn(&e, ClientProof, stateOf(c.allows.knows(o.Client.WithZone("").Unmap())))
	}
	if wants&AuthProof != 0 {
		c.learn(&e, AuthProof, stateOf(o.Authenticated))
	}
	if e.Tried != v.Evidence.Tried {
		v = c.Prove(v, e)
	}
	if c.wants(v, recipient)&SPFProof != 0 { // what was found may be enough
		c.trySPF(ctx, &e, v, o)
		v = c.Prove(v, e)
	}
	return v
}

// ProveMessage looks for the proofs in the message itself, from its first header
// field to the last octet before the final dot, and, for the alignment of its
// author, for SPF too. It is for a verdict that is Tentative for some recipient,
// and for others costs nothing and reads nothing. The error is that of message; v
// is then as it was.
func (c *Checker) ProveMessage(ctx context.Context, v Verdict, recipient string, o Origin, message io.Reader) (Verdict, error) {
	if !c.Awaits(v, recipient) {
		return v, nil
	}
	m, err := c.Examine(ctx, o.Client, message)
	if err != nil {
		return v, err
	}
	return c.ProveBy(ctx, v, recipient, o, m), nil
}

// Examine collects the facts of a message for ProveBy, where several verdicts hang
// on them. They are nil without a resolver. The error is that of message.
func (c *Checker) Examine(ctx context.Context, client netip.Addr, message io.Reader) (*msgauth.Message, error) {
	if c.resolver == nil {
		return nil, nil
	}
	m, err := c.resolver.Message(ctx, client, message)
	if err != nil {
		return nil, err
	}
	return &m, nil
}

// ProveBy is ProveMessage by the facts of Examine.
func (c *Checker) ProveBy(ctx context.Context, v Verdict, recipient string, o Origin, m *msgauth.Message) Verdict {
	wants := c.wants(v, recipient)
	if wants&lateProofs == 0 {
		return v
	}
	e := v.Evidence
	if m == nil {
		c.learn(&e, wants&lateProofs, msgauth.No)
		return c.Prove(v, e)
	}
	e.Message = m
	domain := v.Sender.Domain()
	c.learn(&e, DKIMProof, m.DKIM(domain))
	if wants&Alignment != 0 {
		if e.Found&DKIMProof == 0 && e.Tried&SPFProof == 0 && msgauth.Aligned(m.Author, domain) {
			c.trySPF(ctx, &e, v, o)
		}
		c.learn(&e, Alignment, m.Aligned(domain, e.SPF))
	}
	return c.Prove(v, e)
}

// EvidenceOf is what facts prove of a sender, for who has collected them all to show
// them. m is nil where there is no message that can be looked at.
func EvidenceOf(sender addr.Addr, f msgauth.SPF, m *msgauth.Message) Evidence {
	e := Evidence{SPF: f, Message: m}
	e.note(SPFProof, f.Proof)
	if m == nil {
		m = &msgauth.Message{}
	}
	e.note(DKIMProof, m.DKIM(sender.Domain()))
	e.note(Alignment, m.Aligned(sender.Domain(), f))
	return e
}

func stateOf(proved bool) msgauth.State {
	if proved {
		return msgauth.Pass
	}
	return msgauth.No
}

// Reverse says whether the address of a client has a name in DNS, with confirm one that
// leads back: see msgauth.Resolver. Without a resolver that is Unknown.
func (c *Checker) Reverse(ctx context.Context, client netip.Addr, confirm bool) msgauth.State {
	if c.resolver == nil {
		return msgauth.Unknown
	}
	return c.resolver.Reverse(ctx, client, confirm)
}

// trySPF asks about the sender of an envelope. An address of a header field has no
// client.
func (c *Checker) trySPF(ctx context.Context, e *Evidence, v Verdict, o Origin) {
	if c.resolver == nil || v.Source != EnvelopeSource {
		c.learn(e, SPFProof, msgauth.No)
		return
	}
	e.SPF = c.resolver.SPF(ctx, o.Client, o.Helo, v.Sender.String())
	c.learn(e, SPFProof, e.SPF.Proof)
}

// learn notes and counts.
func (c *Checker) learn(e *Evidence, p Proof, s msgauth.State) {
	e.note(p, s)
	c.proofs.WithLabelValues(p.String(), s.String()).Inc()
}
