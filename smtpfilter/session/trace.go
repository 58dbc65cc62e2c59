package session

import (
	"bytes"
	"net/netip"
	"strings"
	"time"

	"blockd/policy"
	"blockd/policy/reply"
	"blockd/smtpfilter/parse"
	"blockd/smtpfilter/upstream"
)

// If upstream is not told the client's address, a Received field records it. These fields also
// reveal a message that travels in a loop.

// traces reports whether messages get a Received field.
func (s *session) traces() bool {
	return s.settings.ClientInfo == "" || s.settings.ClientInfo == upstream.ClientInfoNone
}

// traceRoom returns the octets of upstream's SIZE that our own header fields may need.
func (s *session) traceRoom() int64 {
	if s.traces() || s.checker.Needs().Marks {
		return maxField
	}
	return 0
}

// header returns the fields that a session puts on top of a message for upstream: the mark
// of a domain that is new here, the tag, if a list wants one, and the Received field below them.
// A field above a Received field comes from the server that wrote it, or from a later one. So
// ours can be told from a client's.
func (s *session) header(m *message) (fields []byte) {
	if s.rules.FirstSeen() {
		fields = append(fields, policy.FirstSeenField+": "+policy.FirstSeenYes+"\r\n"...)
	}
	if tag := s.rules.Tag(); tag != (reply.Tag{}) {
		fields = append(fields, tagField(tag)...)
	}
	trace := s.traceHeader(m.started)
	if fields == nil {
		return trace
	}
	return append(fields, trace...)
}

// tags reports whether the message gets a field of ours beside Received.
func (s *session) tags() bool { return s.rules.Tag() != (reply.Tag{}) || s.rules.FirstSeen() }

// tagField returns the header field of a tag. Fields of this name that the client has sent
// stay: they can only claim that a list has the sender, and removing them would break the
// message's signatures.
func tagField(tag reply.Tag) string { return "X-Blockd: " + tag.String() + "\r\n" }

// traceHeader returns the Received field (RFC 5321, section 4.4).
func (s *session) traceHeader(now time.Time) []byte {
	with := "SMTP"
	switch {
	case s.tx.params.Has(parse.ParamSMTPUTF8):
		with = "UTF8SMTP" // RFC 6531, section 4.3
	case s.esmtp:
		with = "ESMTP"
	}
	if with != "SMTP" { // RFC 3848
		if s.overTLS {
			with += "S"
		}
		if s.rules.Client.Authenticated {
			with += "A"
		}
	}
	return []byte("Received: from " + traceName(s.rules.Client.Helo) + " (" + traceAddr(s.client.Addr()) + ")\r\n" +
		"\tby " + s.settings.Hostname + " (blockd) with " + with + " id " + s.tx.id + ";\r\n" +
		"\t" + now.Format("Mon, 02 Jan 2006 15:04:05 -0700") + "\r\n")
}

// traceName returns the client's HELO name if it looks like a domain or an address literal;
// otherwise "unknown".
func traceName(helo string) string {
	name := strings.Map(func(c rune) rune {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', strings.ContainsRune("-.:[]", c):
			return c
		}
		return '?'
	}, helo)
	if name == "" || len(name) > 255 || strings.Contains(name, "?") {
		return "unknown"
	}
	return name
}

// traceAddr returns an address literal (RFC 5321, section 4.1.3), or "unknown".
func traceAddr(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	switch {
	case !a.IsValid():
		return "unknown"
	case a.Is4():
		return "[" + a.String() + "]"
	}
	return "[IPv6:" + a.String() + "]"
}

// Bounds of loop detection (docs/smtp.md). RFC 5321, section 6.3, assumes a loop after at
// least 100 hops. No honest route has 50. Each round through our own loop adds one field of
// ours, so more than five of those are proof enough.
const (
	maxOwnHops = 5
	maxHops    = 50
)

// hops counts the Received fields in the header of one message.
type hops struct {
	own   []byte // the text that marks a field as ours, in lower case
	line  []byte // the current line without its end, at most maxField octets
	field []byte // the current Received field, its lines joined; empty outside one
	all   int
	ours  int
	done  bool // the header has ended
}

// maxField bounds how much of a field is examined, in octets. Our own fields are shorter: 255
// octets of client name, 255 of host name and 200 of the rest.
const maxField = 1000

func newHops(hostname string) *hops {
	return &hops{own: []byte("by " + strings.ToLower(hostname) + " (blockd)")}
}

// tooMany reads p, the next octets of the message. It reports whether the message has passed
// too many hops.
func (h *hops) tooMany(p []byte) bool {
	for !h.done && len(p) > 0 {
		text, rest, whole := bytes.Cut(p, []byte{'\n'})
		h.line = append(h.line, text[:min(len(text), maxField-len(h.line))]...)
		if !whole {
			break
		}
		p = rest
		h.endLine(bytes.TrimSuffix(h.line, []byte{'\r'}))
		h.line = h.line[:0]
	}
	return h.ours > maxOwnHops || h.all > maxHops
}

// endLine adds a whole line of the header.
func (h *hops) endLine(line []byte) {
	if len(line) > 0 && (line[0] == ' ' || line[0] == '\t') { // folded
		if len(h.field) > 0 {
			line = append([]byte{' '}, bytes.TrimLeft(line, " \t")...)
			h.field = append(h.field, line[:min(len(line), maxField-len(h.field))]...)
		}
		return
	}
	if bytes.Contains(bytes.ToLower(h.field), h.own) {
		h.ours++
	}
	h.field = h.field[:0]
	h.done = len(line) == 0
	if name, _, ok := bytes.Cut(line, []byte{':'}); ok && bytes.EqualFold(bytes.TrimRight(name, " \t"), []byte("Received")) {
		h.all++
		h.field = append(h.field, line...)
	}
}
