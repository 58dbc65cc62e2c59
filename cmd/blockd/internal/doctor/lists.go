package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/cmd/blockd/internal/control"
	"blockd/doors/httpapi"
	"blockd/internal/term"
)

// checkLists asks the daemon for its lists, or else reads the index.
func (d *doctor) checkLists(ctx context.Context, r *report) {
	if len(d.Lists) == 0 {
		r.warning("write a [[list]]", "no lists are configured")
		return
	}
	table, err := control.Lists(ctx, d.Config, false)
	from := "the daemon"
	if err != nil {
		from = term.Path(d.Index.Path)
		if _, there := os.Stat(d.Index.Path); errors.Is(there, fs.ErrNotExist) && !d.running {
			return // it is built when the daemon starts
		}
		if table, err = control.IndexLists(d.Index.Path, d.path, &d.Config); errors.Is(err, fs.ErrNotExist) || err != nil && !d.running {
			r.warning("the daemon builds it when it starts; or run: blockd compile -c "+term.Path(d.path), "%v", err)
			return
		} else if err != nil {
			r.fault("run: blockd compile -c "+term.Path(d.path), "%v", err)
			return
		}
	}
	entries, before := 0, len(r.found)
	for _, l := range d.Lists {
		if l.Asked() {
			continue // /v1/lists tells of its store
		}
		i := slices.IndexFunc(table.Worth, func(w httpapi.ListWorth) bool { return w.List == l.Name })
		if i < 0 {
			hint := "see the daemon's log, and: blockd lint " + term.Path(l.Path)
			if l.Optional {
				r.ok("list %s is not there, and optional", l.Name)
			} else {
				r.fault(hint, "list %s is not loaded (as %s has it)", l.Name, from)
			}
			continue
		}
		w := table.Worth[i]
		entries += w.Entries
		d.judgeList(r, l, w)
	}
	if len(r.found) == before {
		r.ok("%s, %s (as %s has them)", term.Counted(len(d.Lists), "list"), term.Counted(entries, "entry"), from)
	}
}

// A fetched list may be unconfirmed for this many times its every, and at least for this long.
const (
	unconfirmed      = 5
	leastUnconfirmed = 24 * time.Hour
)

// judgeAge reports a fetched list whose server has been silent for long. at is when the
// server last confirmed what serves.
func (d *doctor) judgeAge(r *report, l config.List, at *time.Time) {
	if l.URL == "" || at == nil {
		return
	}
	every := time.Hour
	if l.Every != nil {
		every = time.Duration(*l.Every)
	}
	if age := d.now.Sub(*at); age > max(unconfirmed*every, leastUnconfirmed) {
		r.warning("see the daemon's log: list not fetched", "list %s: its server has not confirmed it for %s", l.Name, term.Span(age))
	}
}

// judgeList reports what is wrong with a known list.
func (d *doctor) judgeList(r *report, l config.List, w httpapi.ListWorth) {
	why := ""
	if len(w.Problems) > 0 {
		why = ": " + strings.Join(w.Problems, "; ")
	}
	if w.Accept != "" {
		r.fault("if that is meant: "+w.Accept, "list %s is %s%s; what was loaded before serves on", l.Name, w.State, why)
		return
	}
	switch w.State {
	case httpapi.ListOK:
		d.judgeAge(r, l, w.Modified)
	case httpapi.ListStale:
		r.warning("does anybody still write it? See max_age", "list %s is older than its max_age%s", l.Name, why)
	case httpapi.ListWaits:
		r.warning("see: blockd diff "+term.Word(l.Name)+"; then: blockd adopt "+term.Word(l.Name), "list %s filters nothing until its first load is adopted", l.Name)
	case httpapi.ListPartial:
		r.warning("see: blockd lint "+term.Path(l.Path), "list %s serves without lines that are refused%s", l.Name, why)
	case httpapi.ListMissing:
		if l.Optional {
			return
		}
		r.fault("put the file there; what was loaded before serves on", "list %s: its file is missing%s", l.Name, why)
	default:
		r.fault("see: blockd lint "+term.Path(l.Path)+"; what was loaded before serves on", "list %s is %s%s", l.Name, w.State, why)
	}
}
