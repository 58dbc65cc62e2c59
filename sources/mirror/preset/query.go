package preset

import (
	"errors"
	"slices"
	"strings"
)

// enumerate makes a query of Postfix for one key into one for all of them:
//
//	SELECT action FROM senders WHERE address = '%s' AND active
//	select address as entry, action as action FROM senders WHERE address is not null AND active
//
// The condition on the key must be one that every row has to meet. An error says why the query cannot be read so.
// escapes says that a backslash in a text in quotes takes the meaning of the next character, as in MySQL.
func enumerate(text string, escapes bool) (string, error) {
	q := statement{text: text}
	if err := q.split(escapes); err != nil {
		return "", err
	}
	from, where := q.find("from"), q.find("where")
	switch {
	case len(q.tokens) < 2 || !q.tokens[0].is("select"):
		return "", errors.New("want a select")
	case from < 0:
		return "", errors.New("it asks a function, which gives no rows without a key")
	case where < from:
		return "", errors.New("it has no condition such as address = '%s'")
	}
	end, err := q.end(where)
	if err != nil {
		return "", err
	}
	key, at, err := q.condition(where+1, end)
	if err != nil {
		return "", err
	}
	first := 1
	if q.tokens[1].is("distinct") {
		first = 2
	}
	result, err := q.result(first, from)
	if err != nil {
		return "", err
	}
	column := q.part(key, at-1)
	return q.part(0, first) + " " + column + " as entry, " + result + " as action " + q.part(from, key) + " " + column + " is not null " + q.part(at+1, end), nil
}

// statement is a query with its words and signs.
type statement struct {
	text   string
	tokens []token
}

// token is a word, a number, a text in quotes or a sign.
type token struct {
	text       string
	begin, end int // in the query
	depth      int // in how many parentheses it is; a parenthesis is in the one that it begins or ends
}

func (t token) is(word string) bool { return strings.EqualFold(t.text, word) }

func (t token) isAny(words ...string) bool { return slices.ContainsFunc(words, t.is) }

func (t token) quoted() bool { return t.text[0] == '\'' || t.text[0] == '"' }

// named reports whether the token can be a name.
func (t token) named() bool {
	c := t.text[0]
	return c == '`' || c == '"' || c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80
}

// part is the text from one token up to another, as Postfix expands it.
func (q *statement) part(begin, end int) string {
	if begin >= end {
		return ""
	}
	return strings.ReplaceAll(q.text[q.tokens[begin].begin:q.tokens[end-1].end], "%%", "%")
}

// split cuts the query into tokens.
func (q *statement) split(escapes bool) error {
	depth := 0
	for at := 0; at < len(q.text); {
		rest, n := q.text[at:], 1
		switch c := rest[0]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			at++
			continue
		case c == '\'' || c == '"' || c == '`':
			if n = quote(rest, escapes && c != '`'); n == 0 {
				return errors.New("a quote without its end")
			}
		case strings.HasPrefix(rest, "--") || strings.HasPrefix(rest, "/*") || c == '#' || c == 0:
			return errors.New("it has a comment")
		case c == ';':
			if strings.Trim(rest, "; \t\r\n") != "" {
				return errors.New("it is more than one statement")
			}
			return balanced(depth)
		case isWord(c):
			for n < len(rest) && isWord(rest[n]) {
				n++
			}
		case strings.HasPrefix(rest, "||") || strings.HasPrefix(rest, "%%") || len(rest) > 1 && strings.IndexByte("<>!=:&", c) >= 0 && strings.IndexByte("<>=:&", rest[1]) >= 0:
			n = 2
		}
		t := token{rest[:n], at, at + n, depth}
		switch t.text {
		case "(":
			depth++
			t.depth = depth
		case ")":
			depth--
		}
		if depth < 0 {
			return errors.New("a ) without its (")
		}
		q.tokens, at = append(q.tokens, t), at+n
	}
	return balanced(depth)
}

func balanced(depth int) error {
	if depth > 0 {
		return errors.New("a ( without its )")
	}
	return nil
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

// quote returns the octets of the text in quotes that text begins with; 0 if it has no end. A quote in it is doubled.
func quote(text string, escapes bool) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && escapes:
			i++
		case text[i] == text[0] && i+1 < len(text) && text[i+1] == text[0]:
			i++
		case text[i] == text[0]:
			return i + 1
		}
	}
	return 0
}

// find returns where a word stands outside of all parentheses; -1 if it does not.
func (q *statement) find(word string) int {
	return slices.IndexFunc(q.tokens, func(t token) bool { return t.depth == 0 && t.is(word) })
}

// end returns where the conditions end. What comes after them may say no more than the order, or the number, of the
// rows of one key.
func (q *statement) end(where int) (int, error) {
	for _, word := range []string{"group", "having", "union", "intersect", "except", "window", "offset", "fetch", "for", "into", "procedure"} {
		if q.find(word) >= 0 {
			return 0, errors.New("it has " + strings.ToUpper(word))
		}
	}
	order, limit := q.find("order"), q.find("limit")
	switch last := max(order, limit); {
	case order >= 0 && limit >= 0:
		return 0, errors.New("it takes one of several rows of a key, by ORDER and LIMIT")
	case last >= 0 && last < where:
		return 0, errors.New("want a select")
	case last >= 0:
		return last, nil
	}
	return len(q.tokens), nil
}

// condition finds COLUMN = '%s': where the column begins, and where '%s' is. Whatever else Postfix would put a part of
// the key into cannot be read for all keys.
func (q *statement) condition(begin, end int) (column, at int, err error) {
	unlike := errors.New("want one condition COLUMN = '%s', which every row has to meet")
	at = -1
	for i, t := range q.tokens {
		switch {
		case !strings.Contains(strings.ReplaceAll(t.text, "%%", ""), "%"):
		case t.text != "'%s'" && t.text != `"%s"`:
			return 0, 0, errors.New("it asks for a part of the address, or for more than the address; only COLUMN = '%s' can be read as a whole")
		case at >= 0:
			return 0, 0, errors.New("it has '%s' twice")
		default:
			at = i
		}
	}
	if at < begin+2 || at >= end || q.tokens[at-1].text != "=" {
		return 0, 0, unlike
	}
	if column = q.column(begin, at-1); column < 0 {
		return 0, 0, unlike
	}
	if at+1 < end && !q.tokens[at+1].isAny("and", ")") || column > begin && !q.tokens[column-1].isAny("and", "(") {
		return 0, 0, unlike
	}
	for _, step := range []int{-1, 1} {
		if !q.needed(begin, end, at, step) {
			return 0, 0, unlike
		}
	}
	return column, at, nil
}

// needed reports whether what stands on one side of a condition leaves it one that every row has to meet: all around
// it are groups in parentheses, and AND.
func (q *statement) needed(begin, end, at, step int) bool {
	depth := q.tokens[at].depth
	for i := at + step; i >= begin && i < end; i += step {
		t := q.tokens[i]
		switch {
		case t.depth > depth: // in a group beside
		case t.isAny("or", "xor", "||", "between", "case"):
			return false
		case t.text == "(": // which begins a group around the condition: a function, IN or NOT would make something else of it
			if i > begin && !q.tokens[i-1].isAny("and", "(") {
				return false
			}
			depth--
		case t.text == ")":
			depth--
		}
	}
	return true
}

// column returns where the column, or the function of one, begins that ends before a token; -1 if there is none.
func (q *statement) column(begin, end int) int {
	i := end - 1
	if q.tokens[i].text == ")" {
		depth := q.tokens[i].depth
		for i--; i >= begin && (q.tokens[i].text != "(" || q.tokens[i].depth != depth); {
			i--
		}
		if i--; i < begin || !q.tokens[i].named() || q.tokens[i].isAny("and", "in") {
			return -1
		}
		return i
	}
	if !q.tokens[i].named() {
		return -1
	}
	for i-2 >= begin && q.tokens[i-1].text == "." && q.tokens[i-2].named() {
		i -= 2
	}
	return i
}

// result is the one column of the result, without a name of its own.
func (q *statement) result(begin, end int) (string, error) {
	last := end
	for i := begin; i < end; i++ {
		t := q.tokens[i]
		switch {
		case t.depth > 0:
		case t.text == "*" && (i == begin || q.tokens[i-1].text == "."), t.text == ",":
			return "", errors.New("want one column as the result")
		case t.is("as") && last == end:
			last = i
		}
	}
	if n := last - 1; last == end && n > begin && q.tokens[n].named() && q.tokens[n].depth == 0 && !q.tokens[n].is("end") {
		if before := q.tokens[n-1]; before.named() || before.quoted() || before.text == ")" {
			last = n
		}
	}
	if last <= begin {
		return "", errors.New("want one column as the result")
	}
	return q.part(begin, last), nil
}
