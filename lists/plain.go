package lists

import (
	"regexp"
	"strings"

	"blockd/mail/addr"
)

// readPlain reads the plain format. Nearly every line of a long list is an address
// or a name and nothing else; simple knows those at a glance.
func readPlain(r *reading) error {
	for r.next() {
		if !r.simple() {
			r.readLine(plainComment, plainLine)
		}
	}
	return r.end()
}

// simple reads the line in hand if it is one that addr.Simple takes: then it holds
// no mark of the format, and readLine would make the same of it.
func (r *reading) simple() bool {
	key, ok := addr.Simple(r.at.text)
	if !ok || r.settings.PerRecipient {
		return false
	}
	if key.Kind == addr.Domain {
		r.add(Domain, r.bare).Key = key
		r.flush()
		return true
	}
	// What flush would make of an address: no guard has a say about one mailbox.
	it := &r.usual
	it.Line, it.Key, it.Text = r.at.number, key, r.at.text
	it.Kind, it.Scope, it.Action, it.Reason = Addr, Exact, r.action, r.reason
	it.Class, it.Message = "", "" // Lint has written into that of the line before
	r.tally.lines++
	r.sum.Entries++
	r.err = r.emit(it)
	return true
}

// plainComment tells the comments of the plain format.
func plainComment(text string) bool {
	return text != "" && (text[0] == '#' || text[0] == ';' || strings.HasPrefix(text, "//"))
}

// plainLine reads one line of the plain format (docs/lists.md, section 2).
func plainLine(r *reading, text string) {
	text = cutComment(text)
	if !r.utf8(text) {
		return
	}
	if rest, ok := strings.CutPrefix(text, "!"); ok {
		text = trimLeft(rest)
		if text == "" || text[0] == '!' || text[0] == '#' {
			r.fail(Syntax, "!", `an exception is "!" and one entry`)
			return
		}
		if !r.except() {
			return
		}
	}
	if text[0] == '=' && strings.IndexByte(text, '@') < 0 {
		r.name(text[1:], Exact)
		return
	}
	r.entry(text)
}

// cutComment takes a trailing comment off a line that is not one as a whole: "#"
// after a blank and outside quotes, since a#b@bulk.test is an address; after a
// client address or network ";" too.
func cutComment(text string) string {
	text = cutHash(text)
	if i := strings.IndexByte(text, ';'); i > 0 {
		if before := trimRight(text[:i]); looksNet(trimLeft(strings.TrimPrefix(before, "!"))) {
			return before
		}
	}
	return text
}

// cutHash takes a comment off that "#" begins after a blank and outside quotes.
func cutHash(text string) string {
	if strings.IndexByte(text, '#') < 0 {
		return text
	}
	quoted := false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			quoted = !quoted
		case '\\':
			if quoted {
				i++
			}
		case '#':
			if before := trimRight(text[:i]); !quoted && len(before) < i {
				return before
			}
		}
	}
	return text
}

// entry queues what one entry of the plain format means, without the marks "!"
// and "=" and without comments: so CSV cells use it too. text has no outer blanks
// and is not empty.
func (r *reading) entry(text string) bool {
	switch {
	case strings.HasPrefix(text, recipientMark):
		return r.recipient(text[len(recipientMark):])
	case isRegexp(text):
		switch {
		case !r.settings.Patterns && matchesAll(text):
			return r.fail(TooBroad, text, "a regular expression that matches every sender")
		case text[0] == '/':
			return r.slashedExpression(text)
		}
		return r.expression(text, strings.TrimPrefix(text, "~"))
	case isWild(text):
		return r.fail(TooBroad, text, "this covers every sender")
	case looksRange(text), looksNet(text) && strings.IndexByte(text, '-') >= 0:
		return r.netRange(text)
	case looksNet(text):
		return r.networks(text)
	case strings.IndexByte(text, '@') >= 0, text[0] == '<', text[len(text)-1] == '>', hasFold(text, "mailto:"):
		return r.mailbox(text)
	}
	return r.bareName(text)
}

// isRegexp tells /…/flags, ~… and ^…; "/x/y@bulk.test" is an address.
func isRegexp(text string) bool {
	switch text[0] {
	case '~', '^':
		return true
	case '/':
		last := strings.LastIndexByte(text, '/')
		return last > 0 && strings.Trim(text[last+1:], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
	}
	return false
}

// matchesAll tells a regular expression that matches two texts which have nothing
// but an "@" and a dot in common. One that Go cannot read, or that is
// longer than a careless one ever is, gets the milder class.
func matchesAll(text string) bool {
	pattern := strings.TrimPrefix(text, "~")
	if text[0] == '/' {
		pattern = text[1:strings.LastIndexByte(text, '/')]
	}
	if len(pattern) > 64 {
		return false
	}
	re, err := regexp.Compile(pattern)
	return err == nil && re.MatchString("k7@q3.example") && re.MatchString("Ub_Yc+i@Fd-o.nbst")
}

// isWild tells what covers everything: "*", "*@*", ".", "*." and their kin.
func isWild(text string) bool {
	switch text[0] {
	case '*', '@', '.':
		return strings.Trim(text, "*@.") == "" && (text == "." || text == "@." || strings.Contains(text, "*"))
	}
	return false
}

// bareName queues a domain without any mark but a leading dot or "*.".
func (r *reading) bareName(text string) bool {
	switch {
	case strings.HasPrefix(text, "*."):
		return r.name(text[2:], Sub)
	case text[0] == '.':
		return r.name(text[1:], Sub)
	}
	return r.name(text, r.bare)
}

// name queues a domain that a format's marks were taken off.
func (r *reading) name(text string, s Scope) bool {
	if strings.IndexByte(text, '*') >= 0 {
		return r.namePattern(text, s)
	}
	return r.domain(text, s)
}
