package policy

import (
	"fmt"
	"slices"
	"strings"

	"blockd/index"
)

// source says where an address stood that lists are asked about.
type source uint8

// The sources.
const (
	envelopeSource   source = iota // MAIL FROM
	fromSource                     // the header field From
	replyToSource                  // Reply-To
	returnPathSource               // Return-Path, as the client has sent it
)

// sourceWords are the words of the configuration, and but for the first the names
// of header fields.
var sourceWords = [...]string{"envelope", "from", "reply-to", "return-path"}

// SourceWords are the words that ParseSources knows.
func SourceWords() []string { return slices.Clone(sourceWords[:]) }

func (s source) String() string { return sourceWords[s] }

// subject is how a refusal begins to speak of an address.
func (s source) subject() string {
	return [...]string{"Sender", "From", "Reply-To", "Return-Path"}[s]
}

// fieldSource is the source that a header field of this name is, if it is one.
// Blanks may stand behind a name (RFC 5322, section 4.5), and Postfix hands them over.
func fieldSource(name string) (source, bool) {
	name = strings.TrimRight(name, " \t")
	for i, word := range sourceWords[fromSource:] {
		if strings.EqualFold(word, name) {
			return fromSource + source(i), true
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

// Envelope reports whether one of them is the envelope.
func (all Sources) Envelope() bool { return all.has(envelopeSource) }

// has reports whether s is one of them.
func (all Sources) has(s source) bool {
	if all == 0 {
		return s == envelopeSource
	}
	return all&(1<<s) != 0
}

// Header reports whether one of them is a header field.
func (all Sources) Header() bool { return all&^(1<<envelopeSource) != 0 }

// sourcesOf is what all lists together are asked about.
func sourcesOf(rules map[string]ListRule) Sources {
	all := Sources(1 << envelopeSource)
	for _, rule := range rules {
		all |= rule.Match
	}
	return all
}

// narrowed reports whether some list is not asked about envelopes.
func narrowed(rules map[string]ListRule) bool {
	for _, rule := range rules {
		if !rule.Match.has(envelopeSource) {
			return true
		}
	}
	return false
}

// ReadsHeaders reports whether there is a list that is asked about addresses in headers.
func (c *Checker) ReadsHeaders() bool { return c.sources.Header() }

// asked takes out of matches those of lists that are not asked about s.
func (c *Checker) asked(matches []index.Match, table []index.ListInfo, s source) []index.Match {
	if s == envelopeSource && !c.narrow {
		return matches
	}
	return asked(c.rules, matches, table, s)
}

func asked(rules map[string]ListRule, matches []index.Match, table []index.ListInfo, s source) []index.Match {
	return slices.DeleteFunc(matches, func(m index.Match) bool {
		return !rules[table[m.Row].Source.List].Match.has(s)
	})
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

// group says which recipients share every decision about a header: those with
// equal groups. A message has one header for all its recipients. The zero group is
// nobody's.
type group int

// The groups. After them come those of policies, each that of the first alike.
//
// No header decides for exempt recipients, for those of whose lists none has header
// sources, and for those whose envelope an exception frees from all lists.
const (
	unread  group = 1 + iota // no header decides
	allRead                  // all lists count
)

// group returns the group of a recipient; envelope are the verdicts of its senders.
func (c *Checker) group(recipient string, envelope ...Verdict) group {
	if c.isExempt(recipient) {
		return unread
	}
	for _, v := range envelope {
		if v := c.forRecipient(v, recipient); v.Frees() {
			return unread
		}
	}
	return c.policies.group(recipient)
}
