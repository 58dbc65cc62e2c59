package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	dto "github.com/prometheus/client_model/go"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/upgrade"
	"blockd/doors/forget"
	"blockd/records/history"
	"blockd/records/repeat"
	"blockd/records/rollup"
	"blockd/reload"
)

// openRepeats makes what counts refusals that repeat.
func openRepeats(_ context.Context, d *daemon, p *part) error {
	d.repeats = repeat.NewTable()
	d.repeats.Register(d.metrics)
	d.setup.rules.Load().Repeats = d.repeats
	p.run = func(ctx context.Context) error { return d.repeats.Run(ctx, d.log, d.past.Add) }
	return nil
}

// openHistory opens the history, if one is to be kept. One that cannot be opened
// costs the history and no mail.
func openHistory(_ context.Context, d *daemon, p *part) error {
	c := d.config
	p.forget = func(all *forget.Places) { all.History = d.past.Forget }
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
	d.past, d.toHTTP.History, d.setup.rules.Load().History = l, l, l
	d.toLists.Judge, d.toLists.Refusals, d.toLists.PastMail = d.judge(), d.refusals, d.pastMail
	p.run = func(ctx context.Context) error { return l.Run(ctx, d.log) }
	p.yield = func(to *upgrade.Successor) error { return l.Yield(to.Lines) }
	p.resume = func(ctx context.Context, back bool) error {
		err := unlocked(ctx, history.ErrLocked, l.Resume)
		if err != nil && !back {
			d.log.Error("no history is kept", slog.Any("error", err))
			err = nil
		}
		return err
	}
	p.problems = lines(l.Problems)
	p.close = func() { l.Close() }
	return nil
}

// openPastMail reads the refusals of the last days, so that no reload waits for the first look. What goes wrong, that
// one says.
func openPastMail(_ context.Context, d *daemon, p *part) error {
	p.run = func(ctx context.Context) error {
		d.refusals(ctx)
		return nil
	}
	return nil
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

// openCharts keeps the counts of charts.
func openCharts(_ context.Context, d *daemon, p *part) error {
	d.charts = rollup.New(d.config.RollupPath(), d.totals)
	d.toHTTP.Rollup = d.charts
	folder := ""
	if d.past != nil {
		folder = d.config.HistoryFolder()
	}
	p.run, p.alone = func(ctx context.Context) error { return d.charts.Run(ctx, folder, d.log) }, upgrade.Writes
	return nil
}

// decided is told of every decision.
func (d *daemon) decided(r history.Record) {
	d.charts.Add(&r)
	d.toHTTP.Events.Add(r)
}

// answers are the counters of doors that decide nothing about mail.
var answers = map[string]string{"blockd_dnsbl_answers_total": "dns", "blockd_resp_answers_total": "resp"}

// totals are what other parts count, as charts want it.
func (d *daemon) totals() (all []rollup.Total) {
	for _, l := range d.checker.Hits().Counted() {
		all = append(all, rollup.Total{Overruled: true, Name: l.Name, N: l.Overridden})
	}
	if srv := d.checks.Load(); srv != nil {
		all = append(all, rollup.Total{Name: "http", N: srv.Checks()})
	}
	families, _ := d.metrics.Registry.Gather() // what can be had of it
	for _, f := range families {
		if door := answers[f.GetName()]; door != "" {
			all = append(all, rollup.Total{Name: door, N: sum(f)})
		}
	}
	return all
}

func sum(f *dto.MetricFamily) (n uint64) {
	for _, m := range f.Metric {
		n += uint64(m.GetCounter().GetValue())
	}
	return n
}
