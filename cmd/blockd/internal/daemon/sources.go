package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/upgrade"
	"blockd/cmd/blockd/internal/version"
	"blockd/doors/httpapi"
	"blockd/lists"
	"blockd/policy/rule"
	"blockd/records/bell"
	"blockd/reload"
	"blockd/sources/mirror"
	"blockd/sources/mirror/preset"
	"blockd/sources/mirror/redis"
	"blockd/sources/remote"
)

// openSources makes what follows the sources of lists. The lists that it finds changed are read at once. Their age is
// that of the last answer of the source.
func openSources(_ context.Context, d *daemon, p *part) error {
	var all []mirror.List
	for _, l := range d.config.Lists {
		if l.Source != nil && !l.Asked() {
			all = append(all, sourceList(d.config, l))
		}
	}
	k := mirror.NewKeeper(all, func() { d.lists.Replaced() }, d.log, d.metrics)
	for i, l := range d.toLists.Lists {
		if _, has := k.Status(l.Name); has {
			d.toLists.Lists[i].Confirmed = func() time.Time {
				s, _ := k.Status(l.Name)
				return s.Confirmed
			}
		}
	}
	d.sources, d.toHTTP.Sources = k, d.listSources
	p.run, p.alone, p.renew, p.problems = k.Run, upgrade.Lists, k.Now, d.sourceProblems
	return nil
}

// ReadSources reads the sources of lists of which there is no copy yet, for a program that compiles. What goes wrong is
// told of together; a list whose source is away is as one whose file is missing.
func ReadSources(ctx context.Context, c config.Config) error {
	var faults []error
	for _, l := range c.Lists {
		if l.Source == nil || l.Asked() {
			continue
		}
		err := mirror.ReadMissing(ctx, sourceList(c, l))
		if err == nil {
			err = HandOver(l.CopyFolder())
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("list %s: its source is not read: %w", l.Name, err))
		}
	}
	return errors.Join(faults...)
}

// sourceList is a list with a source as package mirror takes it.
func sourceList(c config.Config, l config.List) mirror.List {
	s := l.Source
	return mirror.List{
		Name:  l.Name,
		Open:  func() (mirror.Source, error) { return OpenSource(l) },
		Copy:  mirror.Options{Folder: l.CopyFolder(), Settings: c.ListSettings(l), MaxRows: int64(s.MaxRows)},
		Every: s.Poll(), Reconcile: time.Duration(s.Reconcile),
		Whole: s.Kind == "redis" && s.Key != "",
	}
}

// listSources are what /v1/lists shows of them, by the names of the lists. What a source holds may be refused by the
// gate too, when its list is loaded.
func (d *daemon) listSources(status reload.Status) map[string]httpapi.ListSource {
	all, now := map[string]httpapi.ListSource{}, time.Now()
	for _, l := range d.config.Lists {
		s, has := d.sourceStatus(l.Name)
		if !has {
			continue
		}
		if s.State == mirror.OK {
			for _, r := range status.Refusals {
				if r.List == l.Name && r.Class != lists.Missing {
					s.State, s.Class, s.Error = mirror.Refused, mirror.Class(r.Class), r.Text
					if !s.Changed.IsZero() {
						s.Since = s.Changed
					}
					break
				}
			}
		}
		row := httpapi.ListSource{Kind: l.Source.Kind, Mode: l.Source.Mode, State: string(s.State), Class: string(s.Class), Since: s.Since.UTC(), Rows: s.Rows, Missed: s.Missed, Error: s.Error}
		if !s.Confirmed.IsZero() {
			lag := s.Lag(now).Seconds()
			row.LagSeconds = &lag
		}
		all[l.Name] = row
	}
	return all
}

// sourceProblems are of sources that do not answer, or whose rows are refused; one line each.
func (d *daemon) sourceProblems() (all []bell.Problem) {
	for _, l := range d.config.Lists {
		if s, has := d.sourceStatus(l.Name); has && s.Error != "" {
			state := string(s.State)
			if s.State == mirror.OK {
				state = "read, but not followed"
			}
			all = append(all, bell.Problem{List: l.Name, Text: fmt.Sprintf("list %s: its source is %s: %s: %s", l.Name, state, s.Class, s.Error)})
		}
	}
	return all
}

// OpenSource makes the driver of a list's source. It reads the URL of the source, and makes no connection. No error
// of it has any of the URL.
func OpenSource(l config.List) (mirror.Source, error) {
	dsn, err := l.Source.ReadDSN()
	if err != nil {
		return nil, &mirror.Error{Class: mirror.ClassAuth, Err: err}
	}
	if !preset.IsName(l.Source.Query) {
		return openDriver(l, dsn)
	}
	find := preset.Find
	if l.PerRecipient {
		find = preset.FindForOwners
	}
	tables, err := find(l.Source.Query, l.Source.Kind)
	if err != nil {
		return nil, &mirror.Error{Class: mirror.ClassQuery, Err: err}
	}
	whole := *l.Source
	whole.Query, whole.Changes = tables.Query, whole.FoundBy()
	l.Source = &whole
	source, err := openDriver(l, cmp.Or(dsn, tables.DSN))
	if err != nil {
		return nil, err
	}
	return tables.Source(source, l.Subdomains), nil
}

// openDriver makes the driver of a kind of source.
func openDriver(l config.List, dsn string) (mirror.Source, error) {
	// The drivers of blockd, a case each. Those with libraries of their own that the build tag nosql leaves out, which
	// is all but redis, have their cases in openSQL (sql.go).
	switch s := l.Source; s.Kind {
	case "redis":
		return redis.Open(redisOptions(l, dsn))
	default:
		return openSQL(l, dsn)
	}
}

// noDriver is the error of a kind that this build lacks.
func noDriver(l config.List) error {
	return &mirror.Error{Class: mirror.ClassRefused, Err: fmt.Errorf("source.kind %q is not in this build of blockd", l.Source.Kind)}
}

// QueryTables gives the rows of a query in a database of a kind ("postgres", "mysql" or "sqlite"). The query gives the
// columns owner, entry, action and id. No error has anything of the dsn.
func QueryTables(ctx context.Context, kind, dsn, query string, yield func(owner string, row mirror.Row) error) error {
	source, err := openDriver(config.List{Name: "import", Source: &config.Source{Kind: kind, Query: query, Changes: "none"}}, dsn)
	if err != nil {
		return err
	}
	defer source.Close()
	_, err = source.All(ctx, func(row mirror.Row) error {
		owner := row.Owner
		row.Owner = ""
		return yield(owner, row)
	})
	return err
}

// openFetcher makes what fetches the lists that have a url.
func openFetcher(_ context.Context, d *daemon, p *part) error {
	f, err := NewFetcher(d.config, d.log, d.metrics)
	if err != nil {
		return fmt.Errorf("lists: %w", err)
	}
	p.run, p.alone, p.renew = f.Run, upgrade.Lists, f.Now
	p.problems = func() (all []bell.Problem) {
		fetched := f.Problems()
		for _, name := range slices.Sorted(maps.Keys(fetched)) {
			all = append(all, bell.Problem{List: name, Text: fetched[name] + "; the copy serves on"})
		}
		return all
	}
	return nil
}

// NewFetcher keeps the copies of all lists that have a url.
func NewFetcher(c config.Config, log *slog.Logger, reg prometheus.Registerer) (*remote.Fetcher, error) {
	s := remote.Settings{Version: version.String()}
	for _, l := range c.Lists {
		if l.URL != "" {
			source := c.Remote(l)
			source.Check = checkCopy(c, l)
			s.Sources = append(s.Sources, source)
		}
	}
	return remote.New(s, log, reg)
}

// checkCopy judges a file that was fetched as the build will, so that what is no
// list, or a poisoned one, never takes the place of a good copy. What can only be
// judged against the generation in force, the gate judges when the file is there.
func checkCopy(c config.Config, l config.List) func(ctx context.Context, path string) error {
	settings := c.ListSettings(l)
	ignore := func(*lists.Item) error { return nil }
	emptied := false // the answer before was empty, too
	return func(ctx context.Context, path string) error {
		again := emptied
		emptied = false
		sum, err := lists.ReadFile(ctx, path, settings, ignore)
		if fe, ok := errors.AsType[*lists.FileError](err); ok {
			return fmt.Errorf("%s: %w", fe.Class, fe.Err) // its path is a draft's
		}
		if err != nil || sum.Entries > 0 || l.AllowEmpty {
			return err
		}
		// An empty answer is far more often an upload that failed than a wish. Of a short list it is one if the next
		// answer is the same.
		old, err := lists.ReadFile(ctx, l.Path, settings, ignore)
		switch short := old.Entries < reload.ShrinkFrom; {
		case err != nil || old.Entries == 0 || short && again:
			return nil
		case short:
			emptied = true
			return fmt.Errorf("%s: no entry is left of %d; if the next answer says so too, it counts", lists.Empty, old.Entries)
		}
		return fmt.Errorf("%s: no entry is left of %d; a list that may be so has allow_empty = true", lists.Empty, old.Entries)
	}
}

// ReadAliases reads recipients.aliases once; nil if there are none.
func ReadAliases(ctx context.Context, c config.Config) (*rule.Aliases, error) {
	a := c.Recipients.Aliases
	if a == nil {
		return nil, nil
	}
	if a.Kind == "file" {
		f, err := os.Open(a.Path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		all, err := rule.ReadAliases(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.Path, err)
		}
		return all, nil
	}
	source, err := OpenSource(a.Source())
	if err != nil {
		return nil, err
	}
	defer source.Close()
	all := &rule.Aliases{}
	_, err = source.All(ctx, func(row mirror.Row) error {
		if all.Len() == rule.MaxAliases {
			return fmt.Errorf("more than %d aliases", rule.MaxAliases)
		}
		all.Add(row.Entry, row.Reason) // a row that is none costs itself alone
		return ctx.Err()
	})
	return all, err
}

// aliasPatience is how long one reading of a database may take.
const aliasPatience = time.Minute

// openAliases keeps the aliases as their source has them. What was read last stays in force while the source cannot be
// read.
func openAliases(ctx context.Context, d *daemon, p *part) error {
	a := d.config.Recipients.Aliases
	if a == nil {
		return nil
	}
	book, fault := &rule.Book{}, atomic.Pointer[string]{}
	d.setup.rules.Load().Owners.Aliases = book
	failed := false
	read := func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, aliasPatience)
		defer cancel()
		all, err := ReadAliases(ctx, d.config)
		switch {
		case ctx.Err() == context.Canceled:
		case err != nil:
			text := "recipients.aliases: cannot be read, and those that were read last stay in force: "
			if book.Now() == nil {
				text = "recipients.aliases: cannot be read, and nobody behind an alias has his entries: "
			}
			text += err.Error()
			if fault.Store(&text); failed {
				return
			}
			failed = true
			d.log.Error("aliases of recipients cannot be read: those that were read last stay in force", slog.Any("error", err))
		case err == nil:
			if failed || all.Len() != book.Now().Len() {
				d.log.Info("aliases of recipients", slog.Int("aliases", all.Len()))
			}
			failed = false
			fault.Store(nil)
			book.Set(all)
		}
	}
	read(ctx)
	p.problems = lines(func() []string {
		if text := fault.Load(); text != nil {
			return []string{*text}
		}
		return nil
	})
	p.run = func(ctx context.Context) error {
		tick := time.Tick(a.Pause())
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick:
				read(ctx)
			}
		}
	}
	return nil
}
