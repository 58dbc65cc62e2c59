package query

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"blockd/sources/mirror"
)

// Form is a query whose rows are those of one table, each with an entry that is made of its row alone: what triggers
// can log.
type Form struct {
	Table string   // as the query names it
	Alias string   // by which expressions name it
	Path  []string // what Table says without quotes: its own name, perhaps behind that of its schema
	Entry string   // what of a row is the entry, as an expression
	Owner string   // whose it is; "" = the query does not say
}

// token is a word, a number, a text or a sign of SQL, and where it ends.
type token struct {
	text     string
	kind     byte // 'w' a word, 'q' a name in quotes, 's' a text, 'n' a number, or the sign
	from, to int
}

// is reports whether a token is one of these words.
func (t token) is(words ...string) bool {
	return t.kind == 'w' && slices.Contains(words, strings.ToLower(t.text))
}

func (t token) isName() bool { return t.kind == 'w' && !t.is(reserved...) || t.kind == 'q' }

// name is a name without its quotes.
func (t token) name() string {
	if t.kind == 'q' {
		return t.text[1 : len(t.text)-1]
	}
	return t.text
}

// reserved are words that are no name where one may stand.
var reserved = strings.Fields(`and as asc between by case collate cross desc distinct else end except exists fetch for from full group having in inner
	intersect into is isnull join lateral left like ilike limit minus natural not notnull null offset on or order outer over qualify regexp right rlike
	select similar straight_join tablesample then union using when where window with filter within`)

// combined are words of queries whose rows are not those of one table, one by one.
var combined = []string{"join", "union", "intersect", "except", "minus", "group", "having", "limit", "offset", "fetch", "window", "lateral",
	"tablesample", "into", "qualify", "straight_join", "natural", "cross"}

// aggregates make one row of many.
var aggregates = []string{"count", "sum", "avg", "min", "max", "string_agg", "array_agg", "group_concat", "json_agg", "jsonb_agg", "json_group_array", "any_value", "bool_and", "bool_or",
	"every", "total", "row_number", "rank"}

// FormOf reads a query. The error is a sentence for people; it says which form is understood.
func FormOf(text string) (f Form, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("the query %w; triggers can log a query of the form SELECT COLUMN AS entry, … FROM TABLE [WHERE …]; for another one take changes = \"watermark\" or \"none\"", err)
		}
	}()
	text = Text(text)
	all, err := tokens(text)
	if err != nil {
		return f, err
	}
	if len(all) == 0 || !all[0].is("select") {
		return f, fmt.Errorf("does not begin with select")
	}
	depth, from, after := 0, -1, len(all)
	for i, t := range all[1:] {
		i++
		switch {
		case t.kind == '(' || t.kind == '[':
			depth++
		case t.kind == ')' || t.kind == ']':
			depth--
		case t.kind == ';':
			return f, fmt.Errorf("is more than one statement")
		case t.is("select", "values", "table", "with"):
			return f, fmt.Errorf("reads more than one table (%s within it)", strings.ToLower(t.text))
		case t.is(combined...), t.is("for") && depth == 0, t.is("over"), called(all, i, "filter", "within"):
			return f, fmt.Errorf("has %s, so that its rows are not those of one table", strings.ToLower(t.text))
		case called(all, i, aggregates...):
			return f, fmt.Errorf("has %s(), which makes one row of many", strings.ToLower(t.text))
		case depth == 0 && t.is("from") && from < 0:
			from = i
		case depth == 0 && t.is("where", "order") && from >= 0:
			after = min(after, i)
		}
		if depth < 0 {
			return f, fmt.Errorf("closes a bracket that it has not opened")
		}
	}
	switch {
	case depth != 0:
		return f, fmt.Errorf("does not close a bracket")
	case from < 0:
		return f, fmt.Errorf("has no from")
	}
	path, err := f.table(all[from+1:after], text)
	if err != nil {
		return f, err
	}
	return f, f.items(all[1:from], text, path)
}

// Functions whose value changes while the rows do not. The first ones are values by themselves, the second ones with a
// bracket behind them, the third ones with one that is closed at once.
var (
	clocks      = strings.Fields("current_timestamp current_date current_time localtime localtimestamp")
	clockCalls  = strings.Fields("now sysdate curdate curtime utc_timestamp utc_date utc_time clock_timestamp statement_timestamp transaction_timestamp timeofday random rand age")
	clockByArgs = strings.Fields("date datetime julianday time unix_timestamp unixepoch")
)

// Texts that are times of their own, where a time is read: what stands before them there, and the functions that read
// one, beside those whose names begin with date and time.
var (
	clockTexts   = strings.Fields("now today tomorrow yesterday")
	clockTypes   = strings.Fields("date time timestamp timestamptz timetz zone between")
	clockReaders = strings.Fields("julianday unixepoch strftime")
)

// Timed gives the first thing in a query that makes its rows come and go by the time alone, as "where valid_until >
// now()" does; "" if there is none that can be seen. What a function or a view of the database does cannot be.
func Timed(text string) string {
	all, err := tokens(Text(text))
	if err != nil {
		return ""
	}
	readers := []bool{false} // of the brackets that are open: whether what they are of reads a time
	for i, t := range all {
		text := strings.ToLower(t.text)
		before, next := token{}, func(kind byte) bool { return i+1 < len(all) && all[i+1].kind == kind }
		if i > 0 {
			before = all[i-1]
		}
		column := before.kind == '.' || next('.')
		switch {
		case t.kind == '(':
			name := strings.ToLower(before.text)
			reads := before.kind == 'w' && (strings.HasPrefix(name, "date") || strings.HasPrefix(name, "time") || slices.Contains(clockReaders, name))
			readers = append(readers, reads || readers[len(readers)-1] && !before.is("in"))
		case t.kind == ')' && len(readers) > 1:
			readers = readers[:len(readers)-1]
		case t.kind == 's' && clockText(text):
			var earlier token
			if i > 1 {
				earlier = all[i-2]
			}
			ordered := before.kind == '<' || before.kind == '>' && earlier.kind != '<' || before.kind == '=' && (earlier.kind == '<' || earlier.kind == '>') ||
				before.is("and") && i > 2 && all[i-3].is("between")
			cast := i+2 < len(all) && all[i+1].is("as") && all[i+2].is(clockTypes...)
			if next(':') || cast || ordered || before.is(clockTypes...) || readers[len(readers)-1] {
				return text
			}
		case t.kind != 'w' || column:
		case slices.Contains(clocks, text), next('(') && slices.Contains(clockCalls, text):
			return text
		case next('(') && i+2 < len(all) && all[i+2].kind == ')' && slices.Contains(clockByArgs, text):
			return text + "()"
		}
	}
	return ""
}

// clockText reports whether a text in its quotes is a time that goes on, perhaps with an hour behind it.
func clockText(text string) bool {
	words := strings.Fields(strings.Trim(text, "'"))
	return len(words) > 0 && slices.Contains(clockTexts, words[0])
}

// Followed is the *mirror.Unlogged of a query whose rows come and go by the time, so that no log and no watermark
// tells of it; nil of any other.
func Followed(text, list string) error {
	word := Timed(text)
	if word == "" {
		return nil
	}
	return &mirror.Unlogged{Why: fmt.Sprintf("the query has %s, so that rows come and go without a change of the table", word),
		Hint: "select the end of a row as expires and leave its condition out, or take changes = \"none\" for list " + list}
}

// called reports whether a token is one of these words, with a bracket behind it.
func called(all []token, i int, words ...string) bool {
	return all[i].is(words...) && i+1 < len(all) && all[i+1].kind == '('
}

// table reads what stands between from and where.
func (f *Form) table(all []token, text string) (path []string, err error) {
	i := 0
	for ; i < len(all) && all[i].isName(); i += 2 {
		path = append(path, all[i].name())
		if i+1 >= len(all) || all[i+1].kind != '.' {
			i++
			break
		}
	}
	if len(path) == 0 || all[0].is("only") || i > len(all) {
		return nil, fmt.Errorf("does not read a table by its name")
	}
	f.Table, f.Alias, f.Path = text[all[0].from:all[i-1].to], all[i-1].text, path
	rest := all[i:]
	if len(rest) > 0 && rest[0].is("as") {
		if rest = rest[1:]; len(rest) == 0 {
			return nil, fmt.Errorf("has no name behind as")
		}
	}
	if len(rest) > 0 && rest[0].isName() {
		f.Alias, path, rest = rest[0].text, []string{rest[0].name()}, rest[1:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("has %s behind the table, and what that means for its rows is not known here", text[rest[0].from:rest[0].to])
	}
	return path, nil
}

// items reads what is selected. path is how columns may name the table.
func (f *Form) items(all []token, text string, path []string) error {
	for len(all) > 0 && all[0].is("distinct", "all") {
		if all = all[1:]; len(all) > 0 && all[0].is("on") {
			return fmt.Errorf("has distinct on, so that a row hides others")
		}
	}
	star := false
	found := map[string]string{}
	for len(all) > 0 {
		depth, end := 0, 0
		for ; end < len(all) && (all[end].kind != ',' || depth > 0); end++ {
			switch all[end].kind {
			case '(', '[':
				depth++
			case ')', ']':
				depth--
			}
		}
		item := all[:end]
		all = all[min(end+1, len(all)):]
		if len(item) == 0 {
			return fmt.Errorf("has nothing between two commas")
		}
		if last := item[len(item)-1]; last.kind == '*' && (len(item) == 1 || item[len(item)-2].kind == '.') {
			star = true
			continue
		}
		expression, name := named(item)
		if name = strings.ToLower(name); name != "entry" && name != "owner" {
			continue
		}
		if _, twice := found[name]; twice {
			return fmt.Errorf("has two columns %s", name)
		}
		var err error
		if found[name], err = f.rewritten(expression, text, path); err != nil {
			return err
		}
	}
	f.Entry, f.Owner = found["entry"], found["owner"]
	if f.Entry == "" && star {
		f.Entry = "entry"
	}
	if f.Owner == "" && star {
		f.Owner = "owner"
	}
	if f.Entry == "" {
		return fmt.Errorf("selects no column named entry")
	}
	return nil
}

// named parts an item into its expression and the name that the result has for it; "" = one that only the database
// knows.
func named(item []token) (expression []token, name string) {
	depth := 0
	for i, t := range item {
		switch {
		case t.kind == '(' || t.kind == '[':
			depth++
		case t.kind == ')' || t.kind == ']':
			depth--
		case depth == 0 && i > 0 && i == len(item)-2 && t.is("as"):
			return item[:i], item[i+1].name()
		}
	}
	if n := len(item); n > 1 && item[n-1].isName() {
		switch before := item[n-2]; {
		case before.kind == 'q', before.kind == 's', before.kind == 'n', before.kind == ')', before.kind == ']', before.is("end", "null", "notnull", "isnull"), before.isName():
			return item[:n-1], item[n-1].name()
		}
	}
	// A column keeps its name behind a cast, and behind an order of its letters.
	i := 0
	for i < len(item) && item[i].isName() {
		if name = item[i].name(); i+1 >= len(item) || item[i+1].kind != '.' {
			i++
			break
		}
		i += 2
	}
	if i < len(item) && item[i].kind != ':' && !item[i].is("collate") {
		name = ""
	}
	return item, name
}

// rewritten is an expression in which columns name the table by its alias alone, if they name it.
func (f *Form) rewritten(all []token, text string, path []string) (string, error) {
	var b strings.Builder
	at := all[0].from
	for i := 0; i < len(all); i++ {
		if !all[i].isName() || i > 0 && all[i-1].kind == '.' || i+1 >= len(all) || all[i+1].kind != '.' {
			continue
		}
		var names []string
		j := i
		for ; j+2 < len(all) && all[j+1].kind == '.' && all[j+2].isName(); j += 2 {
			names = append(names, all[j].name())
		}
		if len(names) == 0 || j+1 < len(all) && all[j+1].kind == '(' { // all of the row, or a function of a schema
			i = j
			continue
		}
		if len(names) > len(path) || !slices.EqualFunc(names, path[len(path)-len(names):], strings.EqualFold) {
			return "", fmt.Errorf("names %s, which is not the table that it reads", text[all[i].from:all[j].to])
		}
		b.WriteString(text[at:all[i].from] + f.Alias + ".")
		at, i = all[j].from, j
	}
	b.WriteString(text[at:all[len(all)-1].to])
	return b.String(), nil
}

// tokens cuts SQL up. Comments are no tokens.
func tokens(text string) (all []token, err error) {
	for i := 0; i < len(text); {
		c := text[i]
		end, kind := i+1, c
		switch {
		case strings.HasPrefix(text[i:], "--"):
			line := strings.IndexByte(text[i:], '\n')
			if line < 0 {
				return all, nil
			}
			i += line
			continue
		case strings.HasPrefix(text[i:], "/*"):
			comment, _, closed := strings.Cut(text[i+2:], "*/")
			if !closed || strings.HasPrefix(comment, "!") || strings.HasPrefix(comment, "M!") || strings.Contains(comment, "/*") {
				return nil, fmt.Errorf("has a comment that not all databases read alike")
			}
			i += len(comment) + 4
			continue
		case c <= ' ':
			i++
			continue
		case c == '\'' || c == '"' || c == '`':
			kind = map[byte]byte{'\'': 's', '"': 'q', '`': 'q'}[c]
			for ; end <= len(text); end++ {
				if end == len(text) {
					return nil, fmt.Errorf("does not close %c", c)
				}
				if strings.HasPrefix(text[end:], `\'`) {
					return nil, fmt.Errorf("has a backslash before a quote, which not all databases read alike")
				}
				if text[end] == c {
					if end++; end < len(text) && text[end] == c {
						continue
					}
					break
				}
			}
			if inner := text[i+1 : end-1]; kind == 'q' && (inner == "" || strings.ContainsAny(inner, "\"`")) {
				return nil, fmt.Errorf("has a name with quotes in it")
			}
		case c == '$':
			return nil, fmt.Errorf("has a $, which stands for a value or quotes a text")
		case c >= '0' && c <= '9':
			kind = 'n'
			for end < len(text) && (isWord(rune(text[end])) || text[end] == '.') {
				end++
			}
		case isWord(rune(c)) || c >= 0x80:
			kind = 'w'
			for end < len(text) && (isWord(rune(text[end])) || text[end] == '$' || text[end] >= 0x80) {
				end++
			}
		}
		all = append(all, token{text[i:end], kind, i, end})
		i = end
	}
	return all, nil
}

func isWord(r rune) bool {
	return r == '_' || r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r))
}
