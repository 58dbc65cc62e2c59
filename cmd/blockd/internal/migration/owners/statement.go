package owners

import (
	"encoding/hex"
	"errors"
	"fmt"
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

// parseDump reads CREATE TABLE, INSERT and COPY of the tables that all has, and passes over everything else.
func parseDump(text string, all map[string]*table) error {
	d := &dump{text: text, line: 1, escapes: strings.Contains(text[:min(len(text), 4096)], "MySQL dump") || strings.Contains(text[:min(len(text), 4096)], "MariaDB dump") || strings.Contains(text, "`")}
	for {
		t, err := d.next()
		if err != nil || t.kind == 0 {
			return err
		}
		line := d.line
		switch {
		case t.word("create"):
			err = d.create(all)
		case t.word("insert"), t.word("replace"):
			err = d.insert(all)
		case t.word("copy"):
			err = d.copyFrom(all)
		case t.kind != ';':
			err = d.skip()
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
}

// skip passes over the rest of a statement.
func (d *dump) skip() error {
	for {
		if t, err := d.next(); err != nil || t.kind == 0 || t.kind == ';' {
			return err
		}
	}
}

// name reads the name of a table, perhaps after that of its schema, and gives the token behind it.
func (d *dump) name() (string, token, error) {
	name, err := d.next()
	if err != nil {
		return "", name, err
	}
	t, err := d.next()
	for err == nil && t.kind == '.' {
		if name, err = d.next(); err == nil {
			t, err = d.next()
		}
	}
	return strings.ToLower(name.text), t, err
}

func (d *dump) create(all map[string]*table) error {
	t, err := d.next()
	for err == nil && (t.word("temporary") || t.word("unlogged") || t.word("if") || t.word("not") || t.word("exists") || t.word("table")) {
		if t.word("table") {
			break
		}
		t, err = d.next()
	}
	if err == nil && t.word("trigger") {
		for err == nil && t.kind != 0 && !t.word("end") { // its statements are none of the dump's
			t, err = d.next()
		}
	}
	if err != nil || !t.word("table") {
		return d.leave(t, err)
	}
	back := *d
	for { // IF NOT EXISTS
		t, err := d.next()
		if err != nil || !t.word("if") && !t.word("not") && !t.word("exists") {
			break
		}
		back = *d
	}
	*d = back
	name, open, err := d.name()
	target := all[name]
	if err != nil || target == nil || open.kind != '(' {
		return d.leave(open, err)
	}
	var columns []string
	depth, first := 1, true
	for depth > 0 {
		t, err := d.next()
		switch {
		case err != nil:
			return err
		case t.kind == 0:
			return errCut
		case t.kind == '(':
			depth++
		case t.kind == ')':
			depth--
		case t.kind == ',' && depth == 1:
			first = true
			continue
		case first && depth == 1 && (t.kind == 'n' || t.kind == 'w' && !constraint(t.text)):
			columns = append(columns, t.text)
		}
		first = false
	}
	if target.columns == nil {
		target.columns = columns
	}
	return d.skip()
}

// leave passes over the rest of a statement whose last token was t, unless there was an error.
func (d *dump) leave(t token, err error) error {
	if err != nil {
		return err
	}
	if t.kind == ';' || t.kind == 0 {
		return nil
	}
	return d.skip()
}

// constraint tells the words that begin a line of CREATE TABLE that is no column.
func constraint(word string) bool {
	switch strings.ToLower(word) {
	case "primary", "unique", "key", "index", "constraint", "foreign", "check", "fulltext", "spatial", "exclude":
		return true
	}
	return false
}

var errCut = errors.New("the dump ends within a statement")

func (d *dump) insert(all map[string]*table) error {
	t, err := d.next()
	for err == nil && !t.word("into") && t.kind != ';' && t.kind != 0 { // IGNORE, OR REPLACE
		t, err = d.next()
	}
	if err != nil || !t.word("into") {
		return err
	}
	name, t, err := d.name()
	target := all[name]
	if err != nil || target == nil {
		return d.leave(t, err)
	}
	columns := target.columns
	if t.kind == '(' {
		if columns, err = d.names(); err == nil {
			t, err = d.next()
		}
	}
	for err == nil && !t.word("values") && t.kind != ';' && t.kind != 0 { // OVERRIDING SYSTEM VALUE
		t, err = d.next()
	}
	if err != nil {
		return err
	}
	if !t.word("values") || columns == nil {
		return fmt.Errorf("rows of %s whose columns the dump does not name", name)
	}
	if target.columns == nil {
		target.columns = columns
	}
	order := make([]int, len(columns))
	for i, c := range columns {
		order[i] = target.column(c)
	}
	for {
		t, err := d.next()
		switch {
		case err != nil:
			return err
		case t.kind == ',':
			continue
		case t.kind != '(':
			return d.leave(t, nil)
		}
		line := d.line
		values, err := d.values()
		if err != nil {
			return err
		}
		if len(values) != len(columns) {
			return fmt.Errorf("a row of %s with %d values, want %d", name, len(values), len(columns))
		}
		if err := target.add(line, order, values); err != nil {
			return err
		}
	}
}

// add takes a row whose values are in an order of columns.
func (t *table) add(line int, order []int, values []string) error {
	row := tableRow{line, make([]string, len(t.columns))}
	for i, to := range order {
		if to >= 0 {
			row.values[to] = values[i]
		}
	}
	if t.rows = append(t.rows, row); len(t.rows) > 4*maxEntries {
		return fmt.Errorf("%w: more than %d rows in a table", ErrTooBig, 4*maxEntries)
	}
	return nil
}

// names reads names up to the closing parenthesis.
func (d *dump) names() (names []string, err error) {
	for {
		t, err := d.next()
		switch {
		case err != nil:
			return nil, err
		case t.kind == 0:
			return nil, errCut
		case t.kind == ')':
			return names, nil
		case t.kind == 'w' || t.kind == 'n':
			names = append(names, t.text)
		}
	}
}

// values reads the values of a row up to its closing parenthesis. NULL is "".
func (d *dump) values() (values []string, err error) {
	var value strings.Builder
	depth, any := 0, false
	for {
		t, err := d.next()
		switch {
		case err != nil:
			return nil, err
		case t.kind == 0:
			return nil, errCut
		case t.kind == ',' && depth == 0, t.kind == ')' && depth == 0:
			if any || t.kind == ',' || len(values) > 0 {
				values = append(values, value.String())
			}
			value.Reset()
			if t.kind == ')' {
				return values, nil
			}
			any = false
			continue
		case t.kind == '(':
			depth++
		case t.kind == ')':
			depth--
		case t.kind == 's' || t.kind == 'n':
			value.WriteString(t.text)
		case t.word("null") || t.kind == 'w' && strings.HasPrefix(t.text, "_"): // a character set
		case t.kind == 'w':
			value.WriteString(number(t.text))
		case t.kind == '-':
			value.WriteByte('-')
		}
		any = true
	}
}

// number gives 0x… as the octets that it is.
func number(text string) string {
	if digits, ok := strings.CutPrefix(text, "0x"); ok {
		if octets, err := hex.DecodeString(digits); err == nil {
			return string(octets)
		}
	}
	return text
}

// copyFrom reads COPY table (columns) FROM stdin; and its lines.
func (d *dump) copyFrom(all map[string]*table) error {
	name, t, err := d.name()
	var columns []string
	if err == nil && t.kind == '(' {
		columns, err = d.names()
	}
	if err == nil {
		err = d.skip()
	}
	if err != nil {
		return err
	}
	d.rest() // of the line
	target := all[name]
	if target != nil && columns != nil && target.columns == nil {
		target.columns = columns
	}
	order := make([]int, len(columns))
	for i, c := range columns {
		if order[i] = -1; target != nil {
			order[i] = target.column(c)
		}
	}
	for d.at < len(d.text) {
		number := d.line
		line := d.rest()
		if line == `\.` {
			return nil
		}
		if target == nil {
			continue
		}
		values := strings.Split(line, "\t")
		if len(values) != len(columns) {
			return fmt.Errorf("a row of %s with %d values in line %d, want %d", name, len(values), number, len(columns))
		}
		for i, v := range values {
			values[i] = copied(v)
		}
		if err := target.add(number, order, values); err != nil {
			return err
		}
	}
	return errCut
}

// rest takes the rest of a line.
func (d *dump) rest() string {
	line, _, found := strings.Cut(d.text[d.at:], "\n")
	if d.at += len(line); found {
		d.at++
		d.line++
	}
	return strings.TrimSuffix(line, "\r")
}

// copied reads a value as COPY has it.
func copied(v string) string {
	if v == `\N` {
		return ""
	}
	if !strings.Contains(v, `\`) {
		return v
	}
	return strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n", `\r`, "\r").Replace(v)
}
