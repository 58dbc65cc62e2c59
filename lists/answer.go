package lists

import "strconv"

// Answer is what an entry's own text says to the client. The text may begin with a
// reply code and an enhanced status code, as "550 5.7.9 no bulk mail" does.
type Answer struct {
	Code     int    // 400 to 599; 0 = the text names none
	Enhanced string // such as "5.7.9", of the class of Code where that is named; "" = the text names none
	Text     string
}

// ParseAnswer reads a text as the formats of Answers have it.
func ParseAnswer(text string) (a Answer) {
	text = trim(text)
	word, rest := cutWord(text)
	if isCode(word) && rest != "" {
		a.Code, _ = strconv.Atoi(word)
		text = rest
		word, rest = cutWord(text)
	}
	if isStatus(word) {
		a.Enhanced, text = word, rest
		if a.Code != 0 { // the code comes first, and so it has the say, as in Postfix
			a.Enhanced = strconv.Itoa(a.Code/100) + word[1:]
		}
	}
	a.Text = text
	return a
}

// Answers reports whether the texts of a format, as Summary.Format names it, are meant
// for the client. In other formats they are notes for people.
func Answers(format string) bool {
	f := formatNamed(format)
	return f != nil && f.answers
}

// uncoded is the text behind a word such as REJECT, in which no code is meant: one that
// would be read as a code gets the usual codes of c in front.
func uncoded(c Action, text string) string {
	if ParseAnswer(text).Code == 0 {
		return text
	}
	if c == Tempfail {
		return "450 4.7.1 " + text
	}
	return "550 5.7.1 " + text
}
