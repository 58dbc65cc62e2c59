package format

import (
	"encoding/binary"
	"fmt"
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
	for i := range rows {
		d := &rows[i].Summary.Dropped
		if len(d.Classes) == 0 {
			continue
		}
		next := AppendDropped(binary.AppendUvarint(b, uint64(i)), d)
		if len(next) > maxDroppedBytes {
			break
		}
		b = next
		items++
	}
	return b, items
}

// decodeDropped reads section 10 of so many rows into the table.
func decodeDropped(b []byte, items uint64, rows []ListInfo) error {
	c := Cursor{Rest: b}
	next := uint64(0)
	for range items {
		row := c.Uvarint(MaxLists)
		if c.Bad || row < next || row >= uint64(len(rows)) {
			return fmt.Errorf("refused lines of row %d, of %d", row, len(rows))
		}
		next = row + 1
		if rows[row].Summary.Dropped = c.Dropped(); c.Bad {
			return fmt.Errorf("refused lines of row %d are damaged", row)
		}
	}
	if len(c.Rest) > 0 {
		return fmt.Errorf("%d bytes behind the last refused line", len(c.Rest))
	}
	return nil
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
