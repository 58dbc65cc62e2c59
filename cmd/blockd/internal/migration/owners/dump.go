package owners

import (
	"fmt"
	"strings"

	"blockd/sources/mirror"
)

// A table is what a dump has of one that is wanted.
type table struct {
	columns []string
	rows    []tableRow
}

type tableRow struct {
	line   int
	values []string
}

// column is where a column is; -1 = nowhere.
func (t *table) column(name string) int {
	for i, c := range t.columns {
		if strings.EqualFold(c, name) {
			return i
		}
	}
	return -1
}

// need are the tables and columns of each program.
var need = map[string]map[string][]string{
	"amavis":           {"users": {"id", "email"}, "mailaddr": {"id", "email"}, "wblist": {"rid", "sid", "wb"}},
	"spamassassin-sql": {"userpref": {"username", "preference", "value"}},
	"mailcow":          {"filterconf": {"object", "option", "value"}},
}

// readDump gives the rows of a dump in SQL, of mysqldump, pg_dump or SQLite's .dump, as the query of the program's
// tables would.
func readDump(program string, data []byte, yield func(line int, owner string, row mirror.Row) error) error {
	all := map[string]*table{}
	for name := range need[program] {
		all[name] = &table{}
	}
	if err := parseDump(string(data), all); err != nil {
		return err
	}
	for name, columns := range need[program] {
		t := all[name]
		if t.columns == nil {
			return fmt.Errorf("%w: it has no table %s", errNoTables, name)
		}
		for _, c := range columns {
			if t.column(c) < 0 {
				return fmt.Errorf("%w: its table %s has no column %s", errNoTables, name, c)
			}
		}
	}
	switch program {
	case "amavis":
		return joinAmavis(all, yield)
	case "mailcow":
		return each(all["filterconf"], "object", "value", "option", func(option string) bool { return option == "blacklist_from" || option == "whitelist_from" }, yield)
	}
	return each(all["userpref"], "username", "value", "preference", func(word string) bool {
		word = strings.ToLower(word)
		return strings.Contains(word, "list_from") || strings.Contains(word, "list_auth")
	}, yield)
}

// each gives the rows of one table whose action is wanted.
func each(t *table, owner, entry, action string, wanted func(string) bool, yield func(int, string, mirror.Row) error) error {
	o, e, a := t.column(owner), t.column(entry), t.column(action)
	for _, row := range t.rows {
		if !wanted(row.values[a]) {
			continue
		}
		if err := yield(row.line, row.values[o], mirror.Row{Entry: row.values[e], Action: row.values[a], ID: row.values[o]}); err != nil {
			return err
		}
	}
	return nil
}

func joinAmavis(all map[string]*table, yield func(int, string, mirror.Row) error) error {
	byID := func(t *table) map[string]string {
		emails, id, email := map[string]string{}, t.column("id"), t.column("email")
		for _, row := range t.rows {
			emails[row.values[id]] = row.values[email]
		}
		return emails
	}
	users, senders := byID(all["users"]), byID(all["mailaddr"])
	t := all["wblist"]
	rid, sid, wb := t.column("rid"), t.column("sid"), t.column("wb")
	for _, row := range t.rows {
		r, s := row.values[rid], row.values[sid]
		owner, known := users[r]
		sender, listed := senders[s]
		if !known || !listed {
			continue // a row without its user or sender is none for amavisd-new either
		}
		if err := yield(row.line, owner, mirror.Row{Entry: sender, Action: row.values[wb], ID: r + "/" + s}); err != nil {
			return err
		}
	}
	return nil
}
