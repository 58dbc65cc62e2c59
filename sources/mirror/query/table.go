package query

import (
	"fmt"
	"regexp"
	"strings"
)

// Table is the table that the triggers of a log belong to, as SQL writes it.
type Table struct {
	Name    string // of the table
	Entry   string // the column of entries
	Owner   string // and of their owners, in a list per recipient; "" in others
	List    string // the list's name, in quotes
	Prefix  string // of the names of triggers
	Guessed bool   // the query does not tell table and columns: Name, Entry and Owner are words to be replaced
}

var (
	// simple is a query of one table.
	simple = regexp.MustCompile("(?is)^select\\s+(.+?)\\s+from\\s+([\\w.$\"`]+)(?:\\s+(?:as\\s+)?(\\w+))?\\s*(?:\\s(?:where|order)\\s.*)?$")

	// selected is a column, with the name of its table and another name.
	selected = regexp.MustCompile("(?is)^(?:\\w+\\.)?([\\w$\"`]+)(?:\\s+(?:as\\s+)?[\"`]?(\\w+)[\"`]?)?$")

	// several are words of a query whose rows are not those of one table.
	several = regexp.MustCompile(`(?i)\b(join|union|intersect|except|group|having|limit)\b`)

	unsafe = regexp.MustCompile(`[^A-Za-z0-9]+`)
)

// Table finds what the triggers belong to, if the query is a plain one.
func (o *Options) Table() Table {
	t := Table{
		Name: "TABLE_NAME", Entry: "ENTRY_COLUMN", Guessed: true,
		List:   "'" + strings.ReplaceAll(o.List, "'", "''") + "'",
		Prefix: "blockd_" + strings.Trim(unsafe.ReplaceAllString(o.List, "_"), "_"),
	}
	if o.PerRecipient {
		t.Owner = "OWNER_COLUMN"
	}
	parts := simple.FindStringSubmatch(strings.TrimSpace(o.Query))
	if parts == nil || several.MatchString(o.Query) || strings.Contains(strings.ToLower(parts[1]), "select") {
		return t
	}
	found := map[string]string{}
	for column := range strings.SplitSeq(parts[1], ",") {
		c := selected.FindStringSubmatch(strings.TrimSpace(column))
		if c == nil {
			continue
		}
		name := c[2]
		if name == "" {
			name = strings.Trim(c[1], "\"`")
		}
		found[strings.ToLower(name)] = c[1]
	}
	entry, owner := found["entry"], found["owner"]
	if entry == "" || o.PerRecipient && owner == "" {
		return t
	}
	t.Name, t.Entry, t.Guessed = parts[2], entry, false
	if o.PerRecipient {
		t.Owner = owner
	}
	return t
}

// Words is the comment for people about the words of a Table that is Guessed.
func (t Table) Words() string {
	if t.Owner != "" {
		return fmt.Sprintf("-- %s is the table with the entries, %s its column of them, and %s that of their owners: put their names here.\n", t.Name, t.Entry, t.Owner)
	}
	return fmt.Sprintf("-- %s is the table with the entries, and %s its column of them: put their names here.\n", t.Name, t.Entry)
}
