package lists

import (
	"net/netip"
	"strings"
)

// postfixLine reads one logical line of an access(5) table: a key, blanks, and
// what is to be done. Where the table's own manual leaves a choice, it decides:
// digits alone are OK, whatever code they look like.
func postfixLine(r *reading, text string) {
	if !r.utf8(text) {
		return
	}
	key, value := cutAccess(text)
	switch {
	case key == "<>":
		r.fail(NullSender, key, "the null sender cannot be listed")
	case value == "":
		r.fail(MissingValue, "", "a key without an action")
	case r.postfixAction(value):
		r.postfixKey(key)
	}
}

// cutAccess cuts a line of an access table before the first blank outside quotes.
func cutAccess(text string) (key, value string) {
	if i := endOfKey(text); i >= 0 {
		return text[:i], trim(text[i:])
	}
	return text, ""
}

// endOfKey returns where the first blank outside quotes is, -1 without one.
func endOfKey(text string) int { return indexUnquoted(text, " \t") }

// indexUnquoted returns where the first of chars outside quotes is, -1 without one.
func indexUnquoted(text, chars string) int {
	first, front := -1, text
	for _, c := range []byte(chars) {
		if i := strings.IndexByte(front, c); i >= 0 {
			first, front = i, text[:i]
		}
	}
	if first < 0 || strings.IndexByte(front, '"') < 0 {
		return first // as in nearly every line
	}
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && strings.IndexByte(chars, c) >= 0:
			return i
		}
	}
	return -1
}

// postfixAction reads the value of an entry.
func (r *reading) postfixAction(value string) bool {
	word, text := cutWord(value)
	switch upper := strings.ToUpper(word); {
	case upper == "OK", upper == "RELAY", upper == "DUNNO":
		r.action = Allow
	case allDigits(value):
		r.action = Allow
		return true // the number is a time stamp, not a reason
	case upper == "REJECT":
		r.because(uncoded(Block, text))
		return r.refuse(Block, word)
	case upper == "DEFER", strings.HasPrefix(upper, "DEFER_"):
		r.because(uncoded(Tempfail, text))
		return r.refuse(Tempfail, word)
	case upper == "DISCARD":
		r.because(text)
		return r.refuse(Discard, word)
	case isCode(word) && text != "":
		r.because(value) // ParseAnswer takes it apart again
		if word[0] == '4' {
			return r.refuse(Tempfail, word)
		}
		return r.refuse(Block, word)
	default:
		return r.fail(UnsupportedAction, word, "an action that a list of senders cannot take")
	}
	r.because(text)
	return true
}

// isCode tells a 4xx or 5xx reply code.
func isCode(word string) bool {
	return len(word) == 3 && (word[0] == '4' || word[0] == '5') && allDigits(word)
}

func allDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// postfixKey queues the entry of a key: an address, user@, a name, .name, a
// client address or network, or the leading groups of a client address.
func (r *reading) postfixKey(key string) bool {
	if net, ok := leadingGroups(key); ok {
		return r.prefix(key, net)
	}
	switch {
	case isWild(key):
		return r.fail(TooBroad, key, "this covers every sender")
	case key[0] == '[':
		return r.domain(key, Exact) // senders at this address literal: Postfix asks for clients without brackets
	case looksNet(key):
		return r.networks(key)
	case key[0] == '.':
		return r.name(key[1:], Sub)
	case strings.IndexByte(key, '@') < 0 && key[0] != '<':
		return r.name(key, r.bare)
	case strings.HasPrefix(key, "*@"), key[0] == '<':
		return r.fail(Unsupported, key, "a form that access tables do not have")
	}
	return r.accessAddress(key)
}

// accessAddress queues an address or user@. A "*" in it is itself: an indexed table knows
// no patterns.
func (r *reading) accessAddress(key string) bool {
	at, closed := lastAt(key)
	if !closed || at <= 0 || strings.IndexByte(key[at:], '*') >= 0 {
		return r.forms(key)
	}
	if at == len(key)-1 {
		return r.local(key[:at])
	}
	return r.address(key)
}

// leadingGroups reads what matches by its beginning: 198.51.100 is the /24,
// 2001:db8 the /32.
func leadingGroups(key string) (netip.Prefix, bool) {
	if n := strings.Count(key, ".") + 1; n < 4 && strings.Trim(key, "0123456789.") == "" {
		a, err := netip.ParseAddr(key + strings.Repeat(".0", 4-n))
		return netip.PrefixFrom(a, 8*n), err == nil
	}
	n := strings.Count(key, ":") + 1
	if n < 2 || n > 7 || strings.Trim(key, "0123456789abcdefABCDEF:") != "" || strings.HasSuffix(key, ":") {
		return netip.Prefix{}, false
	}
	a, err := netip.ParseAddr(key + "::") // fails where key has "::" already
	return netip.PrefixFrom(a, 16*n), err == nil
}

// postfixMark tells a line that only access tables have: something, and an
// action. Digits alone are no mark: other lists have counts behind their keys.
func postfixMark(text string) bool {
	_, value := cutAccess(text)
	if value == "" || sendmailMark(text) {
		return false // a tag makes the same line sendmail's
	}
	word, rest := cutWord(value)
	switch strings.ToUpper(word) {
	case "REJECT", "OK", "RELAY", "DUNNO", "DISCARD", "DEFER", "DEFER_IF_PERMIT", "DEFER_IF_REJECT", "HOLD":
		return true
	}
	return isCode(word) && rest != ""
}
