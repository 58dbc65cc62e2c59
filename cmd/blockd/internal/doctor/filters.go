package doctor

import (
	"context"

	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/internal/term"
)

// checkFilters asks the daemon how the filters of [[filter]] are: only it has tried to write them.
func (d *doctor) checkFilters(ctx context.Context, r *report) {
	table, err := control.Lists(ctx, d.Config, false)
	switch {
	case err != nil && !d.running: // which one line says, and not one for each door
		return
	case err != nil:
		r.warning("the daemon tells by HTTP how they are: see http.listen", "%s cannot be examined: %v", term.Counted(len(d.Filters), "filter"), control.Cause(err))
		return
	}
	for i := range table.Filters {
		judgeFilter(r, &table.Filters[i])
	}
}

// judgeFilter reports a filter that could not be written: programs that ask it do not know of newer entries.
func judgeFilter(r *report, f *httpapi.KeptFilter) {
	switch {
	case f.Error != "" && f.Written == nil:
		r.fault("the daemon tries again by itself", "filter %s was never written to %s: %s", f.Name, f.To, f.Error)
	case f.Error != "":
		r.fault("the old one stays; the daemon tries again by itself", "filter %s in %s is as of %s: %s", f.Name, f.To, f.Written.Local().Format("2006-01-02 15:04:05"), f.Error)
	case f.Written == nil:
		r.warning("the daemon writes it after its lists have loaded", "filter %s is not yet written to %s", f.Name, f.To)
	case f.Patterns > 0:
		r.warning("a filter has keys only: ask blockd itself, or take the patterns out of its lists", "filter %s lacks %s", f.Name, term.Counted(f.Patterns, "pattern"))
	default:
		r.ok("filter %s has %s, in %s", f.Name, term.Counted(f.Keys, "key"), f.To)
	}
}
