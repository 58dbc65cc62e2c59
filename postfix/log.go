package postfix

import (
	"log/slog"

	"blockd/policy"
)

// message is the fixed text of a decision's log line, the same at every door.
func message(v policy.Verdict, d policy.Decision) string {
	switch {
	case d.Outcome == policy.Refuse:
		return "sender blocked"
	case d.Outcome == policy.Defer:
		return "sender deferred"
	case d.Outcome == policy.Quarantine:
		return "sender quarantined"
	case d.Outcome == policy.Tag:
		return "sender tagged"
	case d.Exempt:
		return "recipient exempt"
	case d.Shadow:
		return "sender would be blocked"
	case v.Internal():
		return "sender unchecked"
	case v.Kind == policy.Clear:
		return "sender excused"
	}
	return "sender allowed"
}

// attrs are the fields of a policy decision's log line.
func (d *delegation) attrs(r *policyRequest, v policy.Verdict, decision policy.Decision, answer string) []any {
	return []any{
		slog.String("door", d.name), slog.String("client", string(r.client)), slog.String("helo", string(r.helo)),
		slog.String("ref", decision.Ref), slog.String("sender", string(r.sender)), slog.String("recipient", string(r.recipient)),
		slog.String("instance", string(r.instance)), slog.String("queue_id", string(r.queueID)),
		slog.Any("", v), slog.String("reply", answer),
	}
}
