package index

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

// encodeDropped is section 10: for each row of which lines were refused, its number
// and what they were. Rows beyond the section's bound are left out: their counts are
// in the list table.
func encodeDropped(rows []ListInfo) (b []byte, items uint64) {
	for i := range rows {
		d := &rows[i].Summary.Dropped
		if len(d.Classes) == 0 {
			continue
		}
		next := appendDropped(binary.AppendUvarint(b, uint64(i)), d)
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
	c := cursor{rest: b}
	next := uint64(0)
	for range items {
		row := c.uvarint(maxLists)
		if c.bad || row < next || row >= uint64(len(rows)) {
			return fmt.Errorf("refused lines of row %d, of %d", row, len(rows))
		}
		next = row + 1
		if rows[row].Summary.Dropped = c.dropped(); c.bad {
			return fmt.Errorf("refused lines of row %d are damaged", row)
		}
	}
	if len(c.rest) > 0 {
		return fmt.Errorf("%d bytes behind the last refused line", len(c.rest))
	}
	return nil
}

func appendDropped(b []byte, d *lists.Dropped) []byte {
	b = binary.AppendUvarint(b, uint64(len(d.Classes)))
	for _, c := range d.Classes {
		b = appendText(b, string(c.Class), maxName)
		b = binary.AppendUvarint(b, uint64(c.Lines))
	}
	b = binary.AppendUvarint(b, uint64(len(d.First)))
	for _, l := range d.First {
		b = binary.AppendUvarint(b, uint64(l.Line))
		b = appendText(b, string(l.Class), maxName)
		b = appendText(b, l.Message, maxText)
		b = appendText(b, l.Text, maxText)
	}
	return b
}

// dropped reads what appendDropped has written. The classes of a sound text ascend.
func (c *cursor) dropped() (d lists.Dropped) {
	for range c.uvarint(maxDroppedClasses) {
		class := lists.ClassCount{Class: lists.Class(c.text(maxName)), Lines: int(c.uvarint(math.MaxInt))}
		if n := len(d.Classes); n > 0 && d.Classes[n-1].Class >= class.Class {
			c.fail()
		}
		if c.bad {
			return lists.Dropped{}
		}
		d.Classes = append(d.Classes, class)
	}
	for range c.uvarint(maxDroppedLines) {
		l := lists.DroppedLine{Line: int(c.uvarint(math.MaxInt)), Class: lists.Class(c.text(maxName)),
			Message: string(c.text(maxText)), Text: string(c.text(maxText))}
		if c.bad {
			return lists.Dropped{}
		}
		d.First = append(d.First, l)
	}
	return d
}
