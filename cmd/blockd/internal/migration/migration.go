// Package migration reads the lists of senders and clients that another program has in its configuration (Postfix,
// rspamd, SpamAssassin), and writes each of its tables as a list, as plainly as possible. It claims nothing of what it
// has written: Result.Ask puts the same mails to the other program and to the configuration that was written, at least
// one for every key of every table, and reports whose answers differ.
//
// Nothing that a configuration says is executed or asked for over a network.
package migration

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/sources/mirror"
)

// Outcome is what became of one entry.
type Outcome uint8

// The outcomes. An entry is Same or Differs by the answers about its mails alone.
const (
	NotAsked Outcome = iota // nobody was asked about it
	Same                    // both programs answer all of its mails alike, and in the same words
	Reworded                // the same becomes of all of its mails, but one that is refused reads other words
	Differs                 // something else becomes of one of its mails at least
	Lost                    // no list has it, and both programs do not answer all of its mails alike, or were not asked
	Stays                   // no entry: a check of the mail server's own, which stays there
)

// String returns the words of the report.
func (o Outcome) String() string {
	return [...]string{NotAsked: "not asked", Same: "the same", Reworded: "other words", Differs: "differs", Lost: "not carried over", Stays: "no entry"}[o]
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

// Finding is what is said of one entry: a line of a table, or a word of a configuration that decides about senders or
// clients.
type Finding struct {
	Place
	Text    string  `json:"text"`    // as it stands there, in one line, at most 200 octets
	Meant   string  `json:"meant"`   // what it asks for there, in a few words
	Outcome Outcome `json:"outcome"` // what became of it
	Now     string  `json:"now"`     // why it is not carried over, or what else is to be said; "" = nothing
	List    string  `json:"list"`    // the list that has it, "" for none
	Mails   int     `json:"mails"`   // both programs were asked about
}

// List is one list to be written, with what its [[list]] says.
type List struct {
	Name         string
	File         string // in the folder of lists
	Format       string // "postfix", "plain" or "csv:entry"
	Comes        string // from where, for people
	PerRecipient bool   // its entries have owners
	Patterns     bool
	Shadow       bool
	Tempfail     bool // its entries defer
	Tag          bool // taken, with a header field
	Hold         bool // taken, and set aside
	Allow        bool // of a fetched list: its entries are exceptions
	Discard      bool
	Match        []string // which addresses it is asked about; none = those of envelopes
	Require      []string // what its exceptions need to count; none = nothing
	Excepts      bool     // its exceptions reach the blocks of other lists
	Says         string   // to the client, where an entry has no text of its own; with codes in front

	// What the gate must let pass for the list to be loaded as it was.
	Force             []string
	AllowPublicSuffix bool

	Text    []byte // the file
	Entries int    // that it holds

	// URL is where a list without Text comes from.
	URL string

	from *table
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

	names map[string]int // of lists, in lower case: the last number that one was given, 0 = it is free
	work  folder
	stop  func() // ends what There has started; nil = nothing
	batch int    // mails that There is best asked about at once; 0 = some

	// Mails are those to ask about, each with the entry that it is about; There is the other program. Without it
	// nothing can be asked.
	Mails iter.Seq[Mail]
	There Answerer

	// ByPolicy is what the other program makes of an answer of the policy service; nil = it does not ask one.
	ByPolicy func(action string) Answer

	// Of Ask.
	Asked, Alike int          // mails
	Wronged      int          // mails that are let pass there and are not here
	Differences  []Difference // the first maxDifferences
	Unasked      string       // why nothing was asked; "" = something was
}

// Close ends what There has started, and removes its files. There may start them again.
func (r *Result) Close() {
	if r.stop != nil {
		r.stop()
		r.stop = nil
	}
	_ = r.work.close() // of temporary files
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
	// Hostname is the name that blockd takes where the configuration has none: the gate protects its domain.
	Hostname string
	// Domain completes the names of users without one; "" = entries of such users are not carried over.
	Domain string
	// Query asks the database of a DSN; kind is "postgres", "mysql" or "sqlite". The query gives the columns owner,
	// entry, action and id. nil = there is no way to a database.
	Query func(ctx context.Context, kind, dsn, query string, yield func(owner string, row mirror.Row) error) error
}

// maxNotes bounds the remarks about the whole: who has more reads none.
const maxNotes = 200

// Note adds a remark about the whole, once.
func (r *Result) Note(format string, args ...any) {
	text := original.Clean(fmt.Sprintf(format, args...))
	if len(r.Notes) == maxNotes {
		text = "there is more to say than is shown"
	}
	if len(r.Notes) <= maxNotes && !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// Find adds a finding.
func (r *Result) Find(at Place, text, meant string) *Finding {
	f := &Finding{Place: at, Text: original.Shown(text), Meant: meant}
	r.Findings = append(r.Findings, f)
	return f
}

// Lose settles that no list has the entry. What was said first stands.
func (f *Finding) Lose(format string, args ...any) *Finding {
	if f.Outcome != Lost {
		f.Outcome, f.Now, f.List = Lost, fmt.Sprintf(format, args...), ""
	}
	return f
}

// stays settles that a word of a configuration is none of an import's.
func (f *Finding) stays(why string) *Finding {
	f.Outcome, f.Now = Stays, why
	return f
}

// Remark says something more of an entry that is carried over.
func (f *Finding) Remark(text string) {
	switch {
	case f.Outcome == Lost:
	case f.Now == "":
		f.Now = text
	default:
		f.Now += "; " + text
	}
}
