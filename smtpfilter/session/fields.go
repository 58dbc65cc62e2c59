package session

import (
	"bytes"

	"blockd/mail/header"
)

// maxHeader bounds the header of a message whose addresses are looked up, in octets. Postfix
// reads 100 KiB of a header by default, Sendmail 32.
const maxHeader = header.MaxOctets

// maxKept bounds the memory for such a header, in octets: the fields that are looked up, and a
// line that is not complete. For 4,000 sessions that is 256 MiB. An honest message needs less
// than a hundredth of it.
const maxKept = 64 << 10

// fields finds the header fields whose addresses are looked up, in the octets of a message as
// they come. Any line that a mail program may take for such a field counts. The search goes on
// to the first empty line, even after lines that are not fields.
type fields struct {
	asked   func(name []byte) bool // reports whether lists check the addresses of a field; must be set
	stuffed bool                   // the octets come by DATA, where a dot at the beginning of a line is not part of it
	senders header.Senders

	octets int
	line   []byte // the beginning of a line, if a piece has ended within it
	name   string // the current field's name; "" = it is not looked up
	text   []byte
	kept   int  // octets of earlier fields
	ended  bool // the header has ended
	over   bool // the header is too big
}

// read reads p, the next octets of the message. last says that no more come. read reports
// whether the header has ended.
func (f *fields) read(p []byte, last bool) bool {
	for !f.ended && len(p) > 0 {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		if f.octets += len(p) - len(rest); f.octets > maxHeader {
			f.over, f.ended = true, true
			break
		}
		if len(f.line) > 0 || !whole {
			f.line = append(f.line, line...)
			line = f.line
		}
		if f.kept+len(f.text)+len(f.line) > maxKept {
			f.over, f.ended = true, true
			break
		}
		if !whole {
			break
		}
		f.endLine(line)
		f.line, p = f.line[:0], rest
	}
	if last && !f.ended {
		f.endLine(f.line)
		f.endField()
		f.ended = true
	}
	return f.ended
}

// endLine adds a whole line, without its LF.
func (f *fields) endLine(line []byte) {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	if f.stuffed {
		line = bytes.TrimPrefix(line, []byte{'.'})
	}
	if len(line) > 0 && (line[0] == ' ' || line[0] == '\t') { // folded
		if f.name != "" {
			f.text = append(append(f.text, ' '), line...)
		}
		return
	}
	f.endField()
	f.ended = len(line) == 0
	name, text, ok := bytes.Cut(line, []byte{':'})
	if ok && f.asked(name) {
		// One name for all its spellings: an address counts once for a field.
		f.name, f.text = string(bytes.ToLower(bytes.TrimRight(name, " \t"))), append(f.text[:0], text...)
	}
}

// endField adds the current field, whose lines are complete.
func (f *fields) endField() {
	if f.name != "" {
		f.senders.Add(f.name, string(f.text))
		f.kept += len(f.text)
	}
	f.name, f.text = "", f.text[:0]
}
