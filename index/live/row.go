package live

import (
	"fmt"
	"strconv"
	"time"

	"github.com/zeebo/xxh3"

	"blockd/lists"
)

// Row is an entry, or its removal, as an engine has it. Owner, Entry and Scope say which one it is.
type Row struct {
	Owner   string `json:"owner,omitempty"`
	Entry   string `json:"entry"`
	Scope   string `json:"scope"`
	Action  string `json:"action,omitempty"`
	Why     string `json:"why,omitempty"`
	By      string `json:"by,omitempty"`
	Created int64  `json:"created,omitempty" doc:"Unix seconds"`
	Expires int64  `json:"expires,omitempty" doc:"Unix seconds; absent: never"`
	Forced  bool   `json:"forced,omitempty"`
	Proof   bool   `json:"proof,omitempty" doc:"an exception that wants SPF or DKIM"`
	Gone    int64  `json:"gone,omitempty" doc:"when it was removed, in Unix seconds; absent: it is in force"`
	Rev     uint64 `json:"rev" doc:"its revision"`
}

// RowOf returns the row of an entry.
func RowOf(e *Entry) Row {
	return Row{Owner: e.Item.Owner.Text, Entry: e.Text, Scope: e.Item.Scope.String(), Action: e.Item.Action.String(), Why: e.Why, By: e.Author,
		Created: e.Added.Unix(), Expires: e.expiry, Forced: e.Forced, Proof: e.NeedsProof, Rev: e.Rev}
}

// Parse returns the entry that a row is about. Of a removal only its identity counts.
func (w *Row) Parse() (*Entry, error) {
	r := record{Op: opAdd, Owner: w.Owner, Entry: w.Entry, Action: w.Action, Why: w.Why, Author: w.By, Rev: w.Rev, Force: w.Forced, Proof: w.Proof}
	if w.Gone != 0 {
		r.Action, r.Why, r.Author, r.Proof = lists.Block.String(), "", "", false
	}
	if w.Created < 0 || w.Created > lastSecond || w.Expires < 0 || w.Expires > lastSecond {
		return nil, fmt.Errorf("row %s: a time out of bounds", w)
	}
	r.At = time.Unix(w.Created, 0)
	if w.Expires != 0 {
		r.Until = time.Unix(w.Expires, 0)
	}
	e, err := r.entry()
	if err != nil {
		return nil, fmt.Errorf("row %s: %w", w, err)
	}
	if e.Item.Scope.String() != w.Scope || e.Text != w.Entry || e.Item.Owner.Text != w.Owner {
		return nil, fmt.Errorf("row %s: this program reads it as %s with the scope %s", w, e.Text, e.Item.Scope)
	}
	return e, nil
}

// String names a row for people.
func (w *Row) String() string {
	text := strconv.Quote(w.Entry) + " (" + w.Scope + ")"
	if w.Owner != "" {
		text += " of " + strconv.Quote(w.Owner)
	}
	return text
}

// SameContent reports whether two rows say the same, whenever it was said.
func (w *Row) SameContent(o *Row) bool {
	a, b := *w, *o
	a.Created, a.Rev, b.Created, b.Rev = 0, 0, 0, 0
	a.Gone, b.Gone = min(a.Gone, 1), min(b.Gone, 1)
	return a == b
}

// Hash is the XXH3-128 of the canonical row, high half first: the fields in the order of Row, each ended by the octet 31, without Gone and Rev.
func (w *Row) Hash() [2]uint64 {
	b := make([]byte, 0, 256)
	for _, text := range []string{w.Owner, w.Entry, w.Scope, w.Action, w.Why, w.By, strconv.FormatInt(w.Created, 10), strconv.FormatInt(w.Expires, 10), strconv.FormatBool(w.Forced), strconv.FormatBool(w.Proof)} {
		b = append(append(b, text...), 31)
	}
	h := xxh3.Hash128(b)
	return [2]uint64{h.Hi, h.Lo}
}

// Sum tells whether two machines have the same shared entries. The zero Sum is that of none.
type Sum struct {
	Count int64
	XOR   [2]uint64 // of the Hash of each row
}

// Toggle adds a row to the Sum, or takes one out: n is 1 or -1.
func (s *Sum) Toggle(w *Row, n int64) {
	h := w.Hash()
	s.Count += n
	s.XOR[0] ^= h[0]
	s.XOR[1] ^= h[1]
}

// replace takes a change. A nil Sum stays nil.
func (s *Sum) replace(was, now *Entry) {
	if s == nil {
		return
	}
	if was != nil && was.Rev > 0 {
		row := RowOf(was)
		s.Toggle(&row, -1)
	}
	if now != nil && !now.gone && now.Rev > 0 {
		row := RowOf(now)
		s.Toggle(&row, 1)
	}
}
