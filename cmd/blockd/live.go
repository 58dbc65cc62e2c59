package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
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
	return live.Settings{Folder: c.liveFolder(), Guard: c.liveGuard()}
}

// liveGuard is what no live entry may cover unless it is forced: what no list may, and
// this machine, the networks that the configuration names as one's own, and the
// mailboxes that complaints come from.
func (c Config) liveGuard() *lists.Guard {
	s := c.guardSettings(List{})
	s.Frees = true
	s.Mailboxes = []string{"postmaster", "abuse"}
	s.Own = []lists.OwnNetwork{{Net: netip.MustParsePrefix("127.0.0.0/8"), What: "this machine itself"}, {Net: netip.MustParsePrefix("::1/128"), What: "this machine itself"}}
	for _, own := range []struct {
		key  string
		nets func() ([]netip.Prefix, int, error)
	}{{"smtp.trusted", c.SMTP.trusted}, {"smtp.proxy_from", c.SMTP.proxies}, {"auth.clients", c.Auth.clients}, {"auth.trusted_relays", c.Auth.relays},
		{"milter.allow_from", c.Milter.allowed}, {"postfix.allow_from", c.Postfix.allowed}} {
		nets, _, _ := own.nets() // what users write was checked
		for _, n := range nets {
			s.Own = append(s.Own, lists.OwnNetwork{Net: n, What: "which is in " + own.key})
		}
	}
	return newGuard(s)
}

// liveList is the list of live entries as the index has it. What is in it has passed
// the gate one by one, and one person may add or remove many.
func (c Config) liveList() reload.List {
	return reload.List{
		Name: live.ListName, Path: live.ListPattern(c.liveFolder()), Settings: lists.Settings{Format: "plain"}, Exceptions: index.AllExceptions,
		Optional: true, AllowEmpty: true, MaxRecentBlocked: 1, MaxFreed: 1,
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
