// Package preset reads the tables in which other programs of a mail server keep the senders that they refuse, or let
// pass. A preset stands in the place of a query: query = "amavis:wblist" (docs/sources.md).
//
// The other programs have lists for each recipient, and a list of blockd counts for all of them. So a preset refuses
// what is refused for every recipient, and an exception of any recipient is an exception for all. blockd then refuses
// no mail that the other program would let pass (docs/decisions/0054).
package preset

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"blockd/lists"
	"blockd/sources/mirror"
)

// Preset is how the tables of another program become a list.
type Preset struct {
	DSN   string // where the tables are, with the password; "" = the preset does not say it
	Query string // for the driver of the kind that Find was told

	// items gives the entries of a row, and what of it is refused. A row may have none.
	items func(row *mirror.Row, subdomains *bool) []lists.Item
}

// form tells the name of a preset from a query.
var form = regexp.MustCompile(`^[a-z]+:\S`)

// IsName reports whether a query is the name of a preset, known or not.
func IsName(query string) bool { return form.MatchString(query) }

// hint is what errors about presets end with.
const hint = `; hint: a query of your own says the same: "select address as entry, action, reason from senders"`

// Find returns the preset of a name for a kind of source. Only "postfix:FILE" reads a file. No error holds anything of
// its passwords.
func Find(name, kind string) (*Preset, error) {
	program, rest, _ := strings.Cut(name, ":")
	what, argument, has := strings.Cut(rest, ":")
	var p *Preset
	var err error
	switch {
	case program == "postfix":
		return ofPostfix(rest, kind)
	case program == "mailcow" && what == "filterconf":
		return ofMailcow(argument, has, kind)
	case program == "amavis" && rest == "wblist":
		p, err = ofAmavis(kind)
	case program == "spamassassin" && rest == "userpref":
		p, err = ofSpamAssassin(kind)
	default:
		return nil, fmt.Errorf(`there is no ready query %.40q; want "amavis:wblist", "spamassassin:userpref", "mailcow:filterconf" or "postfix:FILE.cf"`, name)
	}
	return p, err
}

// wantSQL refuses kinds that the tables of a program are never in.
func wantSQL(name, kind string, kinds ...string) error {
	if !slices.Contains(kinds, kind) {
		return fmt.Errorf("%q reads tables in kind %s, have %q", name, strings.Join(kinds, " or "), kind)
	}
	return nil
}

// Source gives the rows of a source as those of the list. subdomains is that of the list, and overrides what a bare
// name covers.
func (p *Preset) Source(s mirror.Source, subdomains *bool) mirror.Source {
	return &source{s, p, subdomains}
}

// source is a driver whose rows are those of another program.
type source struct {
	mirror.Source
	preset     *Preset
	subdomains *bool
}

// All implements mirror.Origin. Each entry of a row is a row of its own.
func (s *source) All(ctx context.Context, yield func(mirror.Row) error) (mirror.Mark, error) {
	return s.Source.All(ctx, func(row mirror.Row) error {
		for _, it := range s.preset.items(&row, s.subdomains) {
			if it.Kind == lists.Skip {
				continue
			}
			if err := yield(mirror.Row{Item: &it, ID: row.ID}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Changes implements mirror.Origin. The drivers of presets read everything each time, so there is at most the news
// that nothing has changed.
func (s *source) Changes(ctx context.Context, since mirror.Mark, _ func(mirror.Change) error) (mirror.Mark, error) {
	return s.Source.Changes(ctx, since, func(mirror.Change) error { return mirror.ErrTooOld })
}

// Plan says for people how the source is read.
func (s *source) Plan(ctx context.Context) (string, error) {
	if p, ok := s.Source.(interface {
		Plan(context.Context) (string, error)
	}); ok {
		return p.Plan(ctx)
	}
	return "", errors.New("this source has no plan")
}

// refused is a row that is no entry.
func refused(text string, c lists.Class, message string) []lists.Item {
	return []lists.Item{{Line: 1, Kind: lists.Err, Class: c, Message: message, Text: text[:min(len(text), 400)]}}
}
