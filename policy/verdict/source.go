package verdict

import (
	"fmt"
	"slices"
	"strings"
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

// SourceOf is the source that a word is of; the envelope, if it is none.
func SourceOf(word string) Source { return Source(max(0, slices.Index(sourceWords[:], word))) }

// FieldSource is the source that a header field of this name is, if it is one.
// Blanks may follow a name (RFC 5322, section 4.5), and Postfix hands them over.
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

// Envelope reports whether one of them is the envelope.
func (all Sources) Envelope() bool { return all.Has(EnvelopeSource) }

// Has reports whether s is one of them.
func (all Sources) Has(s Source) bool {
	if all == 0 {
		return s == EnvelopeSource
	}
	return all&(1<<s) != 0
}

// Header reports whether one of them is a header field.
func (all Sources) Header() bool { return all&^(1<<EnvelopeSource) != 0 }
