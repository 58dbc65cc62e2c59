package daemon

import (
	"context"

	dto "github.com/prometheus/client_model/go"

	"blockd/cmd/blockd/internal/config"
	"blockd/records/history"
	"blockd/records/rollup"
)

// decided is told of every decision.
func (d *daemon) decided(r history.Record) {
	d.charts.Add(&r)
	d.events.Add(r)
}

// runCharts keeps the counts of charts.
func (d *daemon) runCharts(ctx context.Context) error {
	folder := ""
	if d.past != nil && d.config.History.Folder != config.None {
		folder = d.config.HistoryFolder()
	}
	return d.charts.Run(ctx, folder, d.log)
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
