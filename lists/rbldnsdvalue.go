package lists

import (
	"strconv"
	"strings"
	"time"
)

// templates are the texts of one dataset: what an entry without a text of its own
// gets, and what is put in for "$0" to "$9" and, around every text, for "$=".
type templates struct {
	text string
	vars [len(templateNames)]string
}

const templateNames = "0123456789="

// expand makes the text of an entry. Texts that are put in are not looked at
// again, and what is longer than a reason may be is not made.
func (t *templates) expand(text, entry string) string {
	inner := text
	if own, ok := strings.CutPrefix(text, "="); ok {
		text, inner = own, own
	} else if base := t.vars[len(templateNames)-1]; base != "" {
		if inner == "" {
			inner = entry
		}
		text = base
	}
	var b strings.Builder
	for text != "" && b.Len() <= maxReason {
		before, after, found := strings.Cut(text, "$")
		b.WriteString(before)
		if !found {
			break
		}
		text = after
		i := -1
		if after != "" {
			i = strings.IndexByte(templateNames, after[0])
		}
		switch {
		case i < 0 && strings.HasPrefix(after, "$"):
			b.WriteByte('$')
		case i < 0:
			b.WriteString(entry)
			continue
		case after[0] == '=':
			b.WriteString(inner)
		case t.vars[i] != "":
			b.WriteString(t.vars[i])
		default:
			b.WriteString("$" + after[:1])
		}
		text = after[1:]
	}
	return b.String()
}

// cutValue reads ":A:TXT", ":A" or "TXT". own is false where the text is left to
// the default; ok is false if A is no address.
func cutValue(text string) (txt string, own, ok bool) {
	rest, colon := strings.CutPrefix(text, ":")
	if !colon {
		return text, true, true
	}
	a, txt, own := strings.Cut(rest, ":")
	octets, ok := parseDotted(trimRight(a))
	if !ok || octets.first == [4]byte{} {
		return "", false, false
	}
	return trimLeft(txt), own, true
}

// timestamp reads "STAMP EXPIRES". What is expired is loaded, and said.
func (r *reading) timestamp(text string) {
	first, second := cutWord(text)
	stamp, ok := parseStamp(first)
	expires, rel := time.Time{}, false
	if ok && second != "" {
		if second, rel = strings.CutPrefix(second, "+"); rel {
			var d time.Duration
			d, ok = parseSpan(second)
			if expires = stamp.Add(d); stamp.IsZero() {
				ok = false // nothing that the span could begin at
			}
		} else {
			expires, ok = parseStamp(second)
		}
	}
	switch {
	case !ok:
		r.fail(Syntax, text, "a time is YYYY-MM-DD-hh-mm-ss")
	case !expires.IsZero() && expires.Before(time.Now()):
		r.skip(Expired, "the data expired at "+expires.Format(time.RFC3339))
	default:
		r.skip(Directive, "")
	}
}

// parseStamp reads a time in UTC; "0" and "-" are no time.
func parseStamp(text string) (time.Time, bool) {
	if text == "0" || text == "-" || text == ":" {
		return time.Time{}, true
	}
	digits := text
	if parts := strings.FieldsFunc(text, func(c rune) bool { return c == ':' || c == '-' }); len(parts) > 1 {
		digits = ""
		for _, p := range parts {
			if len(p) == 1 {
				p = "0" + p
			}
			digits += p
		}
	}
	const layout = "20060102150405"
	if len(digits) < 8 || len(digits) > len(layout) || !allDigits(digits) {
		return time.Time{}, false
	}
	t, err := time.Parse(layout[:len(digits)], digits)
	return t, err == nil
}

// parseSpan reads a number and its unit: weeks, days, hours, minutes or seconds.
func parseSpan(text string) (time.Duration, bool) {
	unit := time.Second
	if text != "" {
		switch text[len(text)-1] | 0x20 {
		case 'w':
			unit = 7 * 24 * time.Hour
		case 'd':
			unit = 24 * time.Hour
		case 'h':
			unit = time.Hour
		case 'm':
			unit = time.Minute
		}
		text = strings.TrimRight(text, "wdhmsWDHMS")
	}
	n, err := strconv.ParseUint(text, 10, 32)
	const most = 1 << 62 // nanoseconds: 146 years
	if err != nil || time.Duration(n) > most/unit {
		return 0, false
	}
	return time.Duration(n) * unit, true
}
