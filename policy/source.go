package policy

import (
	"fmt"
	"slices"
	"strings"
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

// sourceOf is the source that a word is of; the envelope, if it is none.
func sourceOf(word string) source { return source(max(0, slices.Index(sourceWords[:], word))) }

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
