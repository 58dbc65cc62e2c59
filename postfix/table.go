package postfix

import (
	"log/slog"
	"slices"

	"blockd/addr"
	"blockd/policy"
)

// WholeDecision is the name of the socketmap that means all lists together.
const WholeDecision = "senders"

// nullSender is how Postfix spells <> in a key (smtpd_null_access_lookup_key).
const nullSender = "<>"

// table is a look-up table of senders. Postfix asks for the whole address only,
// and the walk through its domains is ours.
type table struct {
	*service
	tx   policy.Transaction
	name string // of the map that is asked
}

// tableDoor is told senders, and nothing else.
func tableDoor(name string, log *slog.Logger) policy.Door {
	return policy.Door{Name: name, Log: log, Marks: true, Quarantines: true, SendersOnly: true}
}

func newTable(s *service) *table {
	t := &table{service: s}
	t.tx = s.checker.Begin(&s.door, policy.Client{Line: t.line})
	return t
}

// line has the fields of a log line that are a table's own.
func (t *table) line() []slog.Attr { return []slog.Attr{slog.String("map", t.name)} }

// has reports whether there is a map of that name.
func (t *table) has(name string) bool {
	return name == WholeDecision || slices.Contains(t.settings.Lists, name)
}

// lookup decides about a key of a map. found is false if nothing is to be done;
// failed says that nothing could be looked up and the peer is to come again, and
// result why.
// Each look-up takes the generation that serves just then: a table has no
// transactions.
func (t *table) lookup(name, key string) (result string, found, failed bool) {
	m := policy.Mail{Sender: sender(key)}
	m.Written = m.Sender
	if t.name = name; name != WholeDecision {
		m.List = name
	}
	d := t.tx.Mail(m)
	t.metrics.answers[d.Outcome].Inc()
	switch failed = d.Outcome == policy.Defer && d.Unchecked(); {
	case failed:
		result = d.Reply.Words
	case d.Outcome != policy.Accept:
		result = action(d, space(len(key)))
	}
	return result, result != "", failed
}

// tempfails is what on_error says.
func (t *table) tempfails() bool { return t.settings.OnError == policy.TempfailOnError }

// sender reads a key. A local-part that needs quotes is asked for twice by
// Postfix, with them and without; both mean the same.
func sender(key string) string {
	if key == nullSender {
		return ""
	}
	if _, err := addr.Parse(key); err != nil {
		return external(key)
	}
	return key
}
