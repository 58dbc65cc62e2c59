package postfix

import (
	"context"

	"blockd/policy"
)

// prove looks for what can have a blocked sender allowed for a recipient, and is known
// without the message: that the client has logged in, and SPF. What was found is of
// the transaction, so SPF is asked for once in it. A signature and the author are in
// the message, which policy delegation never sees, so nothing that needs them counts.
func (d *delegation) prove(r *policyRequest, recipient string) policy.Verdict {
	t := &d.tx
	ctx, cancel := context.WithTimeout(context.Background(), d.settings.ProofTimeout)
	defer cancel()
	t.verdict = d.checker.ProveOrigin(ctx, t.verdict, recipient,
		policy.Origin{Client: t.client, Helo: d.room.text(r.helo), Authenticated: t.login})
	return t.verdict
}
