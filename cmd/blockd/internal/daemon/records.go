package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"blockd/cmd/blockd/internal/upgrade"
	"blockd/cmd/blockd/internal/version"
	"blockd/doors/forget"
	"blockd/doors/httpapi"
	"blockd/records/audit"
	"blockd/records/correspondents"
	"blockd/records/firstseen"
	"blockd/records/pause"
)

// openAudit opens the journal, and notes there that this process begins. One that cannot be written is a problem of
// /readyz; until it can, nobody changes anything, and mail passes as ever.
func openAudit(_ context.Context, d *daemon, p *part) error {
	if d.audit = d.config.Journal(); d.audit == nil {
		return nil
	}
	d.metrics.MustRegister(d.audit)
	d.toHTTP.Audit = &httpapi.Audit{Log: d.audit, Folder: d.config.AuditFolder()}
	p.problems = lines(func() []string {
		if err := d.audit.Problem(); err != nil {
			return []string{err.Error()}
		}
		return nil
	})
	p.forget = func(all *forget.Places) { all.Audit = d.config.AuditFolder() }
	line := audit.Line{By: audit.Author(audit.Daemon, "blockd"), Action: audit.Start, Subject: "blockd " + version.Read().Version,
		Detail: fmt.Sprintf("configuration %s, SHA-256 %s", d.setup.path, d.setup.now.Load().Digest())}
	if d.upgrade.predecessor != nil {
		line.Detail += "; takes over from another process"
	}
	if err := d.audit.Add(line); err != nil {
		d.log.Error("audit journal cannot be written", slog.Any("error", err))
	}
	return nil
}

// openPauses opens the lists that do not count for a while.
func openPauses(_ context.Context, d *daemon, p *part) error {
	set, err := pause.Open(d.config.PausesPath())
	if err != nil {
		d.log.Error("no list is paused: the pauses cannot be read", slog.Any("error", err))
	}
	for _, p := range set.All(time.Now()) {
		d.log.Warn("list is paused", slog.String("list", p.List), slog.Time("until", p.Until), slog.String("by", p.By), slog.String("why", p.Why))
	}
	d.metrics.MustRegister(set)
	d.toHTTP.Pauses, d.setup.rules.Load().Paused = set, set.Paused
	p.run = func(ctx context.Context) error { return set.Run(ctx, d.log) }
	p.problems = lines(set.Problems)
	p.remarks = func() (all []string) {
		for _, p := range set.All(time.Now()) {
			all = append(all, fmt.Sprintf("list %s is paused %s", p.List, p))
		}
		return all
	}
	return nil
}

// openCorrespondents opens the correspondents. While a predecessor has them they are those that it has saved.
func openCorrespondents(ctx context.Context, d *daemon, p *part) error {
	tellAnew := func(anew error) {
		if anew != nil {
			d.log.Error("correspondents are forgotten", slog.Any("error", anew))
		}
	}
	var set *correspondents.Set
	var err error
	if s := d.config.CorrespondentSettings(); d.upgrade.predecessor != nil {
		set, err = correspondents.Read(s)
	} else {
		var anew error
		err = unlocked(ctx, correspondents.ErrLocked, func() (err error) {
			set, anew, err = correspondents.Open(s)
			return err
		})
		tellAnew(anew)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		d.log.Error("correspondents are not known, nor learned, until the next start", slog.Any("error", err))
		return nil
	}
	d.metrics.MustRegister(set)
	d.partners, d.toLists.Correspondents, d.setup.rules.Load().Correspondents.Known = set, set, set
	d.toHTTP.Person = &forget.Places{}
	kept := func(err error, whom string) error {
		if err != nil {
			d.log.Error("correspondents are not kept for the next "+whom, slog.Any("error", err))
		}
		return nil
	}
	p.run, p.alone = func(ctx context.Context) error { return set.Run(ctx, d.log) }, upgrade.Writes
	p.share = func(context.Context) error { return kept(set.Save(), "process") }
	p.yield = func(*upgrade.Successor) error { return kept(set.Yield(), "process") }
	p.resume = func(ctx context.Context, _ bool) error {
		return kept(unlocked(ctx, correspondents.ErrLocked, func() error {
			anew, err := set.Resume()
			tellAnew(anew)
			return err
		}), "start")
	}
	p.forget = func(all *forget.Places) { all.Correspondents = set }
	p.close = func() {
		kept(set.Save(), "start")
		set.Close()
	}
	return nil
}

// openFirstSeen opens the domains that have sent mail, if they are asked for. If they cannot be
// opened, all mail passes as if they were not: the set would take every domain for a new one.
func openFirstSeen(ctx context.Context, d *daemon, p *part) error {
	c := d.config
	d.setup.rules.Load().FirstSeen.Defers = c.FirstSeen.OnFirst == "tempfail"
	if !c.FirstSeen.Domains {
		return nil
	}
	var set *firstseen.Set
	open := func(ctx context.Context) error {
		var anew error
		err := unlocked(ctx, firstseen.ErrLocked, func() (err error) {
			set, anew, err = firstseen.Open(c.FirstSeenPath(), c.FirstSeen.Settings())
			return err
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			d.log.Error("no domain is treated as new: first_seen is off until the next start", slog.Any("error", err))
			return nil
		case anew != nil:
			d.log.Error("the domains that have sent mail are forgotten", slog.Any("error", anew))
		}
		set.Register(d.metrics)
		return nil
	}
	if d.upgrade.predecessor == nil { // else when it has yielded them
		if err := open(ctx); err != nil {
			return err
		}
		d.setup.rules.Load().FirstSeen.Domains = set
	}
	kept := func(err error, whom string) error {
		if err != nil {
			d.log.Error("the domains seen first are not kept for the next "+whom, slog.Any("error", err))
		}
		return nil
	}
	p.run, p.alone = func(ctx context.Context) error { return set.Run(ctx, d.log) }, upgrade.Writes
	p.yield = func(*upgrade.Successor) error { return kept(set.Yield(), "process") }
	p.resume = func(ctx context.Context, back bool) error {
		if back {
			return unlocked(ctx, firstseen.ErrLocked, set.Resume)
		}
		if err := open(ctx); err != nil {
			return err
		}
		rules := *d.setup.rules.Load()
		rules.FirstSeen.Domains = set
		d.setup.rules.Store(&rules)
		d.checker.Renew(rules)
		return nil
	}
	p.close = func() {
		// The milter and the policy service may have ended after the SMTP filter, and so after run.
		kept(set.Save(), "start")
		set.Close()
	}
	return nil
}
