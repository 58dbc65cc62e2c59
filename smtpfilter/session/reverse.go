package session

import (
	"context"

	"blockd/msgauth"
	"blockd/policy"
)

// lookBack asks whether the client's address has a name, once in a session and if
// that matters for a recipient that would be taken. It returns line as consult does.
func (s *session) lookBack(line []byte, recipient string) []byte {
	if s.settings.PTR == "" || s.settings.PTR == "off" || s.lookedBack || s.spared(recipient) {
		return line
	}
	return s.consult(line, func(ctx context.Context) {
		s.reverse = s.checker.Reverse(ctx, s.client.Addr(), s.settings.PTR == "confirmed")
		s.lookedBack = ctx.Err() == nil
	})
}

// reverseFault is the refusal of a recipient because of the client's address, or none.
// What DNS did not tell is no reason to refuse.
func (s *session) reverseFault(recipient string) policy.Reply {
	if !s.lookedBack || s.reverse != msgauth.No || s.spared(recipient) {
		return policy.Reply{}
	}
	return refuseNoReverse
}
