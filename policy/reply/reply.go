// Package reply has the one line that a client reads when its mail is not taken: codes, who
// or what is refused, a text, and where to ask. It knows bounds and characters, and nothing of
// lists: package policy says what a line is about.
package reply

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxLine bounds a reply line without CRLF: RFC 5321, section 4.5.3.1.5.
const maxLine = 510

// Reply is the answer to a client: one line. The zero Reply is none.
type Reply struct {
	Code     int    // such as 550
	Enhanced string // such as "5.7.1"
	Subject  string // who or what is refused, before the text: "<a@b.example>: Sender address rejected: "
	Text     string // "listed in bad (ref 0123456789)", or what the entry or its list says
	Contact  string // after the text, always whole; "" = none

	// Words is Text without what the line's length cost: for a mail server that puts a
	// subject of its own in front.
	Words string

	// Named: the entry or its list names the code.
	Named bool
	// Bare: the entry has a text of its own, and no code. A mail server whose tables
	// have such entries has a code for them.
	Bare bool
}

// String is the line without CRLF: at most 510 octets, cut at a character, printable,
// and without a character beyond ASCII unless the client can read those.
func (r Reply) String() string {
	if r.Code == 0 {
		return ""
	}
	return strconv.Itoa(r.Code) + " " + r.Enhanced + " " + r.Line()
}

// Line is the line without its codes.
func (r Reply) Line() string {
	return r.Subject + withContact(r.Text, r.Contact, maxLine-len("550 ")-len(r.Enhanced)-len(" ")-len(r.Subject))
}

// AfterSubject is the line from its text on, in at most so many octets: for a mail server
// that puts a subject of its own in front.
func (r Reply) AfterSubject(most int) string { return withContact(r.Words, r.Contact, most) }

// Ends reports whether the connection ends with the reply (RFC 5321, section 3.8, and
// RFC 7504).
func (r Reply) Ends() bool { return r.Code == 421 || r.Code == 521 }

// Referring returns the reply with another reference. References have one length.
func (r Reply) Referring(from, to string) Reply {
	for _, text := range []*string{&r.Text, &r.Contact, &r.Words} {
		*text = strings.ReplaceAll(*text, from, to)
	}
	return r
}

func withContact(text, contact string, most int) string {
	if contact == "" {
		return cutText(text, most)
	}
	return cutText(text, most-1-len(contact)) + " " + contact
}

// InPlaceOfGreeting is the reply where the client has said nothing yet.
func (r Reply) InPlaceOfGreeting() Reply {
	switch {
	case r.Code/100 == 4:
		r.Code = 421
	case r.Code/100 == 5 && !r.Named:
		r.Code = 554
	}
	return r
}

// cutText cuts text to at most most octets, at a character.
func cutText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	most = max(most, 0)
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return strings.TrimRight(text[:most], " ")
}
