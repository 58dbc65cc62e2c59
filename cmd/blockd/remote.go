package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/lists"
	"blockd/remote"
)

// remote is a list with a url as package remote takes it, without Check.
func (l List) remote() remote.Source {
	return remote.Source{
		Name: l.Name, URL: l.URL, Insecure: l.InsecureHTTP, Path: l.Path,
		Every: time.Duration(or(l.Every, 0)), Checksum: l.Checksum, Signature: l.Signature,
	}
}

// The bounds of every. More often than once a minute no server wants to be asked.
const (
	leastEvery = time.Minute
	mostEvery  = 31 * day
)

// validateRemote checks what a list says of its url. copies has the paths of such
// lists above, with their names.
func (l List) validateRemote(f *Faults, key string, copies map[string]string) {
	if l.URL == "" {
		for _, k := range []struct {
			name  string
			given bool
		}{{"every", l.Every != nil}, {"checksum", l.Checksum != ""}, {"signature", l.Signature != ""}, {"insecure_http", l.InsecureHTTP}} {
			if k.given {
				f.add(key+"."+k.name, "goes with url, and there is none")
			}
		}
		return
	}
	if strings.ContainsAny(l.Path, `*?[`) {
		f.add(key+".path", "want the one file that is to hold the copy, have the glob %q", l.Path)
	}
	if path := filepath.Clean(l.Path); l.Path != "" {
		if other, ok := copies[path]; ok {
			f.add(key+".path", "holds the copy of list %q", other)
		}
		copies[path] = l.Name
	}
	if l.Every != nil {
		f.between(key+".every", *l.Every, leastEvery, mostEvery)
	}
	for _, err := range flat(l.remote().Validate()) {
		fault, ok := errors.AsType[*remote.SettingError](err)
		switch {
		case ok && (fault.Key == "path" || fault.Key == "every"): // said above
		case ok && errors.Is(err, remote.ErrInsecure):
			f.add(key+"."+fault.Key, "%v, or insecure_http = true", fault.Err)
		case ok:
			f.add(key+"."+fault.Key, "%v", fault.Err)
		default:
			f.add(key, "%v", err)
		}
	}
}

// flat takes the error of errors.Join apart.
func flat(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// fetcher keeps the copies of all lists that have a url.
func (c Config) fetcher(log *slog.Logger, reg prometheus.Registerer) (*remote.Fetcher, error) {
	s := remote.Settings{Version: version()}
	for _, l := range c.Lists {
		if l.URL != "" {
			source := l.remote()
			source.Check = c.checkCopy(l)
			s.Sources = append(s.Sources, source)
		}
	}
	return remote.New(s, log, reg)
}

// checkCopy judges a file that was fetched as the build will, so that what is no
// list, or a poisoned one, never takes the place of a good copy. What can only be
// judged against the generation in force, the gate judges when the file is there.
func (c Config) checkCopy(l List) func(ctx context.Context, path string) error {
	settings := c.settings(l)
	ignore := func(*lists.Item) error { return nil }
	return func(ctx context.Context, path string) error {
		sum, err := lists.ReadFile(ctx, path, settings, ignore)
		if fe, ok := errors.AsType[*lists.FileError](err); ok {
			return fmt.Errorf("%s: %w", fe.Class, fe.Err) // its path is a draft's
		}
		if err != nil || sum.Entries > 0 || l.AllowEmpty {
			return err
		}
		// An empty answer is far more often an upload that failed than a wish.
		if old, err := lists.ReadFile(ctx, l.Path, settings, ignore); err == nil && old.Entries > 0 {
			return fmt.Errorf("%s: no entry is left of %d; a list that may be so has allow_empty = true", lists.Empty, old.Entries)
		}
		return nil
	}
}
