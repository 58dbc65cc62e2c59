package preset

import (
	"errors"
	"fmt"
	"strings"

	"blockd/lists"
	"blockd/sources/mirror"
)

// amavisQuery reads the tables of amavisd-new, README.sql-pg and README.sql-mysql. A recipient "@." is every recipient.
// Any other recipient's row that does not refuse keeps that recipient from a refusal for all: amavisd-new takes the row of
// the most specific recipient.
const amavisQuery = `select %[1]s as entry, w.wb as action, concat(w.rid, '/', w.sid) as id
from wblist w join mailaddr m on m.id = w.sid join users u on u.id = w.rid
where u.email = '@.' or upper(substr(coalesce(w.wb, ''), 1, 1)) not in ('B', 'N')`

func ofAmavis(kind string) (*Preset, error) {
	if err := wantSQL("amavis:wblist", kind, "postgres", "mysql", "sqlite"); err != nil {
		return nil, err
	}
	p := &Preset{Query: fmt.Sprintf(amavisQuery, "m.email"), items: amavisItems}
	if kind == "postgres" { // the column is bytea or varchar; as text the first one is in hexadecimal digits
		p.Query = fmt.Sprintf(amavisQuery, "m.email::text")
		p.items = func(row *mirror.Row, subdomains *bool) []lists.Item {
			row.Entry = PlainText(row.Entry)
			return amavisItems(row, subdomains)
		}
	}
	return p, nil
}

// amavisItems reads a key of an amavisd-new lookup (README.lookups): user@example.com, @example.com for the name
// alone, @.example.com for it and all below. Web interfaces add user@* and addresses of clients.
func amavisItems(row *mirror.Row, _ *bool) []lists.Item {
	key, below := row.Entry, true
	settings := lists.Settings{Subdomains: &below}
	name, tree := strings.CutPrefix(key, "@.")
	local, anywhere := strings.CutSuffix(key, "@*")
	switch {
	case key == "@.":
		return refused(key, lists.TooBroad, "this covers every sender")
	case tree:
		key = name
	case anywhere:
		key = local + "@"
	}
	it, err := lists.ParseEntry(key, settings)
	switch {
	case err != nil:
		return ofEntryError(row.Entry, err)
	case it.Kind == lists.Domain && !strings.Contains(row.Entry, "@"):
		return refused(row.Entry, lists.Syntax, "no key of amavisd-new; all senders of a name are @NAME, with those below @.NAME")
	}
	if !strings.HasPrefix(strings.ToUpper(row.Action), "B") && !strings.HasPrefix(strings.ToUpper(row.Action), "N") {
		it.Action = lists.Allow
	}
	it.Line = 1
	return []lists.Item{it}
}

// ofEntryError is the row of a text that is no entry.
func ofEntryError(text string, err error) []lists.Item {
	if e, ok := errors.AsType[*lists.EntryError](err); ok {
		return refused(text, e.Class, e.Message)
	}
	return refused(text, lists.Syntax, err.Error())
}
