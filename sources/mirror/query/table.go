package query

import (
	"fmt"
	"regexp"
	"strings"
)

// Table is the table that the triggers of a log belong to, as SQL writes it, where triggers see a row at a time.
type Table struct {
	Name   string // of the table
	Entry  string // the column of entries
	Owner  string // and of their owners, in a list per recipient; "" in others
	List   string // the list's name, in quotes
	Prefix string // of the names of triggers
}

var unsafe = regexp.MustCompile(`[^A-Za-z0-9]+`)

// Table finds what the triggers belong to. The error is a sentence for people.
func (o *Options) Table() (t Table, err error) {
	f, err := FormOf(o.Query)
	if err != nil {
		return t, err
	}
	t = Table{
		Name:   f.Table,
		List:   "'" + strings.ReplaceAll(o.List, "'", "''") + "'",
		Prefix: "blockd_" + strings.Trim(unsafe.ReplaceAllString(o.List, "_"), "_"),
	}
	if t.Entry, err = f.column("entry", f.Entry); err == nil && o.PerRecipient {
		t.Owner, err = f.column("owner", f.Owner)
	}
	return t, err
}

// column is the column that an expression is.
func (f *Form) column(name, expression string) (string, error) {
	column := strings.TrimPrefix(expression, f.Alias+".")
	all, err := tokens(column)
	switch {
	case expression == "":
		return "", fmt.Errorf("the query selects no column named %s; the triggers of this list want it", name)
	case err != nil || len(all) != 1 || !all[0].isName():
		return "", fmt.Errorf("the query makes %s of an expression (%.80s), and triggers of this database log columns alone; "+
			"select a column, perhaps a generated one, or take changes = \"watermark\" or \"none\"", name, expression)
	}
	return column, nil
}
