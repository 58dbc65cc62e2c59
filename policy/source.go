package policy

import (
	"fmt"
	"slices"
	"strings"

	"blockd/index"
)

// Source says where an address stood that lists are asked about.
type Source uint8

// The sources.
const (
	EnvelopeSource   Source = iota // MAIL FROM
	FromSource                     // the header field From
	ReplyToSource                  // Reply-To
	ReturnPathSource               // Return-Path, as the client has sent it
)

// sourceWords are the words of the configuration, and but for the first the names
// of header fields.
var sourceWords = [...]string{"envelope", "from", "reply-to", "return-path"}

// SourceWords are the words that ParseSources knows.
func SourceWords() []string { return slices.Clone(sourceWords[:]) }

func (s Source) String() string { return sourceWords[s] }

// subject is how a refusal begins to speak of an address.
func (s Source) subject() string {
	return [...]string{"Sender", "From", "Reply-To", "Return-Path"}[s]
}

// FieldSource is the source that a header field of this name is, if it is one.
// Blanks may stand behind a name (RFC 5322, section 4.5), and Postfix hands them over.
func FieldSource(name string) (Source, bool) {
	name = strings.TrimRight(name, " \t")
	for i, word := range sourceWords[FromSource:] {
		if strings.EqualFold(word, name) {
			return FromSource + Source(i), true
		}
	}
	return 0, false
}

// Sources are the sources whose addresses a list is asked about. The zero value
// is the envelope alone.
type Sources uint8

// ParseSources reads the words of a list's `match`.
func ParseSources(words []string) (Sources, error) {
	var all Sources
	for _, word := range words {
		i := slices.Index(sourceWords[:], strings.ToLower(word))
		if i < 0 {
			return 0, fmt.Errorf("want %s, have %q", strings.Join(sourceWords[:], ", "), word)
		}
		all |= 1 << i
	}
	return all, nil
}

// Has reports whether s is one of them.
func (all Sources) Has(s Source) bool {
	if all == 0 {
		return s == EnvelopeSource
	}
	return all&(1<<s) != 0
}

// Header reports whether one of them is a header field.
func (all Sources) Header() bool { return all&^(1<<EnvelopeSource) != 0 }

// sourcesOf is what all lists together are asked about.
func sourcesOf(rules map[string]ListRule) Sources {
	all := Sources(1 << EnvelopeSource)
	for _, rule := range rules {
		all |= rule.Match
	}
	return all
}

// narrowed reports whether some list is not asked about envelopes.
func narrowed(rules map[string]ListRule) bool {
	for _, rule := range rules {
		if !rule.Match.Has(EnvelopeSource) {
			return true
		}
	}
	return false
}

// Sources are what some list is asked about. A door that sees header fields asks
// about those.
func (c *Checker) Sources() Sources { return c.sources }

// asked takes out of matches those of lists that are not asked about s.
func (c *Checker) asked(matches []index.Match, table []index.ListInfo, s Source) []index.Match {
	if s == EnvelopeSource && !c.narrow {
		return matches
	}
	return asked(c.rules, matches, table, s)
}

func asked(rules map[string]ListRule, matches []index.Match, table []index.ListInfo, s Source) []index.Match {
	return slices.DeleteFunc(matches, func(m index.Match) bool {
		return !rules[table[m.Row].Source.List].Match.Has(s)
	})
}

// Header decides about one address of a header field, given as Envelope takes it,
// by those lists alone that are asked about s. The client has no part in it: it
// was judged with the envelope, and a door asks only about the header of mail
// whose envelope nothing refuses or allows.
func (c *Checker) Header(s Source, address string) Verdict {
	return c.ask(question{about: aField, source: s, text: address})
}

// Passes reports whether an envelope is accepted for every recipient there is, with
// nothing to be said about it: a door may then leave out the questions about them.
// all are the verdicts of its senders, two where it has two spellings. If so, they are
// remembered as by Recipient, with the recipient that the door has in hand;
// "" = all of them.
func (c *Checker) Passes(recipient string, all ...Verdict) bool {
	if !passes(all) {
		return false
	}
	c.recordPassed(&c.as, recipient, all)
	return true
}

// passes reports whether no list has a part in any of these.
func passes(all []Verdict) bool {
	for i := range all {
		if all[i].Kind != Clear || len(all[i].Matches) > 0 {
			return false
		}
	}
	return true
}

func (c *Checker) recordPassed(door *Door, recipient string, all []Verdict) {
	for i := range all {
		c.record(door, &all[i], recipient, &Decision{})
	}
}

// Group says which recipients share every decision about a header: those with
// equal Groups. A message has one header for all its recipients. The zero Group is
// nobody's.
type Group int

// The Groups. Behind them come those of policies, each that of the first alike.
//
// No header decides for exempt recipients, for those of whose lists none has header
// sources, and for those whose envelope an exception frees from all lists.
const (
	Unread  Group = 1 + iota // no header decides
	AllRead                  // all lists count
)

// Group returns the group of a recipient; envelope are the verdicts of its senders.
func (c *Checker) Group(recipient string, envelope ...Verdict) Group {
	if c.isExempt(recipient) {
		return Unread
	}
	for _, v := range envelope {
		if v := c.For(v, recipient); v.Frees() {
			return Unread
		}
	}
	return c.policies.group(recipient)
}
