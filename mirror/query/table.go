package query

import (
	"regexp"
	"strings"
)

// Table is the table that the triggers of a log belong to, as SQL writes it.
type Table struct {
	Name    string // of the table
	Entry   string // the column of entries
	List    string // the list's name, in quotes
	Prefix  string // of the names of triggers
	Guessed bool   // the query does not tell table and column: Name and Entry are words to be replaced
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
	parts := simple.FindStringSubmatch(strings.TrimSpace(o.Query))
	if parts == nil || several.MatchString(o.Query) || strings.Contains(strings.ToLower(parts[1]), "select") {
		return t
	}
	for column := range strings.SplitSeq(parts[1], ",") {
		c := selected.FindStringSubmatch(strings.TrimSpace(column))
		if c == nil {
			continue
		}
		name := c[2]
		if name == "" {
			name = strings.Trim(c[1], "\"`")
		}
		if strings.EqualFold(name, "entry") {
			t.Name, t.Entry, t.Guessed = parts[2], c[1], false
		}
	}
	return t
}
