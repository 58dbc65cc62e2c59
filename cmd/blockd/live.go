package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/config"
	"blockd/live"
)

// readLive returns the live entries as their file has them now, for who only asks; nil
// if there are to be none.
func readLive(c config.Config) (*live.Set, error) {
	if c.Live.Folder == config.None {
		return nil, nil
	}
	return live.Read(c.LiveFolder())
}

// openLive opens the live entries for the daemon; nil if there are to be none. Another
// process may hold them for a moment: somebody who adds one while no daemon runs.
func openLive(ctx context.Context, c config.Config, reg prometheus.Registerer, log *slog.Logger) (*live.Set, error) {
	if c.Live.Folder == config.None {
		return nil, nil
	}
	deadline := time.Now().Add(changeTimeout)
	for {
		set, err := live.Open(c.LiveSettings())
		switch {
		case err == nil:
			for _, problem := range set.Problems() {
				log.Error("live entries damaged", slog.String("problem", problem))
			}
			return set, set.Register(reg)
		case !errors.Is(err, live.ErrLocked) || time.Now().After(deadline):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(retryEvery):
		}
	}
}

// foldTroubles is how often the log says at most that live entries are not folded: each
// look at the lists tries it again, many times a minute.
const foldTroubles = 10 * time.Minute

// renew writes the list of live entries for a build. What goes wrong costs nothing:
// they act from memory. What it returns is called by one goroutine, that of the reloader.
func renew(set *live.Set, log *slog.Logger) func(context.Context) bool {
	var told time.Time
	return func(ctx context.Context) bool {
		written, err := set.Fold(ctx)
		if err != nil && ctx.Err() == nil && (told.IsZero() || time.Since(told) >= foldTroubles) {
			told = time.Now()
			log.Error("live entries not folded into the index", slog.Any("error", err))
		}
		return written
	}
}
