package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/version"
	"blockd/lists"
	"blockd/reload"
	"blockd/sources/remote"
)

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
		// An empty answer is far more often an upload that failed than a wish. Of a short list it is one if the next answer
		// is the same.
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
