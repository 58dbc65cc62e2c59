package format

import (
	"encoding/binary"
	"math"

	"blockd/lists"
)

// Bounds of section 10. A source has some dozen classes at most, and ten lines.
const (
	maxDroppedBytes   = 64 << 20 // of the section
	maxDroppedClasses = 64
	maxDroppedLines   = 10
)

// EncodeDropped is section 10: for each row of which lines were refused, its number
// and what they were. Rows beyond the section's bound are left out: their counts are
// in the list table.
func EncodeDropped(rows []ListInfo) (b []byte, items uint64) {
	return encodeRows(rows, maxDroppedBytes, func(l *ListInfo) bool { return len(l.Summary.Dropped.Classes) > 0 },
		func(b []byte, l *ListInfo) []byte { return AppendDropped(b, &l.Summary.Dropped) })
}

// decodeDropped reads section 10 of so many rows into the table.
func decodeDropped(b []byte, items uint64, rows []ListInfo) error {
	return decodeRows(b, items, rows, "refused lines", func(c *Cursor, l *ListInfo) { l.Summary.Dropped = c.Dropped() })
}

// AppendDropped encodes what one row has.
func AppendDropped(b []byte, d *lists.Dropped) []byte {
	b = binary.AppendUvarint(b, uint64(len(d.Classes)))
	for _, c := range d.Classes {
		b = AppendText(b, string(c.Class), MaxName)
		b = binary.AppendUvarint(b, uint64(c.Lines))
	}
	b = binary.AppendUvarint(b, uint64(len(d.First)))
	for _, l := range d.First {
		b = binary.AppendUvarint(b, uint64(l.Line))
		b = AppendText(b, string(l.Class), MaxName)
		b = AppendText(b, l.Message, MaxText)
		b = AppendText(b, l.Text, MaxText)
	}
	return b
}

// Dropped reads what AppendDropped has written. The classes of a sound text ascend.
func (c *Cursor) Dropped() (d lists.Dropped) {
	for range c.Uvarint(maxDroppedClasses) {
		class := lists.ClassCount{Class: lists.Class(c.Text(MaxName)), Lines: int(c.Uvarint(math.MaxInt))}
		if n := len(d.Classes); n > 0 && d.Classes[n-1].Class >= class.Class {
			c.Fail()
		}
		if c.Bad {
			return lists.Dropped{}
		}
		d.Classes = append(d.Classes, class)
	}
	for range c.Uvarint(maxDroppedLines) {
		l := lists.DroppedLine{Line: int(c.Uvarint(math.MaxInt)), Class: lists.Class(c.Text(MaxName)),
			Message: string(c.Text(MaxText)), Text: string(c.Text(MaxText))}
		if c.Bad {
			return lists.Dropped{}
		}
		d.First = append(d.First, l)
	}
	return d
}
