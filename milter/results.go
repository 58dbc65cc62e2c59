package milter

import (
	"strings"

	"github.com/d--j/go-milter"

	"blockd/mail/msgauth"
)

// resultsField is the header field that reports the results of SPF and DKIM to the servers and
// programs that read the message later (RFC 8601).
const resultsField = "Authentication-Results"

// maxForged bounds how many fields are removed from one message; each costs a packet. A forger
// needs only one field.
const maxForged = 100

// results are the Authentication-Results fields of a message.
type results struct {
	seen   int   // how many have come
	forged []int // the places of fields that carry our name, counted from 1 among all fields of this kind
}

// readResults counts an Authentication-Results field, and remembers it if it carries our name.
func (s *session) readResults(name, value string) {
	if !s.writesResults || !strings.EqualFold(strings.TrimRight(name, " \t"), resultsField) {
		return
	}
	r := &s.results
	r.seen++
	if len(r.forged) <= maxForged && msgauth.Claims(value, s.settings.Results) {
		r.forged = append(r.forged, r.seen)
	}
}

// resultsText returns the value of our own field; "" if no proof was looked for.
func (s *session) resultsText() string {
	sender, spf, m := s.tx.Found()
	if spf.Result == "" && m == nil {
		return ""
	}
	return msgauth.Results(s.settings.Results, spf, sender, m)
}

// headerDone answers the end of a header after which no list can change the decision. It
// accepts the message, unless the filter needs the message's end: only there can it change the
// message.
func (s *session) headerDone() *milter.Response {
	if s.wantsEnd || s.writesResults && (len(s.results.forged) > 0 || s.resultsText() != "") {
		return milter.RespContinue
	}
	s.reset()
	return milter.RespAccept
}

// writeResults removes the fields that only this server may write, and inserts our own on top.
// It removes the last field first, because each removal changes the numbers of those below.
func (s *session) writeResults(m milter.Modifier) error {
	if !s.writesResults {
		return nil
	}
	forged := s.results.forged
	for i := len(forged) - 1; i >= 0; i-- {
		if err := m.ChangeHeader(forged[i], resultsField, ""); err != nil {
			return err
		}
		s.metrics.forged.Inc()
	}
	if text := s.resultsText(); text != "" {
		return m.InsertHeader(0, resultsField, s.fieldText(text))
	}
	return nil
}
