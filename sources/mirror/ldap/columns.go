package ldap

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-ldap/ldap/v3"

	"blockd/sources/mirror"
)

const defaultID = "entryUUID"

// columns say which attributes give what of a row. An object gives a row for each value of each attribute of entry; of the other
// attributes its first value counts.
type columns struct {
	entry []string
	names []string // of the other columns, as mirror.NewColumns wants them
	from  []string // their attributes
	place mirror.Columns
}

// parseColumns reads "COLUMN=ATTRIBUTE, …". Without it every attribute of the URL is an entry.
func parseColumns(text string, ofURL []string) (*columns, error) {
	c := &columns{}
	switch {
	case strings.TrimSpace(text) == "" && len(ofURL) == 0:
		return nil, errors.New(`missing; want "entry=mail" or so, or the attributes of entries in the URL`)
	case strings.TrimSpace(text) == "":
		c.entry = ofURL
	case len(ofURL) > 0:
		return nil, errors.New("the URL names attributes too; want them at one place")
	default:
		for part := range strings.SplitSeq(text, ",") {
			name, from, ok := strings.Cut(part, "=")
			name, from = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(from)
			if !ok || !isAttribute(from) {
				return nil, fmt.Errorf("want COLUMN=ATTRIBUTE, such as entry=mail, have %q", strings.TrimSpace(part))
			}
			if name == "entry" {
				c.entry = append(c.entry, from)
				continue
			}
			c.names, c.from = append(c.names, name), append(c.from, from)
		}
	}
	if !slices.Contains(c.names, "id") {
		c.names, c.from = append(c.names, "id"), append(c.from, defaultID)
	}
	if len(c.entry) == 0 {
		return nil, errors.New("no attribute for entry; want entry=mail or so")
	}
	var err error
	if c.place, err = mirror.NewColumns(append([]string{"entry"}, c.names...)); err != nil {
		return nil, errors.Unwrap(err)
	}
	return c, nil
}

// isAttribute tells the name of an attribute, perhaps with options (RFC 4512, section 2.5), or its number.
func isAttribute(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == ';' || r == '_')
	})
}

func (c *columns) String() string {
	var all []string
	for _, from := range c.entry {
		all = append(all, "entry="+from)
	}
	for i, name := range c.names {
		all = append(all, name+"="+c.from[i])
	}
	return strings.Join(all, ", ")
}

// attributes are those of all columns.
func (c *columns) attributes() []string { return slices.Concat(c.entry, c.from) }

// present is a filter for objects that have an entry.
func (c *columns) present() string {
	var b strings.Builder
	for _, from := range c.entry {
		b.WriteString("(" + from + "=*)")
	}
	return anyOf(b.String(), len(c.entry))
}

// oneOf is a filter for objects that have one of these entries.
func (c *columns) oneOf(entries []string) string {
	var b strings.Builder
	for _, entry := range entries {
		for _, from := range c.entry {
			b.WriteString("(" + from + "=" + ldap.EscapeFilter(entry) + ")")
		}
	}
	return anyOf(b.String(), len(entries)*len(c.entry))
}

func anyOf(filters string, n int) string {
	if n == 1 {
		return filters
	}
	return "(|" + filters + ")"
}

// valuesOf are the values of an attribute, those with options included.
func valuesOf(e *ldap.Entry, name string) (values []string) {
	for _, a := range e.Attributes {
		if len(a.Name) >= len(name) && strings.EqualFold(a.Name[:len(name)], name) && (len(a.Name) == len(name) || a.Name[len(name)] == ';') {
			values = append(values, a.Values...)
		}
	}
	return values
}

// partly names an attribute of which the server gives a range of the values and not all (Active Directory); "" if there is none.
func partly(e *ldap.Entry) string {
	for _, a := range e.Attributes {
		if strings.Contains(strings.ToLower(a.Name), ";range=") {
			return a.Name
		}
	}
	return ""
}

// entries are the values of an object that are entries.
func (c *columns) entries(e *ldap.Entry) (all []string) {
	for _, from := range c.entry {
		all = append(all, valuesOf(e, from)...)
	}
	return all
}

// rows yields the rows of an object.
func (c *columns) rows(e *ldap.Entry, yield func(mirror.Row) error) error {
	texts := make([]string, 1+len(c.names))
	for i, name := range c.names {
		if found := valuesOf(e, c.from[i]); len(found) > 0 {
			texts[1+i] = textOf(name, found[0])
		}
	}
	for _, entry := range c.entries(e) {
		texts[0] = entry
		if err := yield(c.place.Row(texts)); err != nil {
			return err
		}
	}
	return nil
}

// textOf is a value as a row has it: times of a directory as seconds, and ids that are octets in hexadecimal.
func textOf(column, value string) string {
	switch column {
	case "expires":
		if t, ok := parseTime(value); ok {
			return strconv.FormatInt(t.Unix(), 10)
		}
	case "id":
		if !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
			return hex.EncodeToString([]byte(value))
		}
	}
	return value
}
