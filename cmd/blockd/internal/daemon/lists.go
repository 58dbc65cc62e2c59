package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/upgrade"
	"blockd/doors/forget"
	"blockd/doors/httpapi"
	"blockd/doors/keptfilter"
	"blockd/index"
	"blockd/internal/secret"
	"blockd/mail/msgauth"
	"blockd/mail/spool"
	"blockd/policy"
	"blockd/policy/verdict"
	"blockd/reload"
	"blockd/reload/builder"
)

// openRules makes the folder of the index, and what the configuration says to the lists and to the checker. Other
// parts add to it until these are opened.
func openRules(_ context.Context, d *daemon, p *part) (err error) {
	c := d.config
	if err := MakeIndexFolder(c); err != nil {
		return err
	}
	rules := c.Policy()
	d.setup.rules.Store(&rules)
	if rules.ShareKey, err = d.shareKey(c); err != nil {
		return err
	}
	d.toLists = c.Reload()
	d.toLists.Blocks = d.blocks
	d.toHTTP.Events = httpapi.NewEvents()
	p.problems = lines(d.setup.problems)
	return nil
}

// shareKey is what places senders for lists with percent. It is read, or made, when such a list comes first, and is
// the same as long as the process lives.
func (d *daemon) shareKey(c config.Config) (key [verdict.ShareKeySize]byte, err error) {
	if key = d.setup.rules.Load().ShareKey; !c.Shares() || key != [verdict.ShareKeySize]byte{} {
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

// openRecent opens the senders accepted lately.
func openRecent(_ context.Context, d *daemon, p *part) error {
	path := d.config.RecentPath()
	recent := reload.OpenRecent(path, d.config.Index.Recent, d.log)
	rules := d.setup.rules.Load()
	d.toLists.Recent, rules.Completed, rules.Wants = recent, recent.Add, recent.Wants
	p.run, p.alone = func(ctx context.Context) error { return recent.Keep(ctx, path, d.log) }, upgrade.Writes
	p.share = func(context.Context) error {
		if err := recent.Save(path); err != nil {
			d.log.Error("who wrote lately is not kept for the next process", slog.Any("error", err))
		}
		return nil
	}
	p.forget = func(all *forget.Places) { all.Recent, all.RecentPath = recent, path }
	return nil
}

// openReloader opens the lists.
func openReloader(ctx context.Context, d *daemon, p *part) (err error) {
	s, now := d.toLists, &d.setup.now
	s.Kept = d.config.Kept()
	if len(d.builder) > 0 {
		b := builder.New(d.log, d.builder...)
		s.Build, s.Parse = b.Build, b.Parse
		s.Kept.Run = builder.New(d.log, d.builder...).Kept // one of its own: it works beside the other
	}
	s.Served = func(ix *index.Index) {
		for _, p := range d.parts {
			if p.served != nil {
				p.served(ix)
			}
		}
	}
	if d.lists, err = reload.Open(ctx, s, d.log, d.metrics); err != nil {
		return fmt.Errorf("lists: %w", err)
	}
	d.toHTTP.Undo = &httpapi.Undo{Kept: s.Kept, Lists: func() []string { return now.Load().Undoable() }, Review: func(list string) bool { return now.Load().Reviews(list) },
		Serves: d.lists.Pinned, Good: func(ctx context.Context, list string) error { return config.Adoptable(ctx, *now.Load(), list) }, HeldBack: d.lists.HeldBack}
	p.run = d.lists.Run
	p.lock = func() { d.lists.Status() }
	p.share = func(ctx context.Context) error {
		d.lists.Follow(true)
		return index.WaitBuilt(ctx, d.config.Index.Path) // what this process has begun to build
	}
	p.forget = func(all *forget.Places) {
		all.Index, all.Serving = d.config.Index.Path, func() (*index.Index, error) { return d.lists.Live(), nil }
	}
	return nil
}

// openChecker makes what decides, and counts the hits of entries.
func openChecker(_ context.Context, d *daemon, p *part) error {
	rules, path := d.setup.rules.Load(), d.config.HitsPath()
	rules.Decided = d.decided
	d.checker = policy.New(d.lists.Live, *rules, d.log, d.metrics)
	hits := d.checker.Hits()
	if err := hits.Load(path); err != nil {
		d.log.Error("hits begin anew", slog.Any("error", err))
	}
	// The copies are beside the index: that folder is written to anyway and is on a disk,
	// which the system's folder for temporary files need not be.
	d.copies = spool.New(spool.Settings{Dir: filepath.Dir(d.config.Index.Path)})
	p.run, p.alone = func(ctx context.Context) error { return hits.Keep(ctx, path, d.log) }, upgrade.Writes
	p.forget = func(all *forget.Places) { all.Hits, all.HitsPath, all.Subaddress = hits, path, rules.Owners.Subaddress }
	return nil
}

// openFilters makes what keeps the filters of [[filter]].
func openFilters(_ context.Context, d *daemon, p *part) error {
	s := d.config.KeptFilters()
	s.Live = func() *index.Index { return d.lists.Live() }
	k := keptfilter.New(s, d.log, d.metrics)
	p.run, p.alone, p.problems, p.served = k.Run, upgrade.Lists, lines(k.Problems), k.Served
	d.toHTTP.Filters = func() (all []httpapi.KeptFilter) {
		for _, s := range k.Status() {
			f := httpapi.KeptFilter{Name: s.Name, To: s.Where, Generation: s.Generation, Keys: s.Keys, Patterns: s.Patterns, Bytes: s.Bytes, Error: s.Error}
			if !s.Written.IsZero() {
				f.Written = &s.Written
			}
			all = append(all, f)
		}
		return all
	}
	return nil
}

// NewResolver returns the one that SPF and DKIM share; observe may be nil.
func NewResolver(a config.Auth, observe func(msgauth.Query)) (*msgauth.Resolver, error) {
	r, err := msgauth.NewResolver(msgauth.Settings{
		Server: a.Resolver, Timeout: time.Duration(a.DNSTimeout), TrustedRelays: config.Networks(a.TrustedRelays), Observe: observe,
	})
	if err != nil {
		return nil, fmt.Errorf("auth.resolver: %w", err)
	}
	return r, nil
}

// openResolver makes the resolver with its metrics.
func openResolver(_ context.Context, d *daemon, _ *part) (err error) {
	auto := promauto.With(d.metrics)
	times := auto.NewHistogramVec(prometheus.HistogramOpts{Name: "blockd_dns_query_seconds",
		Help:    "DNS queries for SPF, DKIM and PTR rules, by outcome: records, none, error.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 7)}, []string{"outcome"}) // 1 ms to 4 s
	_, day := msgauth.SuffixList()
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "blockd_public_suffix_list_timestamp_seconds",
		Help: "The day of the Public Suffix List that this program has, by Unix time."},
		func() float64 { return float64(day.Unix()) })
	d.resolver, err = NewResolver(d.config.Auth, func(q msgauth.Query) { times.WithLabelValues(q.Outcome).Observe(q.Elapsed.Seconds()) })
	d.setup.rules.Load().Auth.Resolver, d.toHTTP.Proves = d.resolver, d.proves
	d.toHTTP.Message = httpapi.Message{Resolver: d.resolver, Max: int64(d.config.Auth.MaxMessage)}
	return err
}
