package session

import (
	"io"

	"blockd/policy"
)

// Where lists are asked about addresses in the header, upstream gets no octet before
// the header has ended: a tag must stand on top of it, and what goes into quarantine
// must not have gone elsewhere.

// watchHeader begins to read the header of a message, if lists are asked about it. A
// message that decides about its sender goes on meanwhile, because it gets no tag.
func (s *session) watchHeader(m *message, stuffed bool) {
	if !s.rules.ReadsHeader() {
		return
	}
	m.fields = &fields{asked: s.readsField, stuffed: stuffed}
	if !s.rules.AwaitsMessage() {
		m.held = s.settings.Copies.Copy(maxHeader + dataBuffer)
	}
}

func (s *session) readsField(name []byte) bool { return s.rules.ReadsField(string(name)) }

// readHeader reads on in the header. It reports whether piece is to wait for more of
// it, and then holds it.
func (s *session) readHeader(m *message, piece []byte, last bool) (waits bool) {
	if m.fields == nil || m.fields.ended || m.outcome != "" {
		return false
	}
	if m.fields.read(piece, last) {
		s.judgeHeader(m)
		return false
	}
	if m.held == nil {
		return false
	}
	if _, err := m.held.Write(piece); err != nil {
		s.spoolFailed(m, err)
	}
	return true
}

// judgeHeader decides at the end of the header.
func (s *session) judgeHeader(m *message) {
	all, ok := m.fields.senders.Addresses()
	fault := policy.Reply{}
	if !ok || m.fields.over {
		fault = refuseManySenders
	}
	d := s.rules.Header(all, fault)
	s.fulfil(m, d, nil)
	if m.outcome != "" {
		return
	}
	if m.loop == nil && m.forwarded && s.rules.Tag() != (policy.Tag{}) {
		m.loop = newHops(s.settings.Hostname)
	}
	if m.proof == nil && d.AwaitsMessage {
		m.proof = s.settings.Copies.Copy(s.settings.MaxCopy)
	}
}

// forwardHeld moves on what was held, as move does it, before what comes next.
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
