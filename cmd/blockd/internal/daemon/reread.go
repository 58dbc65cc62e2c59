package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/upgrade"
	"blockd/doors/httpapi"
	"blockd/index"
	"blockd/index/live"
	"blockd/mail/addr"
	"blockd/policy"
	"blockd/policy/verdict"
	"blockd/records/audit"
	"blockd/records/history"
	"blockd/reload"
)

// setup is what follows the configuration while the daemon runs. The rest of daemon is made once.
type setup struct {
	turn   sync.Mutex // held by the one reading of the file that is under way
	path   string     // of the file
	level  slog.LevelVar
	rules  atomic.Pointer[policy.Settings] // as the checker has them
	faults atomic.Pointer[config.Faults]   // of the last reading; nil: there are none
	now    atomic.Pointer[config.Config]   // in force; who holds turn may change it
}

// serving is by what the daemon answers.
func (d *daemon) serving() httpapi.Serving {
	return httpapi.Serving{Generation: d.lists.Live().Generation(), Index: d.config.Index.Path, Configuration: d.setup.now.Load().Digest()}
}

// reread reads the configuration, and all lists, and returns when they are taken up or ctx ends. A configuration with
// a fault changes nothing, and its faults are problems of /readyz until a good one is read; the lists are read all the
// same. The error wraps live.ErrYielded where another process has taken over meanwhile, which is to be asked then.
func (d *daemon) reread(ctx context.Context, by string) (answer httpapi.Reloaded, err error) {
	d.setup.turn.Lock()
	defer d.setup.turn.Unlock()
	if _, to := d.upgrade.hasYielded(); to != nil {
		return answer, fmt.Errorf("another process has taken over: %w", live.ErrYielded)
	}
	return d.takeUp(ctx, by), nil
}

// takeUp is reread for a caller that holds d.setup.turn, while no other process has taken over.
func (d *daemon) takeUp(ctx context.Context, by string) (answer httpapi.Reloaded) {
	answer = httpapi.Reloaded{Faults: []string{}, Keys: []string{}, Lists: []string{}}
	c, changes, err := config.Reread(d.setup.path, *d.setup.now.Load())
	if err == nil && len(changes.Beyond) > 0 {
		var said []string
		d.audited(by, changes)
		if said, err = d.renewed(ctx, changes); err == nil {
			answer.Keys, answer.Lists = append(answer.Keys, changes.Keys...), append(answer.Lists, slices.Concat(changes.Changed, changes.Added, changes.Removed)...)
			answer.Swapped, answer.Generation, answer.Problems = said[0] != d.lists.Live().Generation(), said[0], said[1:]
			return answer
		}
	}
	var key [verdict.ShareKeySize]byte
	if err == nil {
		if key, err = d.shareKey(c); err != nil {
			err = config.Faults{changes.Fault(err.Error())}
		}
	}
	if faults, bad := errors.AsType[config.Faults](err); bad {
		d.setup.faults.Store(&faults)
		for _, f := range faults {
			answer.Faults = append(answer.Faults, f.Error())
			d.log.Error("configuration not taken up", slog.String("fault", f.Error()))
		}
	} else {
		d.setup.faults.Store(nil)
		d.audited(by, changes)
		d.follow(c, changes, key)
		answer.Keys, answer.Lists = append(answer.Keys, changes.Keys...), append(answer.Lists, changes.Changed...)
	}
	for _, p := range d.parts {
		if p.renew != nil {
			p.renew()
		}
	}
	answer.Swapped, err = d.lists.Look(ctx)
	status := d.lists.Status()
	answer.Generation, answer.Problems = status.Generation, append([]string{}, status.Told()...)
	if err == nil && answer.Nothing() {
		d.log.Info("nothing changed", slog.String("generation", answer.Generation))
	}
	return answer
}

// audited notes in the journal that a configuration is taken up. That it cannot be noted keeps no configuration away:
// whoever wrote the file has changed it already.
func (d *daemon) audited(by string, changes config.Changes) {
	if len(changes.Keys)+len(changes.Changed)+len(changes.Added)+len(changes.Removed) == 0 {
		return
	}
	var detail []string
	for _, c := range []struct {
		what  string
		names []string
	}{{"keys", changes.Keys}, {"lists changed", changes.Changed}, {"added", changes.Added}, {"removed", changes.Removed}} {
		if len(c.names) > 0 {
			detail = append(detail, c.what+": "+strings.Join(c.names, ", "))
		}
	}
	if err := d.audit.Add(audit.Line{By: by, Action: audit.Configuration, Subject: d.setup.path, Detail: strings.Join(detail, "; ")}); err != nil {
		d.log.Error("configuration taken up, and not in the audit journal", slog.Any("error", err))
	}
}

// renewed has another process take over, by changes that this one cannot follow. It returns the generation by which
// that one answers, and the problems of its lists. The error is config.Faults; then this process serves on.
func (d *daemon) renewed(ctx context.Context, changes config.Changes) (said []string, err error) {
	if d.upgrade.program.Path == "" {
		return nil, changes.Beyond
	}
	_, text, err := d.handToNew(ctx, changePatience)
	if err != nil {
		words := err.Error()
		if failed, ok := errors.AsType[upgrade.Failed](err); ok {
			words = string(failed) // without how the process ended
		}
		return nil, config.Faults{changes.Fault(words)}
	}
	d.log.Info("configuration taken up by another process", slog.Any("keys", changes.Keys))
	return strings.Split(text, "\n"), nil
}

// follow makes c, which differs in what can be followed alone, the configuration in force.
func (d *daemon) follow(c config.Config, changes config.Changes, key [verdict.ShareKeySize]byte) {
	if changes.None() {
		return
	}
	rules, now := c.Policy(), *d.setup.rules.Load()
	now.RecipientsExempt, now.Lists, now.Policies, now.Contact, now.Text = rules.RecipientsExempt, rules.Lists, rules.Policies, rules.Contact, rules.Text
	rules.Owners.Aliases = now.Owners.Aliases
	now.Owners = rules.Owners
	rules.Auth.Resolver = now.Auth.Resolver
	now.Auth = rules.Auth
	now.ShareKey = key
	now.Correspondents.Learn, now.Correspondents.Excuse = rules.Correspondents.Learn, rules.Correspondents.Excuse
	now.FirstSeen.Defers = c.FirstSeen.OnFirst == "tempfail"
	d.setup.rules.Store(&now)
	d.checker.Renew(now)
	d.setup.level.Set(level(c.Log))
	d.setup.now.Store(&c)
	for _, text := range c.Warnings() {
		d.log.Warn("configuration", slog.String("warning", text))
	}
	d.log.Info("configuration taken up", slog.Any("keys", changes.Keys))
}

// problems are the faults of a configuration that was not taken up.
func (s *setup) problems() (lines []string) {
	if faults := s.faults.Load(); faults != nil {
		for _, f := range *faults {
			lines = append(lines, "configuration not taken up: "+f.Error())
		}
	}
	return lines
}

// blocks is policy.Settings.Blocks by the rules in force.
func (d *daemon) blocks(ix *index.Index, sender addr.Addr, client netip.Addr) []index.Match {
	return d.setup.rules.Load().Blocks(ix, sender, client)
}

// judge is policy.Settings.Judge by the rules in force when it is called.
func (d *daemon) judge() reload.Judge {
	var last *policy.Settings
	var by reload.Judge
	return func(ix *index.Index, past *history.Refusal) (m index.Match, blocked, ok bool) {
		if now := d.setup.rules.Load(); now != last {
			last, by = now, now.Judge()
		}
		return by(ix, past)
	}
}
