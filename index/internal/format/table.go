package format

import (
	"encoding/binary"
	"fmt"
	"math"

	"blockd/lists"
	"blockd/mail/addr"
)

// Bounds of the texts of a row, in octets.
const (
	MaxName = 64
	MaxPath = 4096
	MaxText = 1000 // of formats, reasons and whys
)

// The bits of a row's flag byte.
const (
	rowOptional = 1 << iota
	rowSubdomainsSet
	rowSubdomains
	rowPatterns
	rowExceptionsAll
	rowExceptionsNone
	rowPerRecipient
	rowsKnown = 1<<iota - 1
)

// EncodeTable encodes the list table.
func EncodeTable(rows []ListInfo) (b []byte, err error) {
	for i, row := range rows {
		b = appendRow(b, i, row)
	}
	if len(b) > maxTableBytes {
		err = fmt.Errorf("list table of %d bytes, want at most %d", len(b), maxTableBytes)
	}
	return b, err
}

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
	if set.PerRecipient {
		flags |= rowPerRecipient
	}
	switch r.Source.Exceptions {
	case AllExceptions:
		flags |= rowExceptionsAll
	case NoExceptions:
		flags |= rowExceptionsNone
	}
	b = binary.AppendUvarint(b, uint64(number))
	b = append(b, flags, byte(set.Action), byte(r.Source.Mode))
	b = AppendText(b, r.Source.List, MaxName)
	b = AppendText(b, r.Source.Path, MaxPath)
	b = AppendText(b, set.Format, MaxText)
	b = AppendText(b, set.Reason, MaxText)
	b = binary.AppendUvarint(b, uint64(set.MaxBytes))
	b = AppendText(b, string(r.Summary.Verdict), MaxName)
	b = AppendText(b, r.Summary.Why, MaxText)
	b = AppendText(b, r.Summary.Format, MaxText)
	b = append(b, r.Summary.Hash[:]...)
	b = binary.LittleEndian.AppendUint64(b, r.Guard)
	for _, n := range []int{int(r.Summary.Size), r.Summary.Lines, r.Summary.Entries, r.Summary.Errors,
		r.Summary.Skipped, r.NetworkEntries} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	if set.PerRecipient {
		b = AppendText(b, set.Owner.Text, MaxKey)
		b = binary.AppendUvarint(b, uint64(set.MaxPerOwner))
	}
	return b
}

// AppendText writes a length and at most most octets of text. Names and paths
// were checked before; a longer text is for people and may be cut.
func AppendText(b []byte, text string, most int) []byte {
	text = text[:min(len(text), most)]
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// decodeTable reads the list table of so many rows. Nothing is allocated for a
// row before the bytes of the one in front of it were there.
func decodeTable(b []byte, rows uint64, version uint32) ([]ListInfo, error) {
	var table []ListInfo
	c := Cursor{Rest: b}
	for i := range rows {
		r := decodeRow(&c, i)
		if version == oldVersion && r.Source.Settings.PerRecipient {
			c.Fail()
		}
		if c.Bad {
			return nil, fmt.Errorf("list table: row %d is damaged", i)
		}
		table = append(table, r)
	}
	if len(c.Rest) > 0 {
		return nil, fmt.Errorf("list table: %d bytes behind its last row", len(c.Rest))
	}
	return table, nil
}

func decodeRow(c *Cursor, number uint64) (r ListInfo) {
	if c.Uvarint(MaxLists) != number {
		c.Fail()
	}
	flags := c.Byte()
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
		c.Fail()
	}
	action, mode := c.Byte(), c.Byte()
	if flags&^rowsKnown != 0 || action > byte(lists.Discard) || mode > byte(Shadow) {
		c.Fail()
	}
	r.Source.Settings.Action, r.Source.Mode = lists.Action(action), Mode(mode)
	r.Source.List = string(c.Text(MaxName))
	r.Source.Path = string(c.Text(MaxPath))
	r.Source.Settings.Format = string(c.Text(MaxText))
	r.Source.Settings.Reason = string(c.Text(MaxText))
	r.Source.Settings.MaxBytes = int64(c.Uvarint(math.MaxInt64))
	r.Summary.Verdict = lists.Verdict(c.Text(MaxName))
	r.Summary.Why = string(c.Text(MaxText))
	r.Summary.Format = string(c.Text(MaxText))
	c.Bytes(r.Summary.Hash[:])
	r.Guard = c.Uint64()
	r.Summary.Size = int64(c.Uvarint(math.MaxInt64))
	for _, n := range []*int{&r.Summary.Lines, &r.Summary.Entries, &r.Summary.Errors,
		&r.Summary.Skipped, &r.NetworkEntries} {
		*n = int(c.Uvarint(math.MaxInt))
	}
	if set := &r.Source.Settings; flags&rowPerRecipient != 0 {
		set.PerRecipient = true
		if text := string(c.Text(MaxKey)); text != "" {
			var err error
			if set.Owner, err = addr.ParseOwner(text); err != nil {
				c.Fail()
			}
		}
		set.MaxPerOwner = int(c.Uvarint(math.MaxInt))
	}
	return r
}
