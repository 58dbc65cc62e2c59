package pattern

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// minLiteral is the shortest text that is worth looking for: two octets are in
	// every other sender.
	minLiteral = 3

	// maxAnyOf bounds the texts of one Need. An expression that begins with one of
	// more words is better known by something else.
	maxAnyOf = 16

	// maxClass bounds the characters of a class that are written out: an "s" in a
	// class has two small letters, a digit ten.
	maxClass = 4

	// maxExact bounds the octets of a text that is put together from parts, so that
	// an expression of many alternatives costs no more than its length.
	maxExact = 64
)

// found is what is sure of every match of a part of an expression.
type found struct {
	exact []string // all that it can be; nil: too much, or unknown
	needs []Need   // what it holds, in order and without overlap, if exact is nil
}

// needsOf returns the usable needs of an expression, in the order of the matches.
func needsOf(re *syntax.Regexp) []Need {
	return usable(walk(re).flush().needs)
}

// usable leaves the needs of which no text is too short.
func usable(needs []Need) []Need {
	return slices.DeleteFunc(needs, func(n Need) bool {
		return slices.ContainsFunc(n, func(s string) bool { return len(s) < minLiteral })
	})
}

// flush turns the exact texts into a need.
func (f found) flush() found {
	if len(f.exact) > 0 && !slices.Contains(f.exact, "") {
		f.needs = append(f.needs, Need(f.exact))
	}
	f.exact = nil
	return f
}

func walk(re *syntax.Regexp) found {
	switch re.Op {
	case syntax.OpLiteral:
		return found{exact: []string{string(re.Rune)}}
	case syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpEndLine, syntax.OpBeginText, syntax.OpEndText,
		syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return found{exact: []string{""}}
	case syntax.OpCharClass:
		return found{exact: classTexts(re.Rune)}
	case syntax.OpCapture:
		return walk(re.Sub[0])
	case syntax.OpQuest:
		if f := walk(re.Sub[0]); f.exact != nil {
			return found{exact: append(f.exact, "")}
		}
	case syntax.OpPlus:
		return walk(re.Sub[0]).flush()
	case syntax.OpConcat:
		return walkConcat(re.Sub)
	case syntax.OpAlternate:
		return walkAlternate(re.Sub)
	}
	return found{} // any character, a star: nothing is sure
}

// walkConcat puts neighbours together as long as all that they match is known.
func walkConcat(subs []*syntax.Regexp) found {
	run := found{exact: []string{""}} // of the last parts, and the needs before it
	whole := true
	for _, sub := range subs {
		f := walk(sub)
		if joined := product(run.exact, f.exact); joined != nil {
			run.exact = joined
			continue
		}
		whole = false
		run = run.flush()
		run.needs = append(run.needs, f.needs...)
		if run.exact = f.exact; f.exact == nil {
			run.exact = []string{""}
		}
	}
	if whole {
		return run
	}
	return run.flush()
}

// product returns each of a followed by each of b, nil if that is too much or
// either is unknown.
func product(a, b []string) []string {
	if len(a)*len(b) > maxAnyOf {
		return nil
	}
	var joined []string
	for _, x := range a {
		for _, y := range b {
			if len(x)+len(y) > maxExact {
				return nil
			}
			joined = append(joined, x+y)
		}
	}
	return joined
}

// walkAlternate joins the branches: all that they match if that is known of each,
// else the best need of each.
func walkAlternate(subs []*syntax.Regexp) found {
	var exact []string
	var best Need
	for i, sub := range subs {
		f := walk(sub)
		if f.exact != nil && (i == 0 || exact != nil) && len(exact)+len(f.exact) <= maxAnyOf {
			exact = append(exact, f.exact...)
		} else {
			exact = nil
		}
		n := longest(usable(f.flush().needs))
		if i > 0 && best == nil || n == nil || len(best)+len(n) > maxAnyOf {
			best = nil
		} else {
			best = append(best, n...)
		}
		if i > 0 && exact == nil && best == nil {
			return found{}
		}
	}
	switch {
	case exact != nil:
		return found{exact: exact}
	case best != nil:
		return found{needs: []Need{best}}
	}
	return found{}
}

// longest returns the need whose shortest text is the longest, nil of none.
func longest(needs []Need) Need {
	if len(needs) == 0 {
		return nil
	}
	return slices.MaxFunc(needs, func(a, b Need) int { return a.shortest() - b.shortest() })
}

// shortest is the length of the shortest text of n, which is not empty.
func (n Need) shortest() int {
	return len(slices.MinFunc(n, func(a, b string) int { return len(a) - len(b) }))
}

// classTexts returns the characters of a class, nil if there are many. Capitals do
// not count, since texts have none.
func classTexts(ranges []rune) []string {
	var texts []string
	for i := 0; i < len(ranges); i += 2 {
		if ranges[i+1]-ranges[i] >= 2*maxClass {
			return nil
		}
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			if unicode.ToLower(r) != r {
				continue
			}
			if texts = append(texts, string(r)); len(texts) > maxClass {
				return nil
			}
		}
	}
	return texts
}

// glob is a glob cut at its stars: the text begins with the first part, ends with
// the last, and holds the others in order between them. In a part "?" is one
// character.
type glob []string

func parseGlob(text string) glob { return strings.Split(text, "*") }

// needs returns the usable texts of the glob in order.
func (g glob) needs() []Need {
	var needs []Need
	for _, part := range g {
		for _, s := range strings.Split(part, "?") {
			if len(s) >= minLiteral {
				needs = append(needs, Need{s})
			}
		}
	}
	return needs
}

// match takes each part where it stands first, which leaves the most room for the
// parts behind it: so there is nothing to come back to.
func (g glob) match(text string) bool {
	n := partAt(g[0], text)
	if n < 0 {
		return false
	}
	text = text[n:]
	if len(g) == 1 {
		return text == ""
	}
	for _, part := range g[1 : len(g)-1] {
		end := partEnd(part, text)
		if end < 0 {
			return false
		}
		text = text[end:]
	}
	return partBehind(g[len(g)-1], text)
}

// partAt returns the octets at the beginning of text that part matches, or -1.
func partAt(part, text string) int {
	n := 0
	for i := 0; i < len(part); i++ {
		switch {
		case n == len(text):
			return -1
		case part[i] == '?':
			n += runeLen(text[n:])
		case part[i] != text[n]:
			return -1
		default:
			n++
		}
	}
	return n
}

// partEnd returns where the first place of text ends that part matches, or -1.
func partEnd(part, text string) int {
	if strings.IndexByte(part, '?') < 0 {
		if i := strings.Index(text, part); i >= 0 {
			return i + len(part)
		}
		return -1
	}
	for i := 0; ; i += runeLen(text[i:]) {
		if n := partAt(part, text[i:]); n >= 0 {
			return i + n
		}
		if i == len(text) {
			return -1
		}
	}
}

// partBehind reports whether text ends with what part matches.
func partBehind(part, text string) bool {
	if strings.IndexByte(part, '?') < 0 {
		return strings.HasSuffix(text, part)
	}
	for i := 0; ; i += runeLen(text[i:]) {
		if n := partAt(part, text[i:]); n >= 0 && i+n == len(text) {
			return true
		}
		if i == len(text) {
			return false
		}
	}
}

// runeLen is the length of the first character of text; an octet that begins none
// counts as one.
func runeLen(text string) int {
	_, n := utf8.DecodeRuneInString(text)
	return n
}
