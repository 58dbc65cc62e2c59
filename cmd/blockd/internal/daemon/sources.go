package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
	"blockd/lists"
	"blockd/records/bell"
	"blockd/reload"
	"blockd/sources/mirror"
	"blockd/sources/mirror/preset"
	"blockd/sources/mirror/redis"
)

// openSources makes what follows the sources of lists. The lists that it finds changed are read at once.
func (d *daemon) openSources() {
	var all []mirror.List
	for _, l := range d.config.Lists {
		if l.Source != nil && !l.Asked() {
			all = append(all, sourceList(d.config, l))
		}
	}
	d.sources = mirror.NewKeeper(all, func() { d.lists.Replaced() }, d.log, d.metrics)
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

// confirmed makes the age of lists with a source that of the last answer of the source.
func (d *daemon) confirmed(all []reload.List) {
	for i, l := range all {
		if _, has := d.sources.Status(l.Name); has {
			all[i].Confirmed = func() time.Time {
				s, _ := d.sources.Status(l.Name)
				return s.Confirmed
			}
		}
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
			all = append(all, bell.Problem{Name: bell.Source, List: l.Name, Text: fmt.Sprintf("list %s: its source is %s: %s: %s", l.Name, state, s.Class, s.Error)})
		}
	}
	fetched := d.fetcher.Problems()
	for _, name := range slices.Sorted(maps.Keys(fetched)) {
		all = append(all, bell.Problem{Name: bell.Source, List: name, Text: fetched[name] + "; the copy serves on"})
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
