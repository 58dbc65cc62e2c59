package postfix

import (
	"log/slog"

	"blockd/policy"
)

// attrs are the fields of a policy decision's log line.
func (d *delegation) attrs(r *policyRequest, v policy.Verdict, decision policy.Decision, answer string) []any {
	return []any{
		slog.String("door", d.name), slog.String("client", string(r.client)), slog.String("helo", string(r.helo)),
		slog.String("ref", decision.Ref), slog.String("sender", string(r.sender)), slog.String("recipient", string(r.recipient)),
		slog.String("instance", string(r.instance)), slog.String("queue_id", string(r.queueID)),
		slog.Any("", v), slog.String("reply", answer),
	}
}
