package session

import (
	"bytes"
	"net/netip"
	"strings"
	"time"

	"blockd/policy"
	"blockd/smtpfilter/parse"
	"blockd/smtpfilter/upstream"
)

// Where upstream is not told who the client is, a Received field keeps its
// address; those fields then show a message that goes in a circle.

// traces reports whether messages get a Received field.
func (s *session) traces() bool {
	return s.settings.ClientInfo == "" || s.settings.ClientInfo == upstream.ClientInfoNone
}

// traceRoom is what must be left of upstream's SIZE for the fields of header.
func (s *session) traceRoom() int64 {
	if s.traces() || s.checker.Uses(policy.TagOnMatch) {
		return maxField
	}
	return 0
}

// header is what a session adds to a message upstream: the tag, if a list wants
// one, above the Received field. Fields that stand above a Received field were put
// there by who wrote it, or after it; that is how ours are told from a client's.
func (s *session) header(m *message) []byte {
	trace := s.traceHeader(m.started)
	tag := s.rules.Tag()
	if tag == (policy.Tag{}) {
		return trace
	}
	return append([]byte(tagField(tag)), trace...)
}

// tagField is the header field of a tag. Fields of this name that the client has
// sent stay as they are: they can but say that a list has its sender, and to take
// them out would break what the message's signatures cover.
func tagField(tag policy.Tag) string { return "X-Blockd: " + tag.String() + "\r\n" }

// traceHeader is the time-stamp line of RFC 5321, section 4.4.
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

// traceName makes a domain or an address literal of what the client calls
// itself, or says that it is neither.
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

// traceAddr is the address literal of RFC 5321, section 4.1.3.
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

// The bounds of loop detection (docs/smtp.md). RFC 5321, section 6.3, asks for at
// least 100 hops before a loop is assumed; but no honest route has 50, and each
// round through a loop of ours adds one field of our own, so five of those are
// proof enough.
const (
	maxOwnHops = 5
	maxHops    = 50
)

// hops counts the Received fields in the header section of one message.
type hops struct {
	own   []byte // what marks a field as ours, in small letters
	line  []byte // the line so far, without its end, at most maxField octets
	field []byte // the Received field so far, its lines joined; empty outside one
	all   int
	ours  int
	done  bool // the header section has ended
}

// maxField is how much of a field is looked at. Our own ones are shorter than
// 255 octets of name, 255 of host name and 200 of the rest.
const maxField = 1000

func newHops(hostname string) *hops {
	return &hops{own: []byte("by " + strings.ToLower(hostname) + " (blockd)")}
}

// tooMany reads on in p, the octets that follow those already seen, and reports
// whether the message has been around too often.
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

// endLine takes a whole line of the header section.
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
