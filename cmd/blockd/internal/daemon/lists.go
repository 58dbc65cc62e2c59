package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/version"
	"blockd/doors/httpapi"
	"blockd/index/live"
	"blockd/internal/secret"
	"blockd/mail/spool"
	"blockd/policy"
	"blockd/policy/verdict"
	"blockd/records/audit"
	"blockd/records/correspondents"
	"blockd/records/firstseen"
	"blockd/records/history"
	"blockd/records/pause"
	"blockd/records/repeat"
	"blockd/records/rollup"
	"blockd/reload"
	"blockd/reload/builder"
)

// openLists makes what stands behind the doors: lists, live entries, the history, and what
// decides by them.
func (d *daemon) openLists(ctx context.Context) (err error) {
	c := d.config
	if err := MakeIndexFolder(c); err != nil {
		return err
	}
	d.recent = reload.OpenRecent(c.RecentPath(), c.Index.Recent, d.log)
	d.events, d.repeats = httpapi.NewEvents(), repeat.NewTable()
	settings, verdicts := c.Reload(), c.Policy()
	if d.receipts.key != nil {
		verdicts.NewRef = d.receipts.key.NewRef
	}
	settings.Recent, settings.Blocks = d.recent, d.blocks
	if d.partners, err = d.openCorrespondents(ctx); err != nil {
		return err
	}
	settings.Correspondents, verdicts.Correspondents.Known = d.partners, d.partners
	d.openJunk()
	d.setup.rules.Store(&verdicts)
	if len(d.builder) > 0 {
		b := builder.New(d.log, d.builder...)
		settings.Build, settings.Parse = b.Build, b.Parse
	}
	settings.Kept = c.Kept()
	if len(d.builder) > 0 {
		settings.Kept.Run = builder.New(d.log, d.builder...).Kept // one of its own: it works beside the other
	}
	d.kept = settings.Kept
	d.beginAudit()
	if d.pauses, err = pause.Open(c.PausesPath()); err != nil {
		d.log.Error("no list is paused: the pauses cannot be read", slog.Any("error", err))
	}
	for _, p := range d.pauses.All(time.Now()) {
		d.log.Warn("list is paused", slog.String("list", p.List), slog.Time("until", p.Until), slog.String("by", p.By), slog.String("why", p.Why))
	}
	d.metrics.MustRegister(d.pauses)
	if verdicts.ShareKey, err = d.shareKey(c); err != nil {
		return err
	}
	verdicts.Paused = d.pauses.Paused
	if d.entries, err = d.openLive(ctx); err != nil {
		return fmt.Errorf("live entries: %w", err)
	}
	if d.shared, err = OpenShared(c, d.entries, d.log); err != nil {
		return err
	}
	if d.shared != nil {
		d.shared.Register(d.metrics)
	}
	if d.entries != nil {
		verdicts.Live, settings.Renew, settings.Served = d.entries, renew(d.entries, d.log), d.entries.Served
	}
	settings.Served = d.openPublishing(d.openFilters(settings.Served))
	d.noteLoads(&settings)
	d.openSources()
	d.asked = OpenAsked(c, d.log)
	d.asked.Register(d.metrics)
	verdicts.Stores = d.asked
	d.followAliases(ctx)
	verdicts.Owners.Aliases = d.aliases
	d.confirmed(settings.Lists)
	d.snapshotConfirmed(settings.Lists)
	if d.past = d.openHistory(); d.past != nil {
		settings.Judge, settings.Refusals, settings.PastMail = d.judge(), d.refusals, d.pastMail
	}
	if d.lists, err = reload.Open(ctx, settings, d.log, d.metrics); err != nil {
		return fmt.Errorf("lists: %w", err)
	}
	d.locks = append(d.locks, func() { d.lists.Status() })
	if d.fetcher, err = NewFetcher(c, d.log, d.metrics); err != nil {
		return fmt.Errorf("lists: %w", err)
	}
	verdicts.Completed, verdicts.Wants, verdicts.History, verdicts.Decided = d.recent.Add, d.recent.Wants, d.past, d.decided
	d.charts = rollup.New(c.RollupPath(), d.totals)
	if d.resolver, err = d.observedResolver(); err != nil {
		return err
	}
	verdicts.Auth.Resolver = d.resolver
	if d.upgrade.predecessor == nil { // else by takeWrites
		if d.domains, err = d.openFirstSeen(ctx); err != nil {
			return err
		}
	}
	verdicts.FirstSeen = policy.FirstSeen{Domains: d.domains, Defers: c.FirstSeen.OnFirst == "tempfail"}
	d.repeats.Register(d.metrics)
	verdicts.Repeats = d.repeats
	d.checker = policy.New(d.lists.Live, verdicts, d.log, d.metrics)
	if err := d.checker.Hits().Load(c.HitsPath()); err != nil {
		d.log.Error("hits begin anew", slog.Any("error", err))
	}
	// The copies are beside the index: that folder is written to anyway and is on a disk,
	// which the system's folder for temporary files need not be.
	d.copies = spool.New(spool.Settings{Dir: filepath.Dir(c.Index.Path)})
	return nil
}

// shareKey is what places senders for lists with percent. It is read, or made, when such a list comes first, and is the same
// as long as the process lives.
func (d *daemon) shareKey(c config.Config) (key [verdict.ShareKeySize]byte, err error) {
	if now := d.setup.rules.Load(); now != nil {
		key = now.ShareKey
	}
	if !c.Shares() || key != [verdict.ShareKeySize]byte{} {
		return key, nil
	}
	octets, err := secret.Open(c.ShareKeyPath(), len(key))
	if err != nil {
		return key, fmt.Errorf("percent: %w", err)
	}
	return [verdict.ShareKeySize]byte(octets), nil
}

// MakeIndexFolder makes the folder of the index file, so that a fresh checkout
// runs. The file itself has mode 0600.
func MakeIndexFolder(c config.Config) error {
	if err := os.MkdirAll(filepath.Dir(c.Index.Path), 0o755); err != nil {
		return fmt.Errorf("index.path: %w", err)
	}
	return nil
}

// How long another process may hold the live entries, and how often they are tried.
const (
	lockedFor  = 10 * time.Second
	retryEvery = 50 * time.Millisecond
)

// beginAudit notes in the journal that this process begins. One that cannot be written is a problem of /readyz; until it can,
// nobody changes anything, and mail passes as ever.
func (d *daemon) beginAudit() {
	if d.audit == nil {
		return
	}
	d.metrics.MustRegister(d.audit)
	line := audit.Line{By: audit.Author(audit.Daemon, "blockd"), Action: audit.Start, Subject: "blockd " + version.Read().Version,
		Detail: fmt.Sprintf("configuration %s, SHA-256 %s", d.setup.path, *d.setup.digest.Load())}
	if d.upgrade.predecessor != nil {
		line.Detail += "; takes over from another process"
	}
	if err := d.audit.Add(line); err != nil {
		d.log.Error("audit journal cannot be written", slog.Any("error", err))
	}
}

// openLive opens the live entries; nil if there are to be none. Another process may hold
// them for a moment: somebody who adds one while no daemon runs.
func (d *daemon) openLive(ctx context.Context) (*live.Set, error) {
	if d.config.Live.Folder == config.None {
		return nil, nil
	}
	open := live.Open
	if d.upgrade.predecessor != nil {
		open = live.OpenFollowing
	}
	var set *live.Set
	err := unlocked(ctx, live.ErrLocked, func() (err error) {
		set, err = open(d.config.LiveSettings(d.audit))
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, problem := range set.Problems() {
		d.log.Error("live entries damaged", slog.String("problem", problem))
	}
	set.Register(d.metrics)
	return set, nil
}

// unlocked tries open for as long as another process may hold what it opens.
func unlocked(ctx context.Context, locked error, open func() error) error {
	deadline := time.Now().Add(lockedFor)
	for {
		err := open()
		if !errors.Is(err, locked) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryEvery):
		}
	}
}

// openFirstSeen opens the domains that have sent mail; nil if they are not asked for. If they cannot be
// opened, all mail passes as if they were not: the set would take every domain for a new one.
func (d *daemon) openFirstSeen(ctx context.Context) (set *firstseen.Set, err error) {
	c := d.config
	if !c.FirstSeen.Domains {
		return nil, nil
	}
	var anew error
	err = unlocked(ctx, firstseen.ErrLocked, func() (err error) {
		set, anew, err = firstseen.Open(c.FirstSeenPath(), c.FirstSeen.Settings())
		return err
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		d.log.Error("no domain is treated as new: first_seen is off until the next start", slog.Any("error", err))
		return nil, nil
	case anew != nil:
		d.log.Error("the domains that have sent mail are forgotten", slog.Any("error", anew))
	}
	set.Register(d.metrics)
	return set, nil
}

// openCorrespondents opens the correspondents; nil if they cannot be opened. While a predecessor has them they are those that it
// has saved.
func (d *daemon) openCorrespondents(ctx context.Context) (set *correspondents.Set, err error) {
	s := d.config.CorrespondentSettings()
	if d.upgrade.predecessor != nil {
		set, err = correspondents.Read(s)
	} else {
		var anew error
		err = unlocked(ctx, correspondents.ErrLocked, func() (err error) {
			set, anew, err = correspondents.Open(s)
			return err
		})
		d.tellAnew(anew)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		d.log.Error("correspondents are not known, nor learned, until the next start", slog.Any("error", err))
		return nil, nil
	}
	d.metrics.MustRegister(set)
	return set, nil
}

// resumeCorrespondents takes what a predecessor has yielded.
func (d *daemon) resumeCorrespondents(ctx context.Context) {
	err := unlocked(ctx, correspondents.ErrLocked, func() error {
		anew, err := d.partners.Resume()
		d.tellAnew(anew)
		return err
	})
	if err != nil {
		d.log.Error("correspondents are not kept for the next start", slog.Any("error", err))
	}
}

func (d *daemon) tellAnew(anew error) {
	if anew != nil {
		d.log.Error("correspondents are forgotten", slog.Any("error", anew))
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

// openHistory opens the history; nil if none is to be kept. One that cannot be opened
// costs the history and no mail.
func (d *daemon) openHistory() *history.Log {
	c := d.config
	if c.History.Folder == config.None {
		return nil
	}
	open := history.Open
	if d.upgrade.predecessor != nil {
		open = history.OpenFollowing
	}
	l, err := open(history.Settings{Folder: c.HistoryFolder(), Max: int64(c.History.Max), Keep: time.Duration(c.History.Keep), Settle: d.repeats.Settle})
	if err != nil {
		d.log.Error("no history is kept", slog.Any("error", err))
		return nil
	}
	l.Register(d.metrics)
	return l
}

// refusedFor is how far back refusals are looked at before a load may lift them.
const refusedFor = 7 * 24 * time.Hour

// refusals reads the refusals of the last days, once for each load of lists.
func (d *daemon) refusals(ctx context.Context) (reload.Past, error) {
	return d.past.Refusals(ctx, time.Now().Add(-refusedFor), len(d.config.Lists)+1)
}

// pastMail gives the decisions about mail, as a reload judges them again.
func (d *daemon) pastMail(ctx context.Context, since time.Time, each func(time.Time, *history.Refusal) bool) error {
	d.past.Settle()
	_, err := history.Walk(ctx, d.config.HistoryFolder(), since, func(r *history.Record) bool {
		if r.Exempt || r.Outcome == history.Listed {
			return true // every sender may write there, or no mail was meant
		}
		mail := history.Refusal{Recipient: r.Recipient, Client: r.Client, Source: r.Source}
		if !r.Authenticated {
			mail.Sender = r.Sender
		}
		return each(r.Time, &mail)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Refusals is what the daemon goes by when a load would lift refusals, for a program that
// builds its index; nil where no history is kept.
func Refusals(c config.Config) func(context.Context) (reload.Past, error) {
	if c.History.Folder == config.None {
		return nil
	}
	return func(ctx context.Context) (reload.Past, error) {
		return history.Refusals(ctx, c.HistoryFolder(), time.Now().Add(-refusedFor), len(c.Lists)+1)
	}
}
