package preset

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"blockd/lists"
	"blockd/sources/mirror"
)

// Owned is how the tables of another program are entries of recipients: each row has an owner.
type Owned struct {
	Query string // gives the columns owner, entry, action and id
	Kinds []string

	// owner reads the text of the column owner.
	owner func(text string) Owner
	items func(row *mirror.Row) []lists.Item
}

// Owner is whose entry a row is.
type Owner struct {
	Name     string // a mailbox, or a domain with all its mailboxes
	Everyone bool   // the row is for all recipients, and Name is ""
	Below    bool   // the row is for mailboxes of names below the domain too, which no owner is
}

// Programs are those that FindOwned knows.
var Programs = []string{"amavis", "spamassassin-sql", "mailcow"}

// amavisOwned, userprefOwned and filterconfOwned read the tables of which the queries for everyone are beside.
const (
	amavisOwned = `select u.email as owner, %s as entry, w.wb as action, concat(w.rid, '/', w.sid) as id
from wblist w join mailaddr m on m.id = w.sid join users u on u.id = w.rid`
	userprefOwned = `select username as owner, value as entry, preference as action, username as id from userpref
where lower(preference) like '%list_from%' or lower(preference) like '%list_auth%'`
	filterconfOwned = "select object as owner, value as entry, `option` as action, object as id from filterconf where `option` in ('blacklist_from', 'whitelist_from')"
)

// FindOwned gives the reading of a program's tables for a kind of source.
func FindOwned(program, kind string) (*Owned, error) {
	all := []string{"postgres", "mysql", "sqlite"}
	o := &Owned{Kinds: all}
	switch program {
	case "amavis":
		entry := "m.email"
		if kind == "postgres" { // the column is bytea or varchar
			entry = "m.email::text"
		}
		o.Query, o.owner, o.items = fmt.Sprintf(amavisOwned, entry), amavisOwner, amavisOwnedItems
	case "spamassassin-sql":
		o.Query, o.owner, o.items = userprefOwned, userprefOwner, func(row *mirror.Row) []lists.Item { return directive(row, nil) }
	case "mailcow":
		o.Kinds = []string{"mysql"}
		o.Query, o.owner, o.items = filterconfOwned, plainOwner, func(row *mirror.Row) []lists.Item { return directive(row, nil) }
	default:
		return nil, fmt.Errorf("no tables of %.40q are known; want one of %s", program, strings.Join(Programs, ", "))
	}
	if kind != "" && !slices.Contains(o.Kinds, kind) {
		return nil, wantSQL(program, kind, o.Kinds...)
	}
	return o, nil
}

// Read gives whose a row is, and its entries: none if the row asks for nothing that an entry can do.
func (o *Owned) Read(owner string, row mirror.Row) (Owner, []lists.Item) {
	row.Entry = PlainText(row.Entry)
	return o.owner(owner), o.items(&row)
}

// PlainText gives the octets of a bytea that PostgreSQL writes as text.
func PlainText(text string) string {
	if digits, ok := strings.CutPrefix(text, `\x`); ok {
		if octets, err := hex.DecodeString(digits); err == nil {
			return string(octets)
		}
	}
	return text
}

// FindForOwners returns the preset of a name for a list per recipient: each recipient's rows are entries of that recipient.
func FindForOwners(name, kind string) (*Preset, error) {
	programs := map[string]string{"amavis:wblist": "amavis", "spamassassin:userpref": "spamassassin-sql", "mailcow:filterconf": "mailcow"}
	if programs[name] == "" {
		return nil, fmt.Errorf(`%.80q names no owners; in a list per recipient want "amavis:wblist", "spamassassin:userpref" or "mailcow:filterconf", or a SELECT with the columns owner and entry`, name)
	}
	o, err := FindOwned(programs[name], kind)
	if err != nil {
		return nil, err
	}
	return &Preset{Query: o.Query, items: func(row *mirror.Row, _ *bool) []lists.Item { return o.entries(row) }}, nil
}

// entries are those of a row, each with its owner, and what of it is refused.
func (o *Owned) entries(row *mirror.Row) (all []lists.Item) {
	whose, items := o.Read(row.Owner, *row)
	if len(items) > 0 && whose.Everyone {
		return refused(row.Entry, lists.Owner, "for every recipient; a list without per_recipient, with the same query, has it")
	}
	for _, it := range items {
		switch {
		case TakesBackException(row.Action):
			continue
		case it.Kind != lists.Err && it.Kind != lists.Skip:
			if err := it.SetOwner(whose.Name); err != nil {
				all = append(all, ofEntryError(row.Entry, err)...)
				continue
			}
		}
		all = append(all, it)
	}
	return all
}

// TakesBackException tells the directives of SpamAssassin that end an exception. An owner who has none needs no entry for it.
func TakesBackException(word string) bool { return strings.HasPrefix(strings.ToLower(word), "unw") }

func plainOwner(text string) Owner { return Owner{Name: strings.TrimPrefix(text, "@")} }

// amavisOwner reads users.email: user@example.com, @example.com, @.example.com or @.
func amavisOwner(text string) Owner {
	if text == "@." {
		return Owner{Everyone: true}
	}
	if name, below := strings.CutPrefix(text, "@."); below {
		return Owner{Name: name, Below: true}
	}
	return plainOwner(text)
}

// userprefOwner reads a user name of SpamAssassin: @GLOBAL or $GLOBAL is everyone, and %domain a domain (its sql/README).
func userprefOwner(text string) Owner {
	if text == "@GLOBAL" || text == "$GLOBAL" {
		return Owner{Everyone: true}
	}
	return plainOwner(strings.TrimPrefix(text, "%"))
}

// amavisOwnedItems reads a row for its own recipient: B or N refuses, W or Y lets pass, a number or a blank decides nothing.
func amavisOwnedItems(row *mirror.Row) []lists.Item {
	wb := strings.ToUpper(strings.TrimSpace(row.Action))
	if wb == "" || !strings.Contains("BNWY", wb[:1]) {
		return nil
	}
	return amavisItems(row, nil)
}
