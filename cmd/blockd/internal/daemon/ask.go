package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"blockd/bloom/filter"
	"blockd/bloom/redisfilter"
	"blockd/cmd/blockd/internal/config"
	"blockd/index/live"
	"blockd/internal/redisclient"
	"blockd/policy/ask"
	askredis "blockd/policy/ask/redis"
	"blockd/sources/mirror"
	"blockd/sources/mirror/redis"
)

// OpenAsked makes the lists with mode = "ask"; nil if there are none. It makes no connection. Close them, and their
// stores, with CloseAsked.
func OpenAsked(c config.Config, log *slog.Logger) *ask.Sets {
	var all []*ask.Set
	names := []string{live.ListName} // goes before all lists between equally specific entries
	for _, l := range c.Lists {
		names = append(names, l.Name)
		if !l.Asked() {
			continue
		}
		o := c.AskOptions(l)
		o.Source.Path = l.Source.Kind + ":" + l.Name
		o.Store = ask.Late(func() (ask.Store, error) {
			dsn, err := l.Source.ReadDSN()
			if err != nil {
				return nil, err
			}
			if l.Source.Kind == "redis" {
				return askredis.Open(redisOptions(l, dsn))
			}
			return openAskedSQL(l, dsn)
		})
		all = append(all, ask.New(o, log))
	}
	return ask.NewSets(all, names)
}

// listOf is the list of a name; the zero value if there is none.
func listOf(c config.Config, name string) (l config.List) {
	if at := slices.IndexFunc(c.Lists, func(l config.List) bool { return l.Name == name }); at >= 0 {
		l = c.Lists[at]
	}
	return l
}

// LoadFilters gives the lists the filters that the daemon has written, for a program that asks beside it. A list
// without one is not asked, and its answers are unknown.
func LoadFilters(c config.Config, all *ask.Sets) {
	for _, s := range all.All() {
		if f, err := ask.OpenFilter(listOf(c, s.Source.List).Path); err == nil {
			s.UseFilter(f)
		}
	}
}

// CloseAsked ends what OpenAsked has made.
func CloseAsked(all *ask.Sets) {
	for _, s := range all.All() {
		s.Store.Close()
		s.Close()
	}
}

// redisOptions are those of a list in a Redis.
func redisOptions(l config.List, dsn string) redis.Options {
	s := l.Source
	return redis.Options{DSN: dsn, List: l.Name, Changes: s.FoundBy(), Key: s.Key, Shards: s.Shards, Every: s.Poll()}
}

// openAsked makes the lists that are asked, and keeps their filters up to date.
func openAsked(_ context.Context, d *daemon, p *part) error {
	d.asked = OpenAsked(d.config, d.log)
	d.asked.Register(d.metrics)
	d.setup.rules.Load().Stores = d.asked
	p.run, p.close = d.keepAsked, func() { CloseAsked(d.asked) }
	return nil
}

// keepAsked keeps the filters of all lists that are asked up to date.
func (d *daemon) keepAsked(ctx context.Context) error {
	var all errgroup.Group
	for _, s := range d.asked.All() {
		l := listOf(d.config, s.Source.List)
		from := d.config.Keeping(l)
		if !from.Given {
			if kind, key := l.Source.FilterFrom(); kind == "keys" {
				from.Open = func() (mirror.Source, error) { return OpenSource(l) }
			} else {
				from.Fetch = func(ctx context.Context) (filter.Filter, error) { return fetchFilter(ctx, l, kind, key) }
			}
			if err := os.MkdirAll(filepath.Dir(from.Path), 0o750); err != nil {
				return fmt.Errorf("filter of list %s: %w", l.Name, err)
			}
		}
		all.Go(func() error { return s.Keep(ctx, from) })
	}
	return all.Wait()
}

// fetchFilter reads the filter that another program keeps in the Redis of a list.
func fetchFilter(ctx context.Context, l config.List, kind, key string) (filter.Filter, error) {
	dsn, err := l.Source.ReadDSN()
	if err != nil {
		return nil, &mirror.Error{Class: mirror.ClassAuth, Err: err}
	}
	server, err := redisfilter.Dial(ctx, redisclient.Options{URL: dsn})
	if err != nil {
		return nil, &mirror.Error{Class: mirror.ClassUnreachable, Err: err}
	}
	defer server.Close()
	f, err := server.Fetch(ctx, key, func(int64, int64) {})
	if err == nil && f.Kind() != kind && !(kind == "redisson" && f.Kind() == "bitmap") {
		err = &mirror.Error{Class: mirror.ClassSchema, Err: errors.New("the filter is of the kind " + f.Kind())}
	}
	return f, err
}

// sourceStatus is the state of a list's source, whether blockd has a copy of it or asks it.
func (d *daemon) sourceStatus(list string) (mirror.Status, bool) {
	for _, s := range d.asked.All() {
		if s.Source.List == list {
			return s.Status(), true
		}
	}
	return d.sources.Status(list)
}
