package owners

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// dump is a dump that is read, token by token.
type dump struct {
	text    string
	at      int
	line    int
	escapes bool // "\" escapes in strings, as in MySQL
}

// token is a word, a string, a number, or one sign.
type token struct {
	kind byte // 'w' = word or number, 's' = string, 'n' = name in quotes, 0 = the end, or the sign itself
	text string
}

func (t token) word(w string) bool { return t.kind == 'w' && strings.EqualFold(t.text, w) }

// ends reports whether no more of a statement comes.
func (t token) ends() bool { return t.kind == 0 || t.kind == ';' }

var errCut = errors.New("the dump ends within a statement")

// parseDump reads CREATE TABLE, INSERT and COPY of the tables that all has, and passes over everything else.
func parseDump(text string, all map[string]*table) error {
	head := text[:min(len(text), 4096)]
	d := &dump{text: text, line: 1, escapes: strings.Contains(head, "MySQL dump") || strings.Contains(head, "MariaDB dump") || strings.Contains(text, "`")}
	for {
		t, err := d.next()
		if err != nil || t.kind == 0 {
			return err
		}
		line := d.line
		switch {
		case t.word("create"):
			t, err = d.create(all)
		case t.word("insert"), t.word("replace"):
			t, err = d.insert(all)
		case t.word("copy"):
			t, err = token{kind: ';'}, d.copyFrom(all)
		}
		if err == nil && !t.ends() {
			_, err = d.seek()
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}

// seek passes over tokens up to one of some words, or to the end of the statement.
func (d *dump) seek(words ...string) (t token, err error) {
	for t, err = d.next(); err == nil && !t.ends() && !slices.ContainsFunc(words, t.word); {
		t, err = d.next()
	}
	return t, err
}

// name reads the name of a table, perhaps after IF NOT EXISTS or that of its schema, and gives the token behind it.
func (d *dump) name() (string, token, error) {
	name, err := d.next()
	for err == nil && (name.word("if") || name.word("not") || name.word("exists")) {
		name, err = d.next()
	}
	t := token{}
	if err == nil {
		t, err = d.next()
	}
	for err == nil && t.kind == '.' {
		if name, err = d.next(); err == nil {
			t, err = d.next()
		}
	}
	return strings.ToLower(name.text), t, err
}

// group reads what stands between an open parenthesis and its end, cut at the commas.
func (d *dump) group() (items [][]token, err error) {
	var item []token
	for depth := 1; ; {
		t, err := d.next()
		switch {
		case err != nil:
			return nil, err
		case t.kind == 0:
			return nil, errCut
		case t.kind == '(':
			depth++
		case t.kind == ')':
			depth--
		}
		switch {
		case depth == 0:
			return append(items, item), nil
		case depth == 1 && t.kind == ',':
			items, item = append(items, item), nil
		default:
			item = append(item, t)
		}
	}
}

// names are those that the items of a group begin with, but for what is no column of CREATE TABLE.
func names(items [][]token) (all []string) {
	constraints := []string{"primary", "unique", "key", "index", "constraint", "foreign", "check", "fulltext", "spatial", "exclude"}
	for _, item := range items {
		if len(item) > 0 && (item[0].kind == 'n' || item[0].kind == 'w' && !slices.ContainsFunc(constraints, item[0].word)) {
			all = append(all, item[0].text)
		}
	}
	return all
}

// create reads what follows CREATE, and gives the last token.
func (d *dump) create(all map[string]*table) (token, error) {
	t, err := d.next()
	for err == nil && (t.word("temporary") || t.word("temp") || t.word("unlogged")) {
		t, err = d.next()
	}
	if err == nil && t.word("trigger") {
		for err == nil && t.kind != 0 && !t.word("end") { // its statements are none of the dump's
			t, err = d.next()
		}
	}
	if err != nil || !t.word("table") {
		return t, err
	}
	name, t, err := d.name()
	if err == nil && all[name] != nil && t.kind == '(' {
		var columns [][]token
		if columns, err = d.group(); err == nil {
			all[name].is(names(columns))
		}
	}
	return t, err
}

// is notes the columns of a table, once.
func (t *table) is(columns []string) {
	if t.columns == nil {
		t.columns = columns
	}
}

// insert reads what follows INSERT, and gives the last token.
func (d *dump) insert(all map[string]*table) (token, error) {
	t, err := d.seek("into")
	if err != nil || t.ends() {
		return t, err
	}
	name, t, err := d.name()
	target := all[name]
	if err != nil || target == nil {
		return t, err
	}
	columns := target.columns
	if t.kind == '(' {
		var items [][]token
		if items, err = d.group(); err == nil {
			columns = names(items)
		}
	}
	if err == nil && !t.word("values") && !t.ends() { // OVERRIDING SYSTEM VALUE
		t, err = d.seek("values")
	}
	if err != nil {
		return t, err
	}
	if t.ends() || columns == nil {
		return t, fmt.Errorf("rows of %s whose columns the dump does not name", name)
	}
	target.is(columns)
	for {
		t, err := d.next()
		if err == nil && t.kind == ',' {
			continue
		}
		if err != nil || t.kind != '(' {
			return t, err
		}
		line := d.line
		items, err := d.group()
		if err != nil {
			return t, err
		}
		values := make([]string, len(items))
		for i, item := range items {
			values[i] = value(item)
		}
		if err := target.add(name, line, columns, values); err != nil {
			return t, err
		}
	}
}

// add takes a row of values of some columns.
func (t *table) add(name string, line int, columns, values []string) error {
	if len(values) != len(columns) {
		return fmt.Errorf("a row of %s with %d values in line %d, want %d", name, len(values), line, len(columns))
	}
	row := tableRow{line, make([]string, len(t.columns))}
	for i, c := range columns {
		if to := t.column(c); to >= 0 {
			row.values[to] = values[i]
		}
	}
	if t.rows = append(t.rows, row); len(t.rows) > 4*maxEntries {
		return fmt.Errorf("%w: more than %d rows in a table", ErrTooBig, 4*maxEntries)
	}
	return nil
}

// value is that of an item of a row. NULL is "", and 0x… the octets that it is.
func value(item []token) string {
	var b strings.Builder
	for _, t := range item {
		switch {
		case t.kind == 's' || t.kind == 'n':
			b.WriteString(t.text)
		case t.word("null") || t.kind == 'w' && strings.HasPrefix(t.text, "_"): // a character set
		case t.kind == 'w':
			text := t.text
			if octets, err := hex.DecodeString(strings.TrimPrefix(text, "0x")); err == nil && strings.HasPrefix(text, "0x") {
				text = string(octets)
			}
			b.WriteString(text)
		case t.kind == '-':
			b.WriteByte('-')
		}
	}
	return b.String()
}

// copyFrom reads COPY table (columns) FROM stdin; and its lines.
func (d *dump) copyFrom(all map[string]*table) error {
	name, t, err := d.name()
	var items [][]token
	if err == nil && t.kind == '(' {
		items, err = d.group()
	}
	if err == nil {
		_, err = d.seek()
	}
	if err != nil {
		return err
	}
	d.rest() // of the line
	columns, target := names(items), all[name]
	if target != nil && columns != nil {
		target.is(columns)
	}
	for d.at < len(d.text) {
		number, line := d.line, d.rest()
		if line == `\.` {
			return nil
		}
		if target == nil {
			continue
		}
		values := strings.Split(line, "\t")
		for i, v := range values {
			if values[i] = copied.Replace(v); v == `\N` {
				values[i] = ""
			}
		}
		if err := target.add(name, number, columns, values); err != nil {
			return err
		}
	}
	return errCut
}

// copied reads a value as COPY has it.
var copied = strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n", `\r`, "\r")

// rest takes the rest of a line.
func (d *dump) rest() string {
	line, _, found := strings.Cut(d.text[d.at:], "\n")
	if d.at += len(line); found {
		d.at++
		d.line++
	}
	return strings.TrimSuffix(line, "\r")
}
