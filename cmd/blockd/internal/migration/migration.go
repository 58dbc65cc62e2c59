// Package migration reads the lists of senders and clients that another program
// has in its configuration (Postfix, rspamd, SpamAssassin) and says what blockd
// would make of them: lists, a configuration, and for every entry whether it means
// the same here.
//
// An entry is carried over as it is, or the difference is said, or it is not
// carried over. Nothing is executed, asked for over a network or written: the
// result is text in memory, and every list in it has been read back with package
// lists before it is returned.
package migration

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"blockd/cmd/blockd/internal/migration/internal/original"
)

// Outcome is what became of one entry.
type Outcome uint8

// The outcomes. Same is the same mail and, to the octet, the same reply; Reworded the same
// mail with another reply. Wider and Narrower speak of what the entry itself does: a wider
// block refuses more, a wider exception lets more pass.
const (
	Same Outcome = iota
	Narrower
	Wider
	Reworded
	Lost
)

// String returns the words of the report.
func (o Outcome) String() string {
	return [...]string{Same: "the same", Narrower: "narrower", Wider: "wider", Reworded: "other words", Lost: "not carried over"}[o]
}

// MarshalText gives JSON the same words.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Place is a line of a file. Line 0 is the file as a whole.
type Place struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

// String is what editors jump to.
func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Finding is what is said of one entry: a line of a table, or a word of a
// configuration that decides about senders or clients.
type Finding struct {
	Place
	Text    string  `json:"text"`    // as it stands there, in one line, at most 200 octets
	Meant   string  `json:"meant"`   // what it does in the program it was written for
	Outcome Outcome `json:"outcome"` // what became of it
	Now     string  `json:"now"`     // the difference, or why it is not carried over; "" if there is nothing to say
	List    string  `json:"list"`    // the list that has it, "" for none
}

// List is one list to be written, with what its [[list]] says.
type List struct {
	Name         string
	File         string // in the folder of lists
	Format       string // "postfix" or "plain"
	Comes        string // from where, for people
	PerRecipient bool   // its entries have owners
	Patterns     bool
	Shadow       bool
	Tempfail     bool // patterns that defer
	Tag          bool // taken, with a header field
	Hold         bool // taken, and set aside
	Allow        bool // of a fetched list: its entries are exceptions
	Discard      bool
	Match        []string // which addresses it is asked about; none = those of envelopes
	Require      []string // what its exceptions need to count; none = nothing
	Excepts      bool     // it has exceptions that go before the blocks of other lists
	Reason       string
	Says         string // to the client, where an entry has no text of its own; with codes in front

	// What the gate must let pass for the list to mean what it meant.
	Force             []string
	AllowPublicSuffix bool

	Text    []byte // the file
	Entries int    // that it holds

	// URL is where a list without Text comes from.
	URL string

	site *site
}

// Policy is one [[policy]]: which lists count for some recipients.
type Policy struct {
	Recipients []string
	Lists      []string
}

// Result is what an import comes to.
type Result struct {
	Program  string // "Postfix", "rspamd" or "SpamAssassin"
	Source   string // the file that was named
	Hostname string // "" = not said there

	Trusted           []netip.Prefix
	SkipAuthenticated *bool // nil: nothing there decides it
	Lists             []*List
	Policies          []Policy
	Findings          []*Finding
	Notes             []string // of the whole, a sentence each

	fetched []*List // that have a URL and no text
}

// Count returns how many findings have an outcome.
func (r *Result) Count(o Outcome) int {
	n := 0
	for _, f := range r.Findings {
		if f.Outcome == o {
			n++
		}
	}
	return n
}

// Options are what an import needs to know of the machine that is to run blockd.
type Options struct {
	// Hostname is the name that blockd takes where the configuration has none: the
	// gate protects its domain.
	Hostname string
}

// maxNotes bounds the remarks about the whole: who has more reads none.
const maxNotes = 200

// note adds a remark about the whole, once.
func (r *Result) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(r.Notes) == maxNotes {
		text = "there is more to say than is shown"
	}
	if len(r.Notes) <= maxNotes && !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// find adds a finding.
func (r *Result) find(at Place, text, meant string) *Finding {
	f := &Finding{Place: at, Text: original.Shown(text), Meant: meant}
	r.Findings = append(r.Findings, f)
	return f
}

// lose settles that the entry is not carried over. What was said first stands.
func (f *Finding) lose(format string, args ...any) *Finding {
	if f.Outcome != Lost {
		f.Outcome, f.Now, f.List = Lost, fmt.Sprintf(format, args...), ""
	}
	return f
}

// differ settles how the entry differs. A first difference is not overwritten,
// further ones are said behind it; other words are said last.
func (f *Finding) differ(o Outcome, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	switch {
	case f.Outcome == Lost:
	case f.Outcome == Same:
		f.Outcome, f.Now = o, text
	case f.Outcome == o:
		f.Now += "; " + text
	case f.Outcome == Reworded:
		f.Outcome, f.Now = o, text+"; "+Reworded.String()+": "+f.Now
	default:
		f.Now += "; " + o.String() + ": " + text
	}
}

// remark says something of an entry that means the same.
func (f *Finding) remark(text string) {
	switch {
	case f.Outcome == Same && f.Now == "":
		f.Now = text
	case f.Outcome == Reworded && !strings.Contains(f.Now, text):
		f.Now += "; " + text
	}
}
