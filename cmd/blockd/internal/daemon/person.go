package daemon

import (
	"context"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/forget"
	"blockd/index"
	"blockd/records/history"
	"blockd/records/letter"
)

// person is where something is kept about people.
func (d *daemon) person() *forget.Places {
	c := d.config
	p := &forget.Places{Correspondents: d.partners, Recent: d.recent, RecentPath: c.RecentPath(), Index: c.Index.Path, History: d.past.Forget,
		Requests: d.receipts.requests, Proposals: d.junk.Box, Hits: d.checker.Hits(), HitsPath: c.HitsPath(), Live: d.entries, Subaddress: c.Policy().Owners.Subaddress,
		Serving: func() (*index.Index, error) { return d.lists.Live(), nil }}
	if d.receipts.forget != nil {
		p.History = func(ctx context.Context, about func(*history.Record) bool) (int, error) {
			n, err := d.past.Forget(ctx, about)
			d.receipts.forget(about) // after it, so that nothing is found again
			return n, err
		}
	}
	p.Report = func(names func(string) bool) (int, error) { return letter.ForgetIn(c.ReportPath(), names) }
	if d.courier != nil {
		p.Report = d.courier.Forget
	}
	if d.aside.kept != nil {
		p.Quarantine, p.Purged = d.aside.folder, d.aside.kept.Recount
	}
	if c.Audit.Folder != config.None {
		p.Audit = c.AuditFolder()
	}
	return p
}
