package lists

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// recordMembers are what a record says of its entry.
var recordMembers = [...]string{"owner", "action", "reason"}

func isRecordMember(name string) bool {
	return slices.Contains(recordMembers[:], name) || isAction(name)
}

func isAction(name string) bool { return strings.EqualFold(name, "action") }

// jsonRecord is one object with an entry, or several, and what it says of them, before them or behind.
type jsonRecord struct {
	texts     map[string]string
	bad       string // a member that is no string
	outermost bool   // it has no array around it: it may be the answer of an API, whose action is another one
	depth     int    // of its members
	notes     []jsonNote
	entries   int          // of them
	flushed   bool         // there were too many to be kept to the end of the object,
	asked     asking       // and this was asked of them
	below     *actionBelow // nil = none is said of them further below
}

// actionBelow is what an object below a record says of its entries: the same as the record, or the file is refused.
type actionBelow struct {
	action Action
	line   int
}

// jsonNote is what was read of a file, and is still to be said.
type jsonNote struct {
	text    string
	line    int
	meaning meaning
	kind    noteKind
	single  bool // the only one of its member of the record
}

type noteKind uint8

const (
	anEntry     noteKind = iota
	aRefusal             // text is why
	otherMember          // text is its name
)

// maxKeptEntries bounds the entries of one record that wait for what it says behind them, and maxKeptNotes what else
// stands between them: beyond that it is said at once.
const (
	maxKeptEntries = 1000
	maxKeptNotes   = 2000
)

// asking is what a record asks for its entries.
type asking struct {
	action Action
	bad    bool // nothing that is known
}

// asks is what the list asks for, too, if the record says nothing.
func (f *jsonFile) asks(rec *jsonRecord, single bool) asking {
	word, bad := rec.says(single)
	a, ok := EntryAction(strings.ToLower(word))
	if word == "" {
		a, ok = f.r.settings.Action, true
	}
	return asking{a, bad != "" || !ok}
}

// says is the action that a record says of an entry. single: its member has no other. An answer of an API may say
// another kind of action of all that it has.
func (rec *jsonRecord) says(single bool) (action, bad string) {
	action = rec.texts["action"]
	if _, known := EntryAction(strings.ToLower(action)); rec.outermost && !single && (rec.bad != "" || !known) {
		return "", ""
	}
	return action, rec.bad
}

// text reads a member of a record that is a string, and is to be known by a name.
func (f *jsonFile) text(rec *jsonRecord, name, member string, t json.Token) error {
	switch v := t.(type) {
	case string:
		if rec.texts == nil {
			rec.texts = map[string]string{}
		}
		rec.texts[name] = trim(v)
		return nil
	case nil:
		return nil
	case json.Delim:
		if err := f.skipRest(); err != nil {
			return err
		}
	}
	rec.bad = member
	return nil
}

// action reads a member "action" of a record.
func (f *jsonFile) action(rec *jsonRecord, name string, t json.Token) error {
	if err := f.text(rec, "action", name, t); err != nil {
		return err
	}
	if rec.flushed && f.asks(rec, false) != rec.asked {
		return refusal(JSON, `%q stands behind more than %d entries that it is about; put it first`, name, maxKeptEntries)
	}
	return nil
}

// put says what was read here, or keeps it until the record that it stands in has said what is to become of it.
func (f *jsonFile) put(n jsonNote) {
	n.line = f.line
	if n.kind != otherMember {
		f.entries++
	}
	rec := f.rec
	switch {
	case rec == nil, n.kind != anEntry && (rec.entries == 0 || len(rec.notes) >= maxKeptNotes):
		f.say(&n, nil)
		return
	case n.kind == anEntry && rec.entries == maxKeptEntries:
		rec.flushed, rec.asked = true, f.asks(rec, false)
		f.flush(rec)
	}
	if n.kind == anEntry {
		rec.entries++
	}
	if len(n.text) > maxLine {
		n.text = trim(n.text)
		n.text = strings.Clone(n.text[:min(len(n.text), maxLine+1)]) // else all of it is kept
	}
	n.single = f.depth == rec.depth
	rec.notes = append(rec.notes, n)
}

// flush says what a record has kept.
func (f *jsonFile) flush(rec *jsonRecord) {
	for i := range rec.notes {
		f.say(&rec.notes[i], rec)
	}
	rec.notes, rec.entries = rec.notes[:0], 0
}

// refuse refuses what was read here.
func (f *jsonFile) refuse(message string) { f.put(jsonNote{text: message, kind: aRefusal}) }

// say reads an entry as a line of the plain format, or says what else was read. rec is the record that it stands in,
// nil without one.
func (f *jsonFile) say(n *jsonNote, rec *jsonRecord) {
	r, at := f.r, line{number: n.line}
	if n.kind != aRefusal {
		at.text = n.text
	}
	r.take(at)
	switch n.kind {
	case aRefusal:
		r.fail(Syntax, "", n.text)
	case otherMember:
		r.skip(OtherMember, fmt.Sprintf("member %.100q", n.text))
	default:
		f.entry(trim(n.text), n, rec)
	}
	if r.err == nil {
		r.flush()
	}
}

// entry reads one string as a line of the plain format.
func (f *jsonFile) entry(text string, n *jsonNote, rec *jsonRecord) {
	r, action, bad := f.r, "", ""
	if rec != nil && n.meaning != allowing {
		action, bad = rec.says(n.single)
	}
	a, known := EntryAction(strings.ToLower(action))
	switch {
	case len(text) > maxLine:
		r.fail(TooLong, "", "a string of more than 65536 octets")
	case text == "":
		r.fail(Syntax, "", "an empty string")
	case !r.controls():
	case strings.ContainsRune(text, utf8.RuneError):
		// The decoder puts U+FFFD for what is not UTF-8; nobody lists the real one.
		r.fail(BadUTF8, string(utf8.RuneError), "octets that are not UTF-8, or half a surrogate pair")
	case plainComment(text):
		r.skip(Comment, "")
	case r.guessed && text[0] == '.':
		r.err = refusal(Ambiguous, leadingDots)
	case n.meaning == refusing && known && a.Allows():
		r.fail(UnsupportedAction, "", "a member that blocks, in a record whose action lets pass")
	case n.meaning == refusing && !r.refuse(Block, ""):
	case bad != "":
		r.fail(Syntax, "", fmt.Sprintf("%q is no string", bad))
	case n.meaning == allowing:
		r.action = Allow
		plainLine(r, text)
	case setAction(r, action):
		plainLine(r, text)
	}
}

// owned reads the record of an owner.
func (f *jsonFile) owned(rec *jsonRecord, entry string, m meaning) {
	f.r.take(line{number: f.line, text: rec.texts[entry]})
	f.readOwned(rec.texts, entry, rec.bad, m)
	f.r.flush()
}

func (f *jsonFile) readOwned(texts map[string]string, entry, bad string, m meaning) {
	r, owner := f.r, texts["owner"]
	if r.settings.Owner.Text != "" {
		owner = r.settings.Owner.Text
	}
	for _, text := range texts {
		switch {
		case len(text) > maxLine:
			r.fail(TooLong, "", "a string of more than 65536 octets")
			return
		case strings.ContainsRune(text, utf8.RuneError):
			r.fail(BadUTF8, "", "octets that are not UTF-8, or half a surrogate pair")
			return
		}
	}
	switch {
	case bad != "":
		r.fail(Syntax, "", fmt.Sprintf("%q is no string", bad))
	case !r.controls():
	case m == refusing && !r.refuse(Block, ""):
	default:
		if m == allowing {
			r.action = Allow
		}
		r.ownedRecord(owner, texts[entry], texts["action"], texts["reason"])
	}
}
