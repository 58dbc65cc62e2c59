package owners

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"

	"blockd/cmd/blockd/internal/migration"
	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/lists"
	"blockd/sources/mirror"
	"blockd/sources/mirror/preset"
)

// Amavis imports the tables users, mailaddr and wblist of amavisd-new, which iRedMail has too. from is a DSN, a file
// with nothing but a DSN, a database of SQLite, or a dump in SQL.
func Amavis(ctx context.Context, from string, o Options) (*migration.Result, error) {
	return tables(ctx, "amavis", "amavisd-new", from, o)
}

// SpamAssassinSQL imports the table userpref of SpamAssassin. from is as for Amavis.
func SpamAssassinSQL(ctx context.Context, from string, o Options) (*migration.Result, error) {
	return tables(ctx, "spamassassin-sql", "SpamAssassin", from, o)
}

// Mailcow imports the table filterconf of mailcow. from is as for Amavis.
func Mailcow(ctx context.Context, from string, o Options) (*migration.Result, error) {
	return tables(ctx, "mailcow", "mailcow", from, o)
}

func tables(ctx context.Context, program, name, from string, o Options) (*migration.Result, error) {
	kind, dsn, dump, err := open(from)
	if err != nil {
		return nil, err
	}
	of, err := preset.FindOwned(program, kind)
	if err != nil {
		return nil, err
	}
	r := begin(name, withoutPassword(from), o)
	switch {
	case dump != nil:
		err = readDump(program, dump, func(n int, owner string, row mirror.Row) error { return r.row(of, n, owner, row) })
		if err != nil {
			err = fmt.Errorf("%s: %w", from, err)
		}
	case o.Query == nil:
		err = fmt.Errorf("this program has no driver for %s", kind)
	default:
		n := 0
		err = o.Query(ctx, kind, dsn, of.Query, func(owner string, row mirror.Row) error { n++; return r.row(of, n, owner, row) })
	}
	if err != nil {
		return nil, err
	}
	if len(r.Findings) == 0 {
		r.Note("there is no row about senders")
	}
	return r.end()
}

// row takes one row; at is its line in a dump, or its number.
func (r *reading) row(of *preset.Owned, at int, owner string, row mirror.Row) error {
	whose, items := of.Read(owner, row)
	text := strings.Join(strings.Fields(owner+": "+row.Action+" "+preset.PlainText(row.Entry)), " ")
	place := migration.Place{File: r.Source, Line: at}
	if len(items) == 0 {
		return r.lose(place, text, "", "%q neither refuses nor lets pass: a score is not blockd's", original.Shown(row.Action))
	}
	named := []string{preset.PlainText(row.Entry)}
	if r.Program != "amavisd-new" {
		named = strings.Fields(named[0])
	}
	for i, it := range items {
		f, err := r.find(place, text, "")
		if err != nil {
			return err
		}
		f.Meant = meant(&it, whose)
		word := strings.ToLower(row.Action)
		switch {
		case preset.TakesBackException(word):
			f.Lose("it takes back an exception; remove the exception's own row")
			continue
		case it.Kind != lists.Err && strings.HasPrefix(word, "un"):
			if it.Action = lists.Allow; whose.Everyone {
				f.Lose("it takes back an entry for everyone; remove that one")
				continue
			}
			f.Remark("an exception, where the row takes back an entry for everyone alone")
		}
		if len(named) == len(items) && it.Class != lists.Unsupported && it.Action != lists.AllowIfAuth { // which wants a proof that only a message has
			m := meaning{Finding: f, text: named[i], is: asGlob(named[i]), fate: fateOf(it.Action), below: whose.Below, takesBack: strings.HasPrefix(word, "un")}
			if r.Program == "amavisd-new" {
				m.is, m.weight = asAmavis, weightOf(owner, named[i])
			}
			r.means(m, whose.Name, whose.Everyone)
		}
		if whose.Everyone {
			r.addForAll(f, it)
			continue
		}
		if whose.Below {
			f.Remark("for mailboxes at " + whose.Name + ", and not at names below it")
		}
		r.add(f, whose.Name, it, strings.TrimSpace(r.Program+" "+row.ID))
	}
	return nil
}

// meant says in words what a row asks for.
func meant(it *lists.Item, whose preset.Owner) string {
	what := "refuse "
	if it.Action != lists.Block {
		what = "let pass "
	}
	who := whose.Name
	if whose.Everyone {
		who = "everyone"
	}
	if text := it.Plain(); it.Kind != lists.Err && text != "" {
		return what + original.Shown(text) + " for " + original.Shown(who)
	}
	return "an entry for " + original.Shown(who)
}

// scheme is how a DSN begins.
var scheme = regexp.MustCompile(`^(postgres|postgresql|mysql|mariadb|sqlite):`)

// open tells what a source is: a DSN of a kind, or the octets of a dump.
func open(from string) (kind, dsn string, dump []byte, err error) {
	if !scheme.MatchString(from) {
		r := begin("", from, Options{})
		data, err := r.load(from)
		text := strings.TrimSpace(string(data[:min(len(data), 4096)]))
		switch {
		case err != nil:
			return "", "", nil, err
		case bytes.HasPrefix(data, []byte("SQLite format 3\x00")):
			return "sqlite", "sqlite:" + from, nil, nil
		case !scheme.MatchString(text) || strings.ContainsAny(text, "\n "):
			return "", "", data, nil
		}
		from = text
	}
	switch word, rest, _ := strings.Cut(from, ":"); word {
	case "sqlite":
		if _, err := os.Stat(strings.TrimPrefix(rest, "//")); err != nil {
			return "", "", nil, err
		}
		return "sqlite", "sqlite:" + strings.TrimPrefix(rest, "//"), nil, nil
	case "mysql", "mariadb":
		return "mysql", "mysql:" + rest, nil, nil
	default:
		return "postgres", from, nil, nil
	}
}

// withoutPassword is a DSN as it may be shown; a file's name is shown as it is.
func withoutPassword(from string) string {
	if !scheme.MatchString(from) {
		return from
	}
	u, err := url.Parse(from)
	if err != nil || u.Host == "" {
		word, _, _ := strings.Cut(from, ":")
		return word + ": a database"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

var errNoTables = errors.New("no dump of the tables that are wanted")
