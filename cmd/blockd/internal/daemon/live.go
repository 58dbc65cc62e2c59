package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/upgrade"
	"blockd/doors/forget"
	"blockd/doors/httpapi"
	"blockd/index/live"
	"blockd/index/live/shared"
	"blockd/index/live/shared/redis"
	"blockd/index/live/shared/relay"
)

// openLive opens the live entries, if there are to be any. Another process may hold
// them for a moment: somebody who adds one while no daemon runs.
func openLive(ctx context.Context, d *daemon, p *part) error {
	if d.config.Live.Folder == config.None {
		return nil
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
		return fmt.Errorf("live entries: %w", err)
	}
	for _, problem := range set.Problems() {
		d.log.Error("live entries damaged", slog.String("problem", problem))
	}
	set.Register(d.metrics)
	d.entries, d.toHTTP.Entries, d.setup.rules.Load().Live = set, set, set
	d.toLists.Renew = renew(set, d.log)
	p.run, p.alone = func(ctx context.Context) error { return set.Run(ctx, d.log) }, upgrade.Writes
	p.yield = func(*upgrade.Successor) error { return set.Yield() }
	p.resume = func(ctx context.Context, back bool) error {
		err := unlocked(ctx, live.ErrLocked, set.Resume)
		if err != nil && !back {
			err = fmt.Errorf("live entries: %w", err)
		}
		return err
	}
	p.problems, p.served = lines(set.Problems), set.Served
	p.forget = func(all *forget.Places) { all.Live = set }
	p.close = func() { set.Close() }
	return nil
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

// openEngine makes the database of live.shared. It makes no connection.
func openEngine(c config.Config) (shared.Engine, error) {
	dsn, err := c.Live.ReadDSN()
	if err != nil {
		return nil, err
	}
	var e shared.Engine
	if c.Live.Shared == "redis" {
		e, err = redis.Open(dsn, c.Live.Name)
	} else {
		e, err = openSharedSQL(dsn, c.Live.Name)
	}
	if err != nil || len(c.Live.Relays) == 0 {
		return e, err
	}
	var idle func()
	if closes, ok := e.(interface{ Idle() }); ok { // a PostgreSQL has few connections
		idle = closes.Idle
	}
	return relay.New(e, c.Live.Relays, func() (string, error) { return httpapi.ReadToken(c.Live.RelayTokenFile) }, idle), nil
}

// openShared has the changes of live entries made by the database that a fleet shares.
func openShared(_ context.Context, d *daemon, p *part) error {
	n, err := OpenShared(d.config, d.entries, d.log)
	if err != nil || n == nil {
		return err
	}
	n.Register(d.metrics)
	d.shared, d.toHTTP.Shared = n, n
	p.run, p.alone, p.problems, p.close = n.Run, upgrade.Writes, lines(n.Problems), n.Close
	return nil
}

// OpenShared has the changes of a set made by the database that its fleet shares; nil if the set is of this machine
// alone.
func OpenShared(c config.Config, set *live.Set, log *slog.Logger) (*shared.Node, error) {
	if c.Live.Shared == "" || set == nil {
		return nil, nil
	}
	e, err := openEngine(c)
	if err != nil {
		return nil, fmt.Errorf("live.shared: %w", err)
	}
	key, err := c.Live.ReadTokenKey()
	if err != nil {
		return nil, fmt.Errorf("live.%w", err)
	}
	var poll time.Duration
	if len(c.Live.Relays) > 0 {
		poll = relay.Poll
	}
	n, err := shared.Open(shared.Options{Poll: poll, Engine: e, Kind: c.Live.Shared, Name: c.Live.Name, Alone: c.Live.OnOutage == "local", Folder: c.LiveFolder(), Set: set, Log: log, Audit: c.Journal(), Token: httpapi.CheckToken, Key: key})
	if err != nil {
		return nil, fmt.Errorf("live.shared: %w", err)
	}
	return n, nil
}

// TrySharedStore asks the database of live.shared once, and says how far its clock is before this machine's.
func TrySharedStore(ctx context.Context, c config.Config) (store string, offset time.Duration, err error) {
	e, err := openEngine(c)
	if err != nil {
		return "", 0, err
	}
	defer e.Close()
	before := time.Now()
	state, err := e.State(ctx)
	took := time.Since(before)
	return e.String(), state.Now.Sub(before.Add(took / 2)), err
}

// openJunk makes what takes messages that users move to Junk. It is of use where there are live entries.
func openJunk(_ context.Context, d *daemon, p *part) error {
	desk := d.config.JunkDesk()
	if d.entries != nil {
		d.toHTTP.Junk, desk.Entries, desk.Correspondents = desk, d.entries, d.partners
	}
	box := desk.Box
	p.forget = func(all *forget.Places) { all.Proposals = box }
	if box == nil {
		return nil
	}
	d.metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_proposals_open",
		Help: "Senders whom several users do not want, that wait for a person to adopt or decline."}, func() float64 { return float64(box.CountOpen()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_proposals_damaged_lines",
			Help: "Lines of the file of proposals that cannot be read, and are left out."}, func() float64 { return float64(box.Damaged()) }))
	return nil
}
