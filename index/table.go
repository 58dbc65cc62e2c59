package index

import (
	"encoding/binary"
	"fmt"
	"math"

	"blockd/lists"
)

// Bounds of the texts of a row, in octets.
const (
	maxName = 64
	maxPath = 4096
	maxText = 1000 // of formats, reasons and whys
)

// The bits of a row's flag byte.
const (
	rowOptional = 1 << iota
	rowSubdomainsSet
	rowSubdomains
	rowPatterns
	rowExceptionsAll
	rowExceptionsNone
	rowsKnown = 1<<iota - 1
)

// appendRow encodes one row of the list table: everything that tells whether a
// later configuration asks for the same thing, and what came of it.
func appendRow(b []byte, number int, r ListInfo) []byte {
	set := r.Source.Settings
	var flags byte
	if r.Source.Optional {
		flags |= rowOptional
	}
	if set.Subdomains != nil {
		flags |= rowSubdomainsSet
		if *set.Subdomains {
			flags |= rowSubdomains
		}
	}
	if set.Patterns {
		flags |= rowPatterns
	}
	switch r.Source.Exceptions {
	case AllExceptions:
		flags |= rowExceptionsAll
	case NoExceptions:
		flags |= rowExceptionsNone
	}
	b = binary.AppendUvarint(b, uint64(number))
	b = append(b, flags, byte(set.Action), byte(r.Source.Mode))
	b = appendText(b, r.Source.List, maxName)
	b = appendText(b, r.Source.Path, maxPath)
	b = appendText(b, set.Format, maxText)
	b = appendText(b, set.Reason, maxText)
	b = binary.AppendUvarint(b, uint64(set.MaxBytes))
	b = appendText(b, string(r.Summary.Verdict), maxName)
	b = appendText(b, r.Summary.Why, maxText)
	b = appendText(b, r.Summary.Format, maxText)
	b = append(b, r.Summary.Hash[:]...)
	b = binary.LittleEndian.AppendUint64(b, r.Guard)
	for _, n := range []int{int(r.Summary.Size), r.Summary.Lines, r.Summary.Entries, r.Summary.Errors,
		r.Summary.Skipped, r.NetworkEntries} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// appendText writes a length and at most most octets of text. Names and paths
// were checked before; a longer text is for people and may be cut.
func appendText(b []byte, text string, most int) []byte {
	text = text[:min(len(text), most)]
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// decodeTable reads the list table of so many rows. Nothing is allocated for a
// row before the bytes of the one in front of it were there.
func decodeTable(b []byte, rows uint64) ([]ListInfo, error) {
	var table []ListInfo
	c := cursor{rest: b}
	for i := range rows {
		r := decodeRow(&c, i)
		if c.bad {
			return nil, fmt.Errorf("list table: row %d is damaged", i)
		}
		table = append(table, r)
	}
	if len(c.rest) > 0 {
		return nil, fmt.Errorf("list table: %d bytes behind its last row", len(c.rest))
	}
	return table, nil
}

func decodeRow(c *cursor, number uint64) (r ListInfo) {
	if c.uvarint(maxLists) != number {
		c.fail()
	}
	flags := c.byte()
	r.Source.Optional = flags&rowOptional != 0
	if flags&rowSubdomainsSet != 0 {
		subdomains := flags&rowSubdomains != 0
		r.Source.Settings.Subdomains = &subdomains
	}
	r.Source.Settings.Patterns = flags&rowPatterns != 0
	switch flags & (rowExceptionsAll | rowExceptionsNone) {
	case 0:
	case rowExceptionsAll:
		r.Source.Exceptions = AllExceptions
	case rowExceptionsNone:
		r.Source.Exceptions = NoExceptions
	default:
		c.fail()
	}
	action, mode := c.byte(), c.byte()
	if flags&^rowsKnown != 0 || action > byte(lists.Discard) || mode > byte(Shadow) {
		c.fail()
	}
	r.Source.Settings.Action, r.Source.Mode = lists.Action(action), Mode(mode)
	r.Source.List = string(c.text(maxName))
	r.Source.Path = string(c.text(maxPath))
	r.Source.Settings.Format = string(c.text(maxText))
	r.Source.Settings.Reason = string(c.text(maxText))
	r.Source.Settings.MaxBytes = int64(c.uvarint(math.MaxInt64))
	r.Summary.Verdict = lists.Verdict(c.text(maxName))
	r.Summary.Why = string(c.text(maxText))
	r.Summary.Format = string(c.text(maxText))
	for i := range r.Summary.Hash {
		r.Summary.Hash[i] = c.byte()
	}
	r.Guard = c.uint64()
	r.Summary.Size = int64(c.uvarint(math.MaxInt64))
	for _, n := range []*int{&r.Summary.Lines, &r.Summary.Entries, &r.Summary.Errors,
		&r.Summary.Skipped, &r.NetworkEntries} {
		*n = int(c.uvarint(math.MaxInt))
	}
	return r
}
