package lists

import (
	"errors"
	"fmt"
	"strings"

	"blockd/mail/addr"
)

// EntryError is a text that is no single entry, or one that Settings.Guard refuses.
// Class is the word that Lint would print for it.
type EntryError struct {
	Text    string
	Class   Class
	Message string
}

// Error gives one line.
func (e *EntryError) Error() string { return fmt.Sprintf("%q: %s: %s", e.Text, e.Class, e.Message) }

// Guarded reports whether err is an EntryError of an entry that is sound and
// reaches too far: it covers a protected domain, a public suffix, or a wide network.
func Guarded(err error) bool {
	e, ok := errors.AsType[*EntryError](err)
	return ok && (e.Class == Protected || e.Class == PublicSuffix || e.Class == Wide)
}

// ParseEntry reads text as the one entry of a line of a plain list (docs/lists.md,
// section 2), with Settings' action. Patterns, comments, exceptions ("!") and what
// makes several entries are refused. The Item may be kept; its Class is a warning or
// "". The error is an *EntryError.
func ParseEntry(text string, s Settings) (Item, error) {
	refuse := func(c Class, message string) (Item, error) {
		return Item{}, &EntryError{text[:min(len(text), maxText)], c, message}
	}
	text = strings.Clone(trim(text)) // the keys are parts of it
	switch {
	case len(text) > maxText:
		return refuse(TooLong, "no entry has so many octets")
	case text == "" || plainComment(text) || cutComment(text) != text:
		return refuse(Syntax, "want an entry and nothing else")
	case text[0] == '!':
		return refuse(Syntax, `an exception is no entry of its own here; want the action "allow"`)
	}
	var items []Item
	s.Patterns = false
	r := newReading(formatNamed("plain"), "", s, func(it *Item) error { items = append(items, *it); return nil })
	r.take(line{number: 1, text: text})
	if !r.simple() {
		r.readLine(plainComment, plainLine)
	}
	switch {
	case len(items) == 0 || items[0].Kind == Skip:
		return refuse(Syntax, "want an entry and nothing else")
	case items[0].Kind == Err:
		return refuse(items[0].Class, items[0].Message)
	case len(items) > 1:
		return refuse(Unsupported, fmt.Sprintf("%d entries; want one", len(items)))
	}
	items[0].Line, items[0].Text = 0, ""
	return items[0], nil
}

// ParseLine reads text as one line of a list in the format "postfix" or "spamassassin", as a database may hold it in
// columns. Each entry of the line is an Item, and so is what of it is refused (Err) or means nothing here (Skip).
// The items may be kept.
func ParseLine(format, text string, s Settings) (items []Item) {
	r := newReading(formatNamed(format), "", s, func(it *Item) error { items = append(items, *it); return nil })
	r.take(line{number: 1, text: strings.Clone(text)})
	switch format {
	case "postfix":
		r.readLine(hashComment, postfixLine)
	case "spamassassin":
		r.readLine(hashComment, spamassassinLine)
	default:
		panic("lists: lines of " + format + " have no meaning by themselves")
	}
	return items
}

// Plain is the entry as a plain list has it, without the mark of an exception and without
// its owner: what ParseEntry reads as the same key and scope. It is "" for patterns and for what is no entry.
func (it *Item) Plain() string {
	bare := *it
	bare.Action, bare.Owner = Block, addr.Key{}
	if bare.Kind == Recipient {
		return bare.Name()
	}
	if bare.Kind == Glob || bare.Kind == Regexp {
		return ""
	}
	line, ok := sayPlain(nil, nil, &bare)
	if !ok {
		return ""
	}
	return strings.TrimSuffix(string(line), "\n")
}
