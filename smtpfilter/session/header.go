package session

import (
	"io"

	"blockd/policy/reply"
)

// If lists check header addresses, upstream gets no octet before the header has ended: a tag
// goes above the header, and a message for the quarantine must not go upstream.

// watchHeader begins to read the header of a message if lists check it. A message whose end
// decides about the sender is forwarded meanwhile, because it gets no tag.
func (s *session) watchHeader(m *message, stuffed bool) {
	if !s.rules.ReadsHeader() {
		return
	}
	m.fields = &fields{asked: s.readsField, stuffed: stuffed}
	if !s.rules.AwaitsMessage() {
		m.held = s.settings.Copies.Copy(maxHeader + dataBuffer)
	}
}

// readsField reports whether lists check the addresses of the field.
func (s *session) readsField(name []byte) bool { return s.rules.ReadsField(string(name)) }

// readHeader reads the next piece of the header. It reports whether piece must wait for more
// of the header, and then holds it.
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

// judgeHeader decides about the message at the end of the header.
func (s *session) judgeHeader(m *message) {
	all, ok := m.fields.senders.Addresses()
	fault := reply.Reply{}
	if !ok || m.fields.over {
		fault = refuseManySenders
	}
	d := s.rules.Header(all, fault)
	s.carryOut(m, d, nil)
	if m.outcome != "" {
		return
	}
	if m.loop == nil && m.forwarded && s.tags() {
		m.loop = newHops(s.settings.Hostname)
	}
	if m.proof == nil && d.AwaitsMessage {
		m.proof = s.settings.Copies.Copy(s.settings.MaxCopy)
	}
}

// forwardHeld passes the held octets to move, in order. The caller then forwards what comes
// next.
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
