package policy

import (
	"context"
	"io"
	"net/netip"

	"blockd/mail/msgauth"
	"blockd/policy/verdict"
)

// origin is where a transaction comes from, as far as a front door knows it at
// MAIL.
type origin struct {
	Client        netip.Addr // of the mail, not of a proxy; zero = unknown
	Helo          string
	Authenticated bool // the client has logged in
}

// proveOrigin looks for those proofs that could have v, the verdict of an envelope,
// changed for recipient and that are known before the message: login, SPF, and for an
// address of a header field the client's network. Of
// mail that nobody blocks, that no entry could have allowed, or that is for an exempt
// recipient, it costs nothing; else SPF is asked for once, for as long as the result is handed on.
//
// It may wait for DNS as long as the resolver's budget lasts; ctx ends it earlier,
// with an unknown result.
func (c *checks) proveOrigin(ctx context.Context, v verdict.Verdict, recipient string, o origin) verdict.Verdict {
	wants := c.wants(v, recipient)
	e := v.Evidence
	if wants&verdict.ClientProof != 0 { // the verdict of a header field does not know the client
		c.learn(&e, verdict.ClientProof, stateOf(c.allows.Knows(o.Client.WithZone("").Unmap())))
	}
	if wants&verdict.AuthProof != 0 {
		c.learn(&e, verdict.AuthProof, stateOf(o.Authenticated))
	}
	if e.Tried != v.Evidence.Tried {
		v = v.Prove(e)
	}
	if c.wants(v, recipient)&verdict.SPFProof != 0 { // what was found may be enough
		c.trySPF(ctx, &e, v, o)
		v = v.Prove(e)
	}
	return v
}

// examine collects the facts of a message for proveBy, where several verdicts hang
// on them. They are nil without a resolver. The error is that of message.
func (c *checks) examine(ctx context.Context, client netip.Addr, message io.Reader) (*msgauth.Message, error) {
	if c.resolver == nil {
		return nil, nil
	}
	m, err := c.resolver.Message(ctx, client, message)
	if err != nil {
		return nil, err
	}
	return &m, nil
}

// proveBy is ProveMessage by the facts of Examine.
func (c *checks) proveBy(ctx context.Context, v verdict.Verdict, recipient string, o origin, m *msgauth.Message) verdict.Verdict {
	wants := c.wants(v, recipient)
	if wants&verdict.LateProofs == 0 {
		return v
	}
	e := v.Evidence
	if m == nil {
		c.learn(&e, wants&verdict.LateProofs, msgauth.No)
		return v.Prove(e)
	}
	e.Message = m
	domain := v.Sender.Domain()
	c.learn(&e, verdict.DKIMProof, m.DKIM(domain))
	if wants&verdict.AlignmentProof != 0 {
		if e.Found&verdict.DKIMProof == 0 && e.Tried&verdict.SPFProof == 0 && msgauth.Aligned(m.Author, domain) {
			c.trySPF(ctx, &e, v, o)
		}
		c.learn(&e, verdict.AlignmentProof, m.Aligned(domain, e.SPF))
	}
	return v.Prove(e)
}

func stateOf(proved bool) msgauth.State {
	if proved {
		return msgauth.Pass
	}
	return msgauth.No
}

// trySPF asks about the sender of an envelope. An address of a header field has no
// client.
func (c *checks) trySPF(ctx context.Context, e *verdict.Evidence, v verdict.Verdict, o origin) {
	if c.resolver == nil || v.Source != verdict.EnvelopeSource {
		c.learn(e, verdict.SPFProof, msgauth.No)
		return
	}
	e.SPF = c.resolver.SPF(ctx, o.Client, o.Helo, v.Sender.String())
	c.learn(e, verdict.SPFProof, e.SPF.Proof)
}

// learn notes and counts.
func (c *checks) learn(e *verdict.Evidence, p verdict.Proof, s msgauth.State) {
	e.Note(p, s)
	result := s.String()
	if s == msgauth.Short {
		result = "shortage"
	}
	c.proofs.WithLabelValues(p.String(), result).Inc()
}

// awaits reports whether v, the verdict of an envelope or of a header field, is
// blocked for a recipient, and the message could change that. An exempt recipient
// has the message in any case.
func (c *checks) awaits(v verdict.Verdict, recipient string) bool {
	return c.wants(v, recipient)&verdict.LateProofs != 0
}

// wants are the proofs that could have v changed for a recipient.
func (c *checks) wants(v verdict.Verdict, recipient string) verdict.Proof {
	if c.isExempt(recipient) {
		return 0
	}
	return c.forRecipient(v, recipient).Wants
}
