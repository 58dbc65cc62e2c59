package milter

import (
	"strings"

	"github.com/d--j/go-milter"

	"blockd/msgauth"
)

// resultsField is where what was found out about a message is told to those behind us
// (RFC 8601).
const resultsField = "Authentication-Results"

// maxForged bounds the fields of a message that are taken out, each by a packet. A
// forger needs one.
const maxForged = 100

// results are the Authentication-Results fields of a message.
type results struct {
	seen   int   // so far
	forged []int // the places of those that claim to be ours, from 1 among all of that name
}

// readResults counts a field, and notes it if it claims to be ours.
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

// found is the text of our own field, "" where nothing was looked for.
func (s *session) found() string {
	sender, spf, m := s.tx.Found()
	if spf.Result == "" && m == nil {
		return ""
	}
	return msgauth.Results(s.settings.Results, spf, sender, m)
}

// pastHeader answers the end of the header of a message that lists have nothing to do
// with any more. A mail server changes messages at their end only.
func (s *session) pastHeader() *milter.Response {
	if s.learns || s.writesResults && (len(s.results.forged) > 0 || s.found() != "") {
		return milter.RespContinue
	}
	s.reset()
	return milter.RespAccept
}

// writeResults takes out the fields that only we may write, from the last up since each
// that goes moves those behind it, and puts ours on top.
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
	if text := s.found(); text != "" {
		return m.InsertHeader(0, resultsField, s.fieldText(text))
	}
	return nil
}
