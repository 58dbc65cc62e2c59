package format

import (
	"encoding/binary"
	"fmt"
	"slices"

	"blockd/lists"
)

// Mode says whether the matches of a list count.
type Mode uint8

// The modes.
const (
	Enforce Mode = iota // "enforce": a match counts
	Shadow              // "shadow": a match is reported and does not count
)

// String returns the mode's word in configuration and output.
func (m Mode) String() string {
	if m == Shadow {
		return "shadow"
	}
	return "enforce"
}

// Exceptions says how far the exceptions of a list that blocks reach.
type Exceptions uint8

// The reaches.
const (
	OwnExceptions Exceptions = iota // "own": they lift what the same list blocks
	AllExceptions                   // "all": they go before the blocks of every list
	NoExceptions                    // "none": they are read and counted, and have no effect
)

// exceptionWords are their words in configuration and output.
var exceptionWords = [...]string{"own", "all", "none"}

func (e Exceptions) String() string { return exceptionWords[e] }

// ParseExceptions reads such a word.
func ParseExceptions(word string) (Exceptions, error) {
	if i := slices.Index(exceptionWords[:], word); i >= 0 {
		return Exceptions(i), nil
	}
	return 0, fmt.Errorf(`want "own", "all" or "none", have %q`, word)
}

// Source is one file of one list, as configured. Several sources may carry one
// list's name (a glob).
type Source struct {
	List     string // the list's name: 1 to 64 octets
	Path     string // at most 4096 octets
	Settings lists.Settings
	Mode     Mode
	Optional bool // a missing file leaves the list empty

	Exceptions Exceptions // see Reach

	// Kept is the segment that the source's entries come from in place of its file: what it held at another time. ""
	// is the file. It is not stored in the index.
	Kept string
}

// Reach is how far the exceptions of the list reach: those of a list that allows
// reach all, whatever Exceptions says.
func (s *Source) Reach() Exceptions {
	if s.Settings.Action == lists.Allow {
		return AllExceptions
	}
	return s.Exceptions
}

// Equal reports whether both name the same file and read it the same way. The
// same content then gives the same entries if ListInfo.Guard is the same too,
// which a row has in place of Settings.Guard.
func (s Source) Equal(o Source) bool {
	a, b := s.Settings.Subdomains, o.Settings.Subdomains
	sameSubdomains := a == b || a != nil && b != nil && *a == *b
	s.Settings.Subdomains, o.Settings.Subdomains = nil, nil
	s.Settings.Guard, o.Settings.Guard = nil, nil
	s.Kept, o.Kept = "", ""
	return sameSubdomains && s == o
}

// ListInfo is one row of an index's list table: one source as it was compiled.
type ListInfo struct {
	Source  Source
	Summary lists.Summary // Verdict and Why tell a source that was left out
	Guard   uint64        // lists.Guard.ID of the guard it was read under
	// NetworkEntries are those for client addresses, repeated ones included.
	NetworkEntries int
	// Refused is the error of a source that KeepGoing left out, or that LastGood
	// replaced, else nil. It is not stored in the file.
	Refused error
	// LastGood: what is in the index is what the source held before it was refused.
	// Summary tells of that. It is not stored in the file.
	LastGood bool
}

// Entries is how many entries the index has of the source. Those of a file that was refused
// are not in it, although Summary counts what was read.
func (l ListInfo) Entries() int {
	if l.Summary.Verdict == lists.Refused {
		return 0
	}
	return l.Summary.Entries
}

// encodeRows is a section of what rows of lists have besides the list table: for each that has it, the row's number and what add makes
// of it. Rows beyond max octets are left out.
func encodeRows(rows []ListInfo, max int, has func(*ListInfo) bool, add func([]byte, *ListInfo) []byte) (b []byte, items uint64) {
	for i := range rows {
		if !has(&rows[i]) {
			continue
		}
		next := add(binary.AppendUvarint(b, uint64(i)), &rows[i])
		if len(next) > max {
			break
		}
		b = next
		items++
	}
	return b, items
}

// decodeRows reads such a section of so many rows into the table. read takes what one row has; what says in an error what that is.
func decodeRows(b []byte, items uint64, rows []ListInfo, what string, read func(*Cursor, *ListInfo)) error {
	c := Cursor{Rest: b}
	next := uint64(0)
	for range items {
		row := c.Uvarint(MaxLists)
		if c.Bad || row < next || row >= uint64(len(rows)) {
			return fmt.Errorf("%s: row %d, of %d", what, row, len(rows))
		}
		next = row + 1
		if read(&c, &rows[row]); c.Bad {
			return fmt.Errorf("%s: row %d is damaged", what, row)
		}
	}
	if len(c.Rest) > 0 {
		return fmt.Errorf("%s: %d bytes behind the last row", what, len(c.Rest))
	}
	return nil
}
