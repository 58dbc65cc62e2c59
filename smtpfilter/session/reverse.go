package session

import (
	"context"

	"blockd/mail/msgauth"
	"blockd/policy/reply"
)

// checkReverse asks DNS whether the client's address has a name. It asks once a session, and
// only if a recipient would otherwise be accepted. It returns line as consult does.
func (s *session) checkReverse(line []byte, recipient string) []byte {
	if s.settings.PTR == "" || s.settings.PTR == "off" || s.settings.Resolver == nil || s.reverseKnown || s.spared(recipient) {
		return line
	}
	return s.consult(line, func(ctx context.Context) {
		s.reverse = s.settings.Resolver.Reverse(ctx, s.client.Addr(), s.settings.PTR == "confirmed")
		s.reverseKnown = ctx.Err() == nil
	})
}

// reverseFault returns the refusal of a recipient because the client's address has no name;
// the zero Reply if there is none. If DNS gives no answer, nothing is refused.
func (s *session) reverseFault(recipient string) reply.Reply {
	if !s.reverseKnown || s.reverse != msgauth.No || s.spared(recipient) {
		return reply.Reply{}
	}
	return refuseNoReverse
}
