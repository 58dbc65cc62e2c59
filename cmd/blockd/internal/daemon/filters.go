package daemon

import (
	"blockd/doors/httpapi"
	"blockd/doors/keptfilter"
	"blockd/index"
)

// openFilters makes what keeps the filters of [[filter]], and returns served, which then tells it too of each generation.
func (d *daemon) openFilters(served func(*index.Index)) func(*index.Index) {
	s := d.config.KeptFilters()
	s.Live = func() *index.Index { return d.lists.Live() }
	d.filters = keptfilter.New(s, d.log, d.metrics)
	return func(ix *index.Index) {
		if served != nil {
			served(ix)
		}
		d.filters.Served(ix)
	}
}

// keptFilters are what /v1/lists shows of them.
func (d *daemon) keptFilters() (all []httpapi.KeptFilter) {
	for _, s := range d.filters.Status() {
		f := httpapi.KeptFilter{Name: s.Name, To: s.Where, Generation: s.Generation, Keys: s.Keys, Patterns: s.Patterns, Bytes: s.Bytes, Error: s.Error}
		if !s.Written.IsZero() {
			f.Written = &s.Written
		}
		all = append(all, f)
	}
	return all
}
