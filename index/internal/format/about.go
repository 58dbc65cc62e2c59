package format

import (
	"encoding/binary"
	"math"
	"time"

	"blockd/lists"
)

// maxAboutBytes bounds section 12.
const maxAboutBytes = 64 << 20

// EncodeAbout is section 12: for each row of a list that says something of itself, its number and what it says. Rows beyond
// the section's bound are left out.
func EncodeAbout(rows []ListInfo) (b []byte, items uint64) {
	return encodeRows(rows, maxAboutBytes, func(l *ListInfo) bool { return !l.Summary.About.IsZero() },
		func(b []byte, l *ListInfo) []byte { return AppendAbout(b, &l.Summary.About) })
}

// decodeAbout reads section 12 of so many rows into the table.
func decodeAbout(b []byte, items uint64, rows []ListInfo) error {
	return decodeRows(b, items, rows, "what a list says of itself", func(c *Cursor, l *ListInfo) { l.Summary.About = c.About() })
}

// aboutTexts are the texts of a, in their order.
func aboutTexts(a *lists.About) [5]*string {
	return [...]*string{&a.Title, &a.Homepage, &a.Complaints, &a.Licence, &a.Modified}
}

// AppendAbout encodes what one list says of itself.
func AppendAbout(b []byte, a *lists.About) []byte {
	for _, text := range aboutTexts(a) {
		b = AppendText(b, *text, MaxText)
	}
	return binary.AppendUvarint(b, uint64(a.Expires/time.Second))
}

// About reads what AppendAbout has written. It is shown to people, so that a file from elsewhere is cleaned as a header is.
func (c *Cursor) About() (a lists.About) {
	for _, text := range aboutTexts(&a) {
		*text = string(c.Text(MaxText))
	}
	a.Expires = time.Duration(c.Uvarint(math.MaxInt64/uint64(time.Second))) * time.Second
	for _, text := range []*string{&a.Title, &a.Licence, &a.Modified} {
		*text = lists.CleanAbout(*text, lists.MaxAboutText)
	}
	for _, link := range []*string{&a.Homepage, &a.Complaints} {
		*link = lists.AboutLink(*link)
	}
	return a
}
