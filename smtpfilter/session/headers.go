package session

import (
	"io"

	"blockd/policy"
)

// Where lists are asked about addresses in the header, upstream gets no octet before
// the header has ended: a tag must stand on top of it, and what goes into quarantine
// must not have gone elsewhere.

// readsHeaders reports whether lists are asked about the headers of this client's mail.
func (s *session) readsHeaders() bool {
	return s.checker.Sources().Header() && !s.trusted && !(s.authenticated && s.settings.SkipAuthenticated)
}

// watchHeader begins to read the header of a message, if it is asked about. One whose
// sender the message decides about goes on meanwhile: it ends in no tag.
func (s *session) watchHeader(m *message, stuffed bool) {
	if s.tx.headers == nil || s.tx.fate.group == policy.Unread {
		return
	}
	m.fields = &fields{wants: s.checker.Sources(), stuffed: stuffed}
	if !s.tx.fate.late() {
		m.held = s.settings.Copies.Copy(maxHeader + dataBuffer)
	}
}

// readHeader reads on in the header. It reports whether piece is to wait for more of
// it, and then holds it.
func (s *session) readHeader(m *message, piece []byte, last bool) (waits bool) {
	if m.fields == nil || m.fields.ended || m.outcome != "" {
		return false
	}
	ended := m.fields.read(piece, last)
	switch {
	case m.held == nil:
		return false
	case ended:
		s.judgeHeader(m)
		return false
	}
	if _, err := m.held.Write(piece); err != nil {
		s.spoolFailed(m, err)
	}
	return true
}

// judgeHeader decides at the end of the header.
func (s *session) judgeHeader(m *message) {
	s.readSenders(m)
	var now, later []policy.Verdict
	for _, v := range m.awaiting {
		if s.stake(v, s.tx.recipient()) == (policy.Stake{}) {
			now = append(now, v)
		} else {
			later = append(later, v)
		}
	}
	m.awaiting = later
	s.fulfil(m, s.judgeSenders(now, policy.Decision{}), nil)
	if len(later) > 0 && m.outcome == "" {
		m.proof = s.settings.Copies.Copy(s.settings.MaxCopy)
	}
}

// readSenders looks up the addresses of the header. Mail whose envelope an exception frees
// from all lists is not asked further.
func (s *session) readSenders(m *message) {
	recipient := s.tx.recipient()
	if v := s.checker.For(s.tx.verdict, recipient); v.Frees() {
		return
	}
	all, ok := m.fields.senders.Addresses()
	if !ok || m.fields.over {
		s.stop(m, "refused", replyManySenders)
		return
	}
	for _, f := range all {
		source, _ := policy.FieldSource(f.Name)
		v := s.tx.headers.Header(source, f.Text)
		v.Seen.UTF8 = s.tx.verdict.Seen.UTF8
		m.awaiting = append(m.awaiting, s.checker.ProveOrigin(s.hard, v, recipient, s.origin())) // asks nothing: SPF is of envelopes
	}
}

// judgeSenders returns the decision that weighs most: d, or that about an address of
// the header.
func (s *session) judgeSenders(all []policy.Verdict, d policy.Decision) policy.Decision {
	recipient := s.tx.recipient()
	for _, v := range all {
		own := s.checker.EndOfMessage(v, recipient)
		if own.Ref == "" || v.Kind == policy.Allowed {
			continue
		}
		s.logDecision(s.checker.For(v, recipient), own, recipient)
		if weight(own.Outcome) > weight(d.Outcome) {
			d = own
		}
	}
	return d
}

// weight orders outcomes: a sender that is listed is not helped by one that is not.
func weight(o policy.Outcome) int {
	switch o {
	case policy.Refuse:
		return 4
	case policy.Defer:
		return 3
	case policy.Quarantine:
		return 2
	case policy.Mark:
		return 1
	}
	return 0
}

// forwardHeld moves on what was held, as move does it; behind it goes what comes next.
func (s *session) forwardHeld(m *message, move func(piece []byte)) {
	held := m.held
	m.held = nil
	if held == nil || held.Size() == 0 {
		return
	}
	defer held.Close()
	b := s.buffers.Get().(*[dataBuffer]byte)
	defer s.buffers.Put(b)
	for r := held.Reader(); m.outcome == ""; {
		n, err := r.Read(b[:])
		if n > 0 {
			move(b[:n])
		}
		switch {
		case err == io.EOF:
			return
		case err != nil:
			s.spoolFailed(m, err)
		}
	}
}
