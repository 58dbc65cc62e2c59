package lists

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"blockd/mail/addr"
)

const maxReason = 400 // octets of Item.Reason

// reading is one file being read as one format, or, of a format in which every
// line stands for itself, what one of several workers reads of it. A parser queues
// what a line means by address, domain, network and skip, or gives the line up by
// fail; a line is emitted when it is complete, whole or not at all.
type reading struct {
	ctx      context.Context // of the source
	settings Settings
	bare     Scope // of bare names
	arg      string
	in       io.Reader
	lines    *lineReader
	emit     func(*Item) error
	err      error // of emit: nothing is emitted any more
	sum      Summary
	tally    tally
	void     int // entries that reach no index
	shared   *sofar
	removed  removals // by all workers, who only read it
	carving  *carving // the same
	survey   *carving // that this reading is for, and for nothing else
	size     int64    // of the file as stored
	wide     wideSums // as removed

	// The line in hand.
	at     line
	action Action
	reason string
	warn   Class // of the line as a whole
	why    string
	queue  []Item
	owner  addr.Key // whose its entries are, in a list per recipient
	failed bool
	apart  bool // the keys of the line stand apart: a fault costs its own key alone

	owned     ownerCounts // of this worker
	counted   bool        // the format counts the entries of an owner itself
	lastOwner string      // that ownedBy has read, and its key
	lastKey   addr.Key

	texts   map[string]string // of names in a generic dataset of rbldnsd
	guessed bool              // nobody has declared the format

	usual Item // of a line that is an address and nothing else: what differs from line to line is set
}

// sofar is what a line's meaning may depend on beyond the line: what was in the
// lines before. Workers have it in common and touch it in turn only.
type sofar struct {
	tested   int // senders of self-tests
	patterns int
	steps    int      // of their programs
	free     int      // patterns that are tried on every sender
	head     *csvHead // of a table that several workers read; nil = one does
}

// read reads src from its start as s says, with a worker for each emit where the
// format allows it, else with the first one. tap sees the octets as stored.
func read(src *source, tap io.Writer, s Settings, emit ...func(*Item) error) (Summary, error) {
	eol, err := sniff(src)
	if err != nil {
		return Summary{}, err
	}
	f, arg, err := findFormat(s.Format)
	if err != nil {
		return Summary{}, &FileError{Class: BadFormat, Err: err}
	}
	why := ""
	if f == nil {
		if f, arg, why, err = detect(src, eol); err != nil {
			return Summary{}, err
		}
	}
	if s.PerRecipient && s.Owner.Text == "" && !hasOwners(f.Name) {
		return Summary{Format: f.Name}, refusal(Owner, "the name of the file is no owner: want a mailbox or a domain, such as anna@here.example")
	}
	r := newReading(f, arg, s, emit[0])
	r.guessed = why != ""
	if r.sum.About, err = readAbout(src, eol); err != nil {
		return r.sum, err
	}
	if f.before != nil {
		r.size = src.size
		if err := f.before(r, func(pass *reading) error { return pass.open(src, eol, nil, f.alone) }); err != nil {
			return r.sum, err
		}
	}
	if s.Guard.frees() {
		r.sumExceptions(src, eol, f)
	}
	if err := r.open(src, eol, tap, f.alone); err != nil {
		return r.sum, err
	}
	if r.lines.cutter.quotes = f.records; (f.alone || f.records) && len(emit) > 1 {
		err = r.share(f, emit[1:])
	} else {
		err = f.read(r)
	}
	r.sum.Dropped.order()
	if r.err != nil {
		return r.sum, r.err // before err: a parser that was stopped has more to say
	}
	if err == nil {
		err = r.judge()
	}
	if err == nil && r.sum.Entries == r.void {
		guessed := why != "" && f.Name != "entries" && f.Name != "json" // the first has a mark for it, the other says where it found no list
		if why = string(Empty); guessed && r.sum.Skipped > 0 {
			why = fmt.Sprintf("%s: guessed as %s, by which no line is an entry (%d skipped); declare its format", Empty, r.sum.Format, r.sum.Skipped)
		}
	}
	r.sum.Why = why
	return r.sum, err
}

func newReading(f *format, arg string, s Settings, emit func(*Item) error) *reading {
	r := &reading{ctx: context.Background(), settings: s, bare: f.Scope, arg: arg, emit: emit, shared: &sofar{}}
	r.settings.Reason = cleanReason(s.Reason)
	if s.Subdomains != nil {
		r.bare = Exact
		if *s.Subdomains {
			r.bare = Tree
		}
	}
	r.sum.Format = f.Name
	if arg != "" {
		r.sum.Format += ":" + arg
	}
	return r
}

// open begins a pass over the text of src. lend: no line is kept beyond the next one.
func (r *reading) open(src *source, eol byte, tap io.Writer, lend bool) error {
	in, err := src.text(tap)
	if err != nil {
		return err
	}
	c := newCutter(in, eol, cmp.Or(src.block, blockSize))
	c.lend = lend
	c.runs = r.sum.Format == "entries" && r.settings.MaxPerOwner > 0
	r.ctx, r.in, r.lines = src.ctx, in, c.reader()
	return nil
}

// next takes the next physical line in hand; false at the end of the text.
func (r *reading) next() bool {
	if r.err != nil {
		return false
	}
	l, ok := r.lines.next()
	if ok {
		r.take(l)
	}
	return ok
}

// take puts a line in hand. What was queued for the last one is gone.
func (r *reading) take(l line) {
	r.at = l
	r.action, r.reason, r.warn, r.why = r.settings.Action, r.settings.Reason, "", ""
	r.queue, r.failed, r.apart, r.owner = r.queue[:0], false, false, r.settings.Owner
}

// end counts the lines and says why there are no more: nil at the good end of
// the text.
func (r *reading) end() error {
	r.sum.Lines = r.lines.number
	if r.err == nil && r.lines.err != io.EOF {
		return r.lines.err
	}
	return nil
}

// except makes the line an exception: its sign is "!" or whatever the format has.
func (r *reading) except() bool {
	if r.action == Allow {
		return r.fail(UnsupportedAction, "", "an exception among exceptions")
	}
	r.action = Allow
	return true
}

// refuse gives the line an action that the format writes out.
func (r *reading) refuse(a Action, word string) bool {
	if r.settings.Action == Allow {
		return r.fail(UnsupportedAction, word, "a refusal in a list of exceptions")
	}
	if r.action = a; a == Discard {
		r.warn, r.why = WarnAction, "the sender is not told"
	}
	return true
}

// because gives the line a reason of its own.
func (r *reading) because(text string) {
	if text != "" {
		r.reason = cleanReason(text)
	}
}

// add queues an item. The pointer holds until the next add.
func (r *reading) add(k Kind, s Scope) *Item {
	r.queue = append(r.queue, Item{})
	it := &r.queue[len(r.queue)-1] // filled in place: an Item has some 200 octets
	it.Line, it.Kind, it.Scope, it.Action = r.at.number, k, s, r.action
	it.Reason, it.Class, it.Message, it.Text = r.reason, r.warn, r.why, r.text()
	return it
}

// skip queues the word that the line, or a part of it, asks for nothing here.
func (r *reading) skip(c Class, message string) {
	r.queue = append(r.queue, Item{Line: r.at.number, Kind: Skip, Class: c, Message: message, Text: r.text()})
}

// fail refuses the line: part is where it is wrong, or "". It returns false, so
// that a parser can end with it. Only the first fault of a line is reported.
func (r *reading) fail(c Class, part, message string) bool {
	at := -1
	if part != "" {
		at = strings.Index(r.text(), part)
	}
	return r.failAt(c, at, message)
}

// failAt is fail at a known octet of the line, from 0; -1: unknown.
func (r *reading) failAt(c Class, at int, message string) bool {
	if !r.failed {
		r.failed = true
		if !r.apart {
			r.queue = r.queue[:0]
		}
		r.queue = append(r.queue, Item{
			Line: r.at.number, Kind: Err, Class: c, Message: message, Column: at + 1, Text: r.text(),
		})
	}
	return false
}

// drop refuses the queued entry it, and with it the line unless its keys stand apart.
func (r *reading) drop(it *Item, c Class, message string) {
	name := it.Name()
	if r.apart {
		i := 0
		for &r.queue[i] != it {
			i++
		}
		r.queue = slices.Delete(r.queue, i, i+1)
	}
	r.fail(c, name, message)
}

// flush emits what the line in hand has come to.
func (r *reading) flush() {
	r.countPatterns()
	r.own()
	r.guard()
	r.tally.count(r.queue)
	entries, skipped := 0, false
	for i := range r.queue {
		if r.err != nil {
			return
		}
		switch it := &r.queue[i]; {
		case it.Kind == Err:
			r.sum.Errors++
			r.sum.Dropped.add(it)
		case it.Kind != Skip:
			entries++
			if it.void {
				r.void++
			}
		case it.Class != Comment && it.Class != Blank:
			skipped = true
		}
		r.err = r.emit(&r.queue[i])
	}
	r.sum.Entries += entries
	if skipped && entries == 0 {
		r.sum.Skipped++
	}
}

func (r *reading) text() string {
	return r.at.text[:min(len(r.at.text), maxText)]
}

// controls refuses the line if it holds a control character.
func (r *reading) controls() bool {
	at, c := controlIn(r.at.text)
	if at < 0 {
		return true
	}
	return r.failAt(c, at, fmt.Sprintf("the character %U", []rune(r.at.text[at:min(at+2, len(r.at.text))])[0]))
}

// utf8 refuses the line if entry, what of it is no comment, is not UTF-8.
func (r *reading) utf8(entry string) bool {
	if utf8.ValidString(entry) {
		return true
	}
	at := strings.Index(r.at.text, entry)
	if at >= 0 {
		at += len(entry) - len(strings.TrimLeftFunc(entry, func(c rune) bool { return c != utf8.RuneError }))
	}
	return r.failAt(BadUTF8, at, "octets that are not UTF-8")
}

// cleanReason makes text fit for a reply: without controls, valid, at most
// maxReason octets, cut at a character.
func cleanReason(text string) string { return cutText(strings.TrimSpace(cleanText(text)), maxReason) }

// cleanText makes text valid, with blanks for its controls.
func cleanText(text string) string {
	if text == "" {
		return "" // as nearly always
	}
	if at, _ := controlIn(text); at >= 0 || !utf8.ValidString(text) {
		text = strings.Map(func(c rune) rune {
			if unicode.IsControl(c) {
				return ' '
			}
			return c
		}, strings.ToValidUTF8(text, "?"))
	}
	return text
}
