package policy

import (
	"net/netip"
	"time"

	"blockd/policy/verdict"
	"blockd/records/history"
)

// record remembers a decision. This is the one place that does, below all that a door
// can ask, so that none is forgotten. Not remembered are
//   - what is asked before a recipient is known, unless it ends there: it is asked again;
//   - addresses of a header that no list has anything on: their envelope is remembered;
//   - envelopes of which nothing is known, as those from trusted networks.
//
// A refusal that repeats is folded: d then has the reference of the line that stands for
// it. Everything else is always remembered, and only its line of the log is folded.
func (c *checks) record(door *Door, v *verdict.Verdict, recipient string, d *Decision) {
	if !door.forgets && (d.Outcome == Refuse || d.Outcome == Defer) && v.Owner() != "" {
		c.instruments.owned.Inc()
	}
	if door.forgets || c.history == nil && c.decided == nil && c.repeats == nil || v.Source != verdict.EnvelopeSource && d.Ref == "" {
		return
	}
	if v.Sender.Null() && !v.Client.IsValid() && v.Seen.Sender == "" && d.Ref == "" {
		return
	}
	r := history.Record{Time: time.Now(), Door: door.Name, Outcome: d.Outcome.String(), Verdict: string(v.Kind),
		Client: v.Client, Helo: v.Seen.Helo, Sender: v.Sender.String(), Recipient: recipient, Generation: v.Generation,
		Ref: d.Ref, Exempt: d.Exempt, Shadow: d.Shadow, FirstSeen: d.FirstSeen, Authenticated: v.Seen.Authenticated, Hearsay: v.Seen.Hearsay, Unasked: len(v.Unasked) > 0}
	if r.Sender == "" || v.Unread != "" && v.Seen.Sender != "" {
		r.Sender = v.Seen.Sender
	}
	if v.Source != verdict.EnvelopeSource {
		r.Source = v.Source.String()
	}
	r.Correspondent = c.partners.Known.Has(v.Sender)
	if r.Pardoned = v.Pardoned; r.Pardoned {
		c.partners.Known.Excused()
	}
	name(&r, v)
	repeated := false
	if d.Outcome == Refuse || d.Outcome == Defer {
		if r.Ref, repeated = c.repeats.Refused(&r); repeated {
			d.Reply, d.Ref = d.Reply.Referring(d.Ref, r.Ref), r.Ref
		}
	}
	if !repeated {
		c.history.Add(r)
	}
	d.Folded = repeated || d.Ref != "" && !c.logsMore(v.Client)
	if c.decided != nil {
		c.decided(r)
	}
}

// name puts the entry that v tells of into r.
func name(r *history.Record, v *verdict.Verdict) {
	i := v.Told()
	if i < 0 {
		return
	}
	m, source := &v.Matches[i], &v.Lists[v.Matches[i].Row].Source
	r.List, r.File, r.Line, r.Entry = source.List, source.Path, m.Line, m.Name()
	r.Owner, r.Sole = v.Owner(), v.Sole()
	r.Scope, r.Action, r.Reason = m.Scope.String(), m.Action.String(), v.Reason(i)
}

// logsMore is Checker.LogsMore.
func (c *checks) logsMore(client netip.Addr) bool { return c.repeats.Line(client) }

// String is the word that the history has for an outcome.
func (o Outcome) String() string {
	return [...]string{"accept", "refuse", "defer", "quarantine", "tag", "discard", "apart"}[o]
}
