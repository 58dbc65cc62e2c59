package postfix

import (
	"log/slog"
	"slices"

	"blockd/mail/addr"
	"blockd/policy"
	"blockd/policy/rule"
)

// WholeDecision is the name of the socketmap that means all lists together.
const WholeDecision = "senders"

// nullSender is Postfix's spelling of the null sender in a key (smtpd_null_access_lookup_key).
const nullSender = "<>"

// table answers look-ups of senders. Postfix asks for the whole address only, and blockd looks
// up its domains.
type table struct {
	*service
	tx   policy.Transaction
	name string // the map of the current look-up
}

// tableDoor returns a door that sees senders alone.
func tableDoor(name string, log *slog.Logger) policy.Door {
	return policy.Door{Name: name, Log: log, Marks: true, Quarantines: true, SendersOnly: true}
}

func newTable(s *service) *table {
	t := &table{service: s}
	t.tx.Begin(s.checker, &s.door, policy.Client{Line: t.line})
	return t
}

// line returns a table's own fields of a log line.
func (t *table) line() []slog.Attr { return []slog.Attr{slog.String("map", t.name)} }

// has reports whether a map of that name exists.
func (t *table) has(name string) bool {
	return name == WholeDecision || slices.Contains(t.settings.Lists, name)
}

// lookup decides about a key of a map. result is the action. found is false if no action is
// needed. failed reports that the lists could not be read: the peer is to try again, and
// result says why. Each look-up uses the generation that serves at that moment, because a
// table has no transactions.
func (t *table) lookup(name, key string) (result string, found, failed bool) {
	m := policy.Mail{Sender: sender(key)}
	m.Written = m.Sender
	if t.name = name; name != WholeDecision {
		m.List = name
	}
	d := t.tx.Mail(m)
	t.metrics.answers[d.Outcome].Inc()
	switch failed = d.Outcome == policy.Defer && d.Verdict.Internal(); {
	case failed:
		result = d.Reply.Words
	case d.Outcome != policy.Accept:
		result = action(&d, space(len(key)))
	}
	return result, result != "", failed
}

// tempfails reports whether on_error is "tempfail".
func (t *table) tempfails() bool { return t.settings.OnError == rule.TempfailOnError }

// sender returns the sender of a key. Postfix asks twice about a local-part that needs quotes,
// with them and without; both mean the same sender.
func sender(key string) string {
	if key == nullSender {
		return ""
	}
	if _, err := addr.Parse(key); err != nil {
		return external(key)
	}
	return key
}
