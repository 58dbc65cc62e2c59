package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/cmd/blockd/internal/daemon"
	"blockd/index"
	"blockd/index/kept"
	"blockd/internal/secret"
	"blockd/internal/stamp"
	"blockd/internal/term"
	"blockd/lists"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/policy/verdict"
	"blockd/records/pause"
	"blockd/reload"
)

// openToCheck opens the index file, or the one of the configuration at path, with a
// Checker over it, and says on standard error if it is not what is configured, and why it is asked: "" = for no reason that
// needs a word.
func openToCheck(cmd *cobra.Command, path, file, why string) (*index.Index, *policy.Checker, config.Auth, error) {
	c := config.Config{Auth: config.Default().Auth}
	settings := policy.Settings{Owners: rule.DefaultOwners()}
	var sources []index.Source // as configured; nil with -i
	var pins []kept.Pin
	if file == "" {
		var err error
		if c, err = config.Load(path); err != nil {
			return nil, nil, config.Auth{}, err
		}
		file, settings = c.Index.Path, c.Policy()
		if settings.Live, err = control.ReadLive(c); err != nil {
			return nil, nil, config.Auth{}, err
		}
		pauses, err := pause.Open(c.PausesPath())
		if err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: no list is taken for paused: %v\n", cmd.CommandPath(), err)
		}
		settings.Paused = pauses.Paused
		settings.ShareKey = shareKey(cmd, c)
		if a := c.Recipients.Aliases; a != nil && a.Kind == "file" { // the daemon alone asks databases
			aliases, err := daemon.ReadAliases(cmd.Context(), c)
			if err != nil {
				return nil, nil, config.Auth{}, fmt.Errorf("recipients.aliases: %w", err)
			}
			settings.Owners.Aliases = &rule.Book{}
			settings.Owners.Aliases.Set(aliases)
		}
		settings.Stores = daemon.OpenAsked(c, slog.New(slog.DiscardHandler)) // until the process ends
		daemon.LoadFilters(c, settings.Stores)
		tellStandings(cmd, c)
		store := c.Kept()
		pins, _ = store.Pins() // what is wrong with them is told
		if sources, err = reload.PinnedSources(c.Reload().Lists, pins, store); err != nil {
			return nil, nil, config.Auth{}, err
		}
	}
	if sources == nil {
		path = ""
	}
	ix, err := control.OpenIndex(file, path)
	if err != nil {
		return nil, nil, config.Auth{}, err
	}
	if why != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s; the answers are those of the file %s\n", cmd.CommandPath(), why, term.Path(file))
	}
	if stale := staleness(cmd.Context(), ix, sources, pins); stale != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s; the answers are those of %s\n", cmd.CommandPath(), stale, term.Path(file))
	}
	live := func() *index.Index { return ix }
	// Its log and metrics are a daemon's; here the output says it all.
	checker := policy.New(live, settings, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return ix, checker, c.Auth, nil
}

// shareKey is what places senders for lists with percent. Where it cannot be read, places are any: that is said.
func shareKey(cmd *cobra.Command, c config.Config) (key [verdict.ShareKeySize]byte) {
	if c.Shares() {
		octets, err := secret.Read(c.ShareKeyPath(), len(key))
		if err != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: for which senders a list with percent counts is not known: %v\n", cmd.CommandPath(), err)
			return key
		}
		key = [verdict.ShareKeySize]byte(octets)
	}
	return key
}

// staleness says in what the index is not what the configuration asks for now;
// "" if it is, or if nothing was configured. A list that is as long as it was
// and older than the index is not read again.
func staleness(ctx context.Context, ix *index.Index, sources []index.Source, pins []kept.Pin) string {
	rows := ix.Lists()
	for i, s := range sources {
		if len(rows) != len(sources) || !rows[i].Source.Equal(s) {
			return "the lists are configured otherwise by now"
		}
		if rows[i].Guard != s.Settings.Guard.ID() {
			return "what no entry may cover is configured otherwise by now"
		}
		was := rows[i].Summary
		if s.Kept != "" {
			if at := slices.IndexFunc(pins, func(p kept.Pin) bool { return p.List == s.List }); at < 0 || !pins[at].Content.HasHash(s.Path, hex.EncodeToString(was.Hash[:])) {
				return "list " + s.List + " is held to something else by now"
			}
			continue
		}
		if was.Verdict == lists.Refused {
			return fmt.Sprintf("list %s was refused (%s), and the answer is without it", s.List, term.Visible(was.Why))
		}
		if info, err := os.Stat(s.Path); err == nil && info.Size() == was.Size && stamp.Changed(info).Before(ix.Built()) {
			continue
		}
		hash, err := lists.HashFile(ctx, s.Path)
		if err != nil && !s.Optional {
			return err.Error()
		}
		if hash != was.Hash {
			return term.Path(s.Path) + " has changed since"
		}
	}
	return ""
}
