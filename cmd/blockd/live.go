package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/lists"
	"blockd/live"
	"blockd/reload"
)

// Live is [live]: entries that act at once.
type Live struct {
	Folder string `toml:"folder"` // "auto": INDEX.live beside the index; "none": there are none
}

// The words in place of a path.
const (
	autoPath = "auto"
	noPath   = "none"
)

// liveFolder is where live entries are kept; not for "none".
func (c Config) liveFolder() string {
	if c.Live.Folder == autoPath {
		return c.Index.Path + ".live"
	}
	return c.Live.Folder
}

func (c Config) liveSettings() live.Settings {
	return live.Settings{Folder: c.liveFolder(), Guard: c.guard(List{})}
}

// liveList is the list of live entries as the index has it. What is in it has passed
// the gate one by one, and one person may add or remove many.
func (c Config) liveList() reload.List {
	return reload.List{
		Name: live.ListName, Path: live.ListPattern(c.liveFolder()), Settings: lists.Settings{Format: "plain"},
		Optional: true, AllowEmpty: true, MaxRecentBlocked: 1,
	}
}

// readLive returns the live entries as their file has them now, for who only asks; nil
// if there are to be none.
func (c Config) readLive() (*live.Set, error) {
	if c.Live.Folder == noPath {
		return nil, nil
	}
	return live.Read(c.liveFolder())
}

// openLive opens the live entries for the daemon; nil if there are to be none. Another
// process may hold them for a moment: somebody who adds one while no daemon runs.
func (c Config) openLive(ctx context.Context, reg prometheus.Registerer, log *slog.Logger) (*live.Set, error) {
	if c.Live.Folder == noPath {
		return nil, nil
	}
	deadline := time.Now().Add(changeTimeout)
	for {
		set, err := live.Open(c.liveSettings())
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

// renew writes the list of live entries for a build. What goes wrong costs nothing:
// they act from memory.
func renew(set *live.Set, log *slog.Logger) func(context.Context) bool {
	return func(ctx context.Context) bool {
		written, err := set.Fold(ctx)
		if err != nil && ctx.Err() == nil {
			log.Error("live entries not folded into the index", slog.Any("error", err))
		}
		return written
	}
}

// validateLive checks [live], and that its list has its name for itself.
func (c Config) validateLive(f *Faults) {
	if c.Live.Folder == "" {
		f.add("live.folder", `want a folder, "auto" or "none"`)
	}
	if c.Live.Folder == noPath {
		return
	}
	for i, l := range c.Lists {
		if l.Name == live.ListName {
			f.add(fmt.Sprintf("list[%d].name", i), "%q is the name of the live entries (blockd add): want another one", l.Name)
		}
	}
}
