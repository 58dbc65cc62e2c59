package lists

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"strings"

	"blockd/mail/addr"
)

// recipientMark begins the text of an entry whose subject is a recipient: mail to that
// address is refused, whoever sends it. No other canonical key begins so.
const recipientMark = "recipient:"

// ownerName is the text of an owned entry: its owner, a blank and the entry. Without an
// owner it is the entry alone. No canonical key has a blank outside quotes.
func ownerName(owner addr.Key, name string) string {
	if owner.Text == "" {
		return name
	}
	return owner.Text + " " + name
}

// cutOwner takes the owner off such a text; "" if there is none.
func cutOwner(text string) (owner, rest string) {
	at := 0
	if text != "" && text[0] == '"' {
		for at = 1; at < len(text) && text[at] != '"'; at++ {
			if text[at] == '\\' {
				at++
			}
		}
	}
	if at >= len(text) {
		return "", text
	}
	if blank := strings.IndexByte(text[at:], ' '); blank >= 0 {
		return text[:at+blank], text[at+blank+1:]
	}
	return "", text
}

// OwnerOfLine is the owner in a line of AppendEntryLine, or in its EntryLineID; it is
// empty if the entry is everybody's. The files of a copy keep the entries of an owner together by it.
func OwnerOfLine(line []byte) []byte {
	if bytes.IndexByte(line, ' ') < 0 {
		return nil // as nearly always
	}
	key := line
	if at := idLength(line, bytes.IndexByte(line, '\t')); at > 0 {
		key = line[:at-len("\ta\tx")]
	}
	n := 0
	if bytes.IndexByte(key, ' ') < 0 {
		return nil
	}
	if key[0] == '"' {
		owner, _ := cutOwner(string(key))
		n = len(owner)
	} else {
		n = bytes.IndexByte(key, ' ')
	}
	return line[:n]
}

// recipient queues the entry of a recipient. text is the address without its mark.
func (r *reading) recipient(text string) bool {
	a, err := addr.Parse(trim(text))
	if err != nil {
		return r.failKey(text, err)
	}
	key, ok := a.Key()
	if !ok {
		return r.fail(Syntax, text, `after "recipient:" stands one address, such as recipient:anna+shop@here.example`)
	}
	if r.action.Allows() {
		return r.fail(UnsupportedAction, text, "an exception for a recipient; [recipients] and [policy] have those who hear everybody")
	}
	r.add(Recipient, Exact).Key = key
	return true
}

// ownedRecord queues what a record of a list with owners says. Columns that it has not are "".
func (r *reading) ownedRecord(owner, entry, action, reason string) bool {
	switch {
	case !r.ownedBy(owner):
		return false
	case entry == "":
		return r.fail(Syntax, "", "an empty entry")
	case !r.utf8(entry):
		return false
	}
	if !setAction(r, action) {
		return false
	}
	r.because(reason)
	if key, ok := addr.Simple(entry); ok { // as nearly every entry is: see readPlain
		kind, scope := Addr, Exact
		if key.Kind == addr.Domain {
			kind, scope = Domain, r.bare
		}
		r.add(kind, scope).Key = key
		return true
	}
	if entry[0] == '=' && strings.IndexByte(entry, '@') < 0 {
		return r.name(entry[1:], Exact)
	}
	return r.entry(entry)
}

// setAction gives the line in hand the action that a column or member of that name says, in any case; "" leaves the
// list's. A word that is none refuses the line.
func setAction(r *reading, action string) bool {
	if action == "" {
		return true
	}
	a, ok := EntryAction(strings.ToLower(action))
	switch {
	case !ok:
		return r.fail(UnsupportedAction, action, fmt.Sprintf("action %q, want block or allow", cutText(action, maxDroppedText)))
	case a.Allows():
		r.action = a
		return true
	}
	return r.refuse(a, action)
}

// ownedBy gives the line in hand an owner.
func (r *reading) ownedBy(text string) bool {
	if text == "" {
		return r.fail(Owner, "", "no owner; without one the entry would be everybody's")
	}
	if text == r.lastOwner {
		r.owner = r.lastKey
		return true
	}
	if !r.utf8(text) {
		return false
	}
	key, err := addr.ParseOwner(text)
	if err != nil {
		return r.fail(Owner, text, "the owner: "+ownerFault(err))
	}
	key.Text = strings.Clone(key.Text)
	r.owner, r.lastOwner, r.lastKey = key, strings.Clone(text), key
	return true
}

// own gives the entries of the line in hand their owner, and refuses what no owner may have.
func (r *reading) own() {
	if !r.settings.PerRecipient || r.failed && !r.apart {
		return
	}
	for i := 0; i < len(r.queue); i++ {
		it := &r.queue[i]
		if it.Kind == Skip || it.Kind == Err {
			continue
		}
		c, message := r.judgeOwned(it)
		if c == "" {
			it.Owner = r.owner
			continue
		}
		r.drop(it, c, message)
		if !r.apart {
			return
		}
		i--
	}
}

// SetOwner makes it the entry of the owner that ParseOwner reads in text. The error is an
// *EntryError: text is no owner, or an owner can have no such entry.
func (it *Item) SetOwner(text string) error {
	key, err := addr.ParseOwner(text)
	if err != nil {
		return &EntryError{cutText(text, maxDroppedText), Owner, "the owner: " + ownerFault(err)}
	}
	if c, message := ownable(it); c != "" {
		return &EntryError{it.Name(), c, message}
	}
	it.Owner = key
	return nil
}

// ownerFault is what is wrong with the text of an owner.
func ownerFault(err error) string {
	if e, ok := err.(*addr.Error); ok {
		return e.Reason
	}
	return err.Error()
}

// ownable says why an owner can have no such entry, "" if he can.
func ownable(it *Item) (Class, string) {
	switch {
	case it.Kind != Addr && it.Kind != Domain && it.Kind != Recipient:
		return Unsupported, "an owner's entry is about senders: an address, a local-part or a domain, or about one of his own addresses"
	case it.Action != Block && it.Action != Allow:
		return UnsupportedAction, fmt.Sprintf("%s; an owner blocks or allows", it.Action)
	}
	return "", ""
}

// judgeOwned says why an entry of the line in hand is refused, "" if it is not.
func (r *reading) judgeOwned(it *Item) (Class, string) {
	if r.owner.Text == "" {
		return Owner, "no owner; without one the entry would be everybody's"
	}
	if c, message := ownable(it); c != "" {
		return c, message
	}
	if !r.counted && !r.countOwned() {
		return OwnerFull, fmt.Sprintf("%s has more than %d entries, max_entries_per_owner", r.owner.Text, r.settings.MaxPerOwner)
	}
	return "", ""
}

// ownerSeed makes sure that no list can be written whose owners share a count.
var ownerSeed = maphash.MakeSeed()

// countOwned counts one more entry of the owner in hand; false: there are too many.
func (r *reading) countOwned() bool {
	if r.settings.MaxPerOwner == 0 || r.lines == nil { // nil: a single entry, and no file
		return true
	}
	if r.owned.add(r.owner.Text, r.settings.MaxPerOwner) {
		return true
	}
	if len(r.lines.cutter.readers) > 1 {
		r.err = ErrInTurn
	}
	return false
}

// ownerCounts are the entries of each owner, by a hash. The owner who was counted last stands beside the map: lists
// are mostly sorted by owner, and the map's 55 ns a line were a twentieth of a build.
type ownerCounts struct {
	of   map[uint64]uint32
	text string // the owner counted last
	hash uint64
	n    uint32 // his entries, which the map may not have yet
}

// add counts one more entry of an owner, if it is not more than most.
func (c *ownerCounts) add(owner string, most int) bool {
	if c.of == nil || owner != c.text {
		c.settle()
		c.text, c.hash = owner, maphash.String(ownerSeed, owner)
		c.n = c.of[c.hash]
	}
	if int(c.n) >= most {
		return false
	}
	c.n++
	return true
}

// settle brings the map up to date, and returns it.
func (c *ownerCounts) settle() map[uint64]uint32 {
	if c.of == nil {
		c.of = map[uint64]uint32{}
	} else {
		c.of[c.hash] = c.n
	}
	return c.of
}

// hasOwners reports whether entries of a format can name their owners.
func hasOwners(format string) bool { return format == "csv" || format == "json" || format == "entries" }
