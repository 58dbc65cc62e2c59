package lists

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"unicode/utf8"

	"blockd/addr"
)

const (
	maxReason = 400 // octets of Item.Reason

	// maxAddress is RFC 5321's limit of a path (section 4.5.3.1.3), 256 octets,
	// without its angle brackets; maxLocal that of a local-part (4.5.3.1.1).
	maxAddress = 254
	maxLocal   = 64
)

// reading is one file being read as one format. A parser queues what a line means
// by address, domain, network and skip, or gives the line up by fail; a line is
// emitted when it is complete, whole or not at all.
type reading struct {
	src      *source
	settings Settings
	bare     Scope // of bare names
	arg      string
	in       io.Reader
	lines    *lineReader
	emit     func(*Item) error
	err      error // of emit: nothing is emitted any more
	sum      Summary

	// The line in hand.
	at     line
	action Action
	reason string
	warn   Class // of the line as a whole
	why    string
	queue  []Item
	failed bool
}

// read reads src from its start as s says. tap sees the octets as stored.
func read(src *source, tap io.Writer, s Settings, emit func(*Item) error) (Summary, error) {
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
		if f, why, err = detect(src, eol); err != nil {
			return Summary{}, err
		}
	}
	in, err := src.text(tap)
	if err != nil {
		return Summary{}, err
	}
	r := newReading(src, in, eol, f, arg, s, emit)
	err = f.read(r)
	if r.err != nil {
		return r.sum, r.err
	}
	switch {
	case err != nil:
	case r.sum.Entries == 0 && r.sum.Errors > 0:
		err = refusal(OnlyErrors, "%d refused lines and no entry; wrong format?", r.sum.Errors)
	case r.sum.Entries == 0:
		why = string(Empty)
	}
	r.sum.Why = why
	return r.sum, err
}

func newReading(src *source, in io.Reader, eol byte, f *format, arg string, s Settings, emit func(*Item) error) *reading {
	r := &reading{src: src, settings: s, bare: f.Scope, arg: arg, in: in, emit: emit}
	r.settings.Reason = cleanReason(s.Reason)
	if s.Subdomains != nil {
		r.bare = Exact
		if *s.Subdomains {
			r.bare = Tree
		}
	}
	r.lines = newLineReader(in, eol)
	r.sum.Format = f.Name
	if arg != "" {
		r.sum.Format += ":" + arg
	}
	return r
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
	r.queue, r.failed = r.queue[:0], false
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

// address queues the entry of one mailbox. text may be in any spelling that
// package addr reads: in brackets, with a source route, quoted.
func (r *reading) address(text string) bool {
	a, err := addr.Parse(text)
	if err != nil {
		return r.failKey(text, err)
	}
	switch {
	case a.Null():
		return r.fail(NullSender, text, "the null sender cannot be listed")
	case a.Domain() == "":
		return r.fail(Syntax, text, "no domain behind the local-part")
	}
	key, ok := a.Key()
	if !ok {
		return r.fail(TooLong, text, "an address of more than 254 octets, or a domain of more than 253")
	}
	it := r.add(Addr, Exact)
	it.Key = key
	if at := len(key.Text) - len(a.Domain()) - 1; at > maxLocal && r.warn == "" {
		it.Class, it.Message = TooLong, fmt.Sprintf("local-part of %d octets, RFC 5321 allows 64", at)
	}
	return true
}

// local queues the entry of a local-part at any domain.
func (r *reading) local(text string) bool {
	key, err := addr.LocalKey(text)
	if err != nil {
		return r.failKey(text, err)
	}
	it := r.add(Addr, Local)
	it.Key = key
	if n := len(key.Text) - 1; n > maxLocal && r.warn == "" {
		it.Class, it.Message = TooLong, fmt.Sprintf("local-part of %d octets, RFC 5321 allows 64", n)
	}
	return true
}

// domain queues the entry of a name.
func (r *reading) domain(name string, s Scope) bool {
	key, err := addr.DomainKey(name)
	if err != nil {
		return r.failKey(name, err)
	}
	r.add(Domain, s).Key = key
	return true
}

// network queues the entry of a client address or network.
func (r *reading) network(n netip.Prefix) *Item {
	kind, scope := CIDR, Tree
	if n.IsSingleIP() {
		kind, scope = IP, Exact
	}
	it := r.add(kind, scope)
	it.Net = n
	return it
}

// add queues an item. The pointer holds until the next add.
func (r *reading) add(k Kind, s Scope) *Item {
	r.queue = append(r.queue, Item{
		Line: r.at.number, Kind: k, Scope: s, Action: r.action,
		Reason: r.reason, Class: r.warn, Message: r.why, Text: r.text(),
	})
	return &r.queue[len(r.queue)-1]
}

// skip queues the word that the line, or a part of it, asks for nothing here.
func (r *reading) skip(c Class, message string) {
	r.queue = append(r.queue, Item{Line: r.at.number, Kind: Skip, Class: c, Message: message, Text: r.text()})
}

// fail refuses the line: part is where it is wrong, or "". It returns false, so
// that a parser can end with it. Only the first fault of a line is reported.
func (r *reading) fail(c Class, part, message string) bool {
	if r.failed {
		return false
	}
	r.failed = true
	text, column := r.text(), 0
	if part != "" {
		column = strings.Index(text, part) + 1
	}
	r.queue = append(r.queue[:0], Item{
		Line: r.at.number, Kind: Err, Class: c, Message: message, Column: column, Text: text,
	})
	return false
}

// failAt is fail at a known octet of the line, from 0.
func (r *reading) failAt(c Class, at int, message string) bool {
	r.fail(c, "", message)
	r.queue[0].Column = at + 1
	return false
}

// failKey refuses the line because text is no key. Where package addr knows only
// that the grammar ends early, what people write by mistake says it better.
func (r *reading) failKey(text string, err error) bool {
	e, ok := err.(*addr.Error)
	if !ok {
		return r.fail(Syntax, text, err.Error())
	}
	if guess := mistaken(text); e.Class == addr.Syntax && guess != "" {
		return r.fail(Syntax, text, guess)
	}
	return r.fail(Class(e.Class), text, e.Reason)
}

// mistaken names what stands in lists by mistake, "" if text is none of it.
func mistaken(text string) string {
	switch {
	case strings.IndexByte(text, '"') >= 0:
		return "" // nearly everything may stand in quotes
	case strings.Contains(text, "://"):
		return "a URL, not a name"
	case strings.ContainsAny(text, ",;") || indexBlank(text) >= 0:
		return "more than one word; write one entry a line"
	case strings.Contains(text, ".."), strings.HasPrefix(text, "."), strings.Contains(text, "@."):
		return "nothing between two dots, or before one"
	case strings.IndexByte(text, '@') != strings.LastIndexByte(text, '@'):
		return `more than one "@"`
	case strings.IndexByte(text, '@') >= 0:
		return ""
	case strings.IndexByte(text, '/') >= 0:
		return "a path, not a name"
	case strings.IndexByte(text, ':') >= 0:
		return "a name does not have a port"
	}
	return ""
}

// flush emits what the line in hand has come to.
func (r *reading) flush() {
	entries, skipped := 0, false
	for i := range r.queue {
		if r.err != nil {
			return
		}
		switch it := &r.queue[i]; {
		case it.Kind == Err:
			r.sum.Errors++
		case it.Kind != Skip:
			entries++
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
	bad := strings.IndexFunc(entry, func(c rune) bool { return c == utf8.RuneError })
	return r.failAt(BadUTF8, strings.Index(r.at.text, entry)+bad, "octets that are not UTF-8")
}

// cleanReason makes text fit for a reply: without controls, valid, at most
// maxReason octets, cut at a character.
func cleanReason(text string) string {
	if at, _ := controlIn(text); at >= 0 || !utf8.ValidString(text) {
		text = strings.Map(func(c rune) rune {
			if c < ' ' || c >= 0x7f && c < 0xa0 {
				return ' '
			}
			return c
		}, strings.ToValidUTF8(text, "?"))
	}
	text = strings.TrimSpace(text)
	if len(text) <= maxReason {
		return text
	}
	cut := maxReason
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}
