// Package export writes what an index holds as a list of another program. What is written
// refuses less than blockd, not more.
package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"slices"
	"time"

	"blockd/index"
	"blockd/lists"
	"blockd/mail/addr"
	"blockd/policy/rule"
)

// Job is one list to write.
type Job struct {
	Index         *index.Index
	Format        string                  // one of lists.WritableFormats
	Lists         []string                // that are written; none: all that refuse
	Rules         map[string]rule.List    // by list; without a configuration all refuse
	IgnoreSenders bool                    // auth.unverified_allow = "ignore": exceptions for senders without require override nothing
	Progress      func(done, total int64) // called now and then; nil: no reports
}

// shownEvery is after how many entries Progress is called.
const shownEvery = 4096

// Write writes the list, and returns what became of the entries.
func (j Job) Write(ctx context.Context, out io.Writer) (*Result, error) {
	w, err := lists.NewWriter(out, j.Format, fmt.Sprintf("written by blockd export: generation %s, built %s",
		j.Index.Generation(), j.Index.Built().UTC().Format(time.RFC3339)))
	if err != nil {
		return nil, err
	}
	e := j.exporter(w)
	for entry, err := range j.entries(ctx, e.rows, e.now) {
		if err != nil {
			return nil, err
		}
		it, list := &entry.Item, j.Index.Lists()[entry.Row].Source.List
		switch {
		case it.Action == lists.Block && j.Rules[list].OnMatch == rule.Tempfail:
			it.Action = lists.Tempfail
		case it.Action == lists.Allow && !j.believed(list, it.Kind):
			it.Action = lists.AllowIfAuth
		}
		if err := e.write(it, entry.Row); err != nil {
			return nil, err
		}
	}
	return e.told, w.Close()
}

// exporter begins the job.
func (j Job) exporter(w *lists.Writer) *exporter {
	e := &exporter{Job: j, w: w, rows: j.rows(), now: time.Now(), told: &Result{format: j.Format}}
	for n, row := range j.Index.Lists() {
		if e.rows[n] && row.Source.Settings.Action != lists.Allow {
			e.blocking = append(e.blocking, row.Source.List)
		}
		if about := e.about(row.Source.List); e.rows[n] && about.Forbids() && !slices.ContainsFunc(e.told.restricted, func(r Restricted) bool { return r.List == row.Source.List }) {
			e.told.restricted = append(e.told.restricted, Restricted{row.Source.List, about.Licence})
		}
		if counts := row.Source.Mode == index.Enforce || e.rows[n]; counts && row.Summary.Verdict != lists.Refused {
			e.excepts = append(e.excepts, n)
		}
	}
	return e
}

// about is where a list comes from.
func (j Job) about(list string) lists.About {
	return j.Rules[list].Origin(list, j.Index.Lists())
}

// entries walks over the entries of rows that are in force at a time, each once, and calls
// Progress. An error ends the walk and comes with a zero Entry.
func (j Job) entries(ctx context.Context, rows []bool, at time.Time) iter.Seq2[index.Entry, error] {
	return j.inForce(j.Index.Entries(ctx, func(row int) bool { return rows[row] }), rows, at)
}

// inForce passes on those entries of a walk that are of rows and in force at a time, each once,
// and calls Progress.
func (j Job) inForce(walk iter.Seq2[index.Entry, error], rows []bool, at time.Time) iter.Seq2[index.Entry, error] {
	done, total := int64(0), int64(0)
	for n, row := range j.Index.Lists() {
		if rows[n] {
			total += int64(row.Entries())
		}
	}
	return func(yield func(index.Entry, error) bool) {
		for entry, err := range walk {
			if err == nil && !rows[entry.Row] {
				continue
			}
			if done++; done%shownEvery == 0 && j.Progress != nil {
				j.Progress(done, total)
			}
			if err == nil && (entry.Again || !entry.Expires.IsZero() && !entry.Expires.After(at)) {
				continue
			}
			if !yield(entry, err) {
				return
			}
		}
	}
}

// rows are those of the named lists; without names, of those that refuse, and of
// exceptions.
func (j Job) rows() []bool {
	rows := make([]bool, len(j.Index.Lists()))
	for i, row := range j.Index.Lists() {
		r := j.Rules[row.Source.List]
		passes := r.OnMatch == rule.Quarantine || r.OnMatch == rule.Tag || !r.Match.Envelope()
		if rows[i] = row.Source.Mode == index.Enforce && !passes; len(j.Lists) > 0 {
			rows[i] = slices.Contains(j.Lists, row.Source.List)
		}
	}
	return rows
}

// believed reports whether the other program may let pass what an exception of a list
// covers: none of them can ask for the proof that the list wants. Entries for client
// addresses prove themselves.
func (j Job) believed(list string, kind lists.Kind) bool {
	return kind == lists.IP || kind == lists.CIDR || !j.IgnoreSenders && j.Rules[list].Require == 0
}

// exporter is a Job under way.
type exporter struct {
	Job
	w        *lists.Writer
	rows     []bool   // that are written
	excepts  []int    // rows whose exceptions count, written or not, if they are believed
	blocking []string // lists that are written and may block
	now      time.Time
	told     *Result
	matches  []index.Match
}

// reaches reports whether the exceptions of a row go before the blocks of another.
func (e *exporter) reaches(row, block int) bool {
	source := &e.Index.Lists()[row].Source
	switch source.Reach() {
	case index.AllExceptions:
		return true
	case index.OwnExceptions:
		return source.List == e.Index.Lists()[block].Source.List
	}
	return false
}

// written reports whether all exceptions of a row are written, see sayable.
func (e *exporter) written(row int) bool {
	source := &e.Index.Lists()[row].Source
	return source.Reach() == index.AllExceptions || !slices.ContainsFunc(e.blocking, func(list string) bool { return list != source.List })
}

// sayable reports whether the file may have an exception of a row: the other program
// knows one list, in which it goes before the blocks of all. Of one that lifts its own
// list's blocks alone, this is so where no other list that is written can block there:
// where there is none, and for a single address or client that none has.
func (e *exporter) sayable(it *lists.Item, row int) (bool, error) {
	source := &e.Index.Lists()[row].Source
	switch {
	case source.Reach() == index.NoExceptions:
		return false, nil
	case e.written(row):
		return true, nil
	}
	var err error
	switch {
	case it.Kind == lists.IP:
		e.matches, err = e.Index.LookupClient(e.matches[:0], it.Net.Addr(), e.now)
	case it.Kind == lists.Addr && it.Scope == lists.Exact:
		a, bad := addr.Parse(it.Key.Text)
		if bad != nil {
			return false, nil
		}
		e.matches, err = e.Index.Lookup(e.matches[:0], a, e.now)
	default:
		return false, nil
	}
	return !slices.ContainsFunc(e.matches, func(m index.Match) bool {
		return e.rows[m.Row] && !m.Action.Allows() && e.Index.Lists()[m.Row].Source.List != source.List
	}), err
}

// write writes one entry, as far as no exception covers it.
func (e *exporter) write(it *lists.Item, row int) error {
	if it.Action.Allows() {
		if ok, err := e.sayable(it, row); err != nil {
			return err
		} else if !ok {
			e.told.stayed++
			return nil
		}
	} else {
		rest, err := e.uncovered(it, row)
		if err != nil {
			return err
		}
		if rest == nil {
			e.told.excepted++
			return nil
		}
		if rest.Scope != it.Scope {
			e.told.reduced++
		}
		it = rest
	}
	if e.w.Origins() {
		it.Origin = fmt.Sprintf("%s:%d", e.Index.Lists()[row].Source.Path, it.Line)
	}
	narrowed, err := e.w.Write(it)
	switch {
	case errors.Is(err, lists.ErrUnsayable):
		e.told.leave(it)
		return nil
	case narrowed:
		e.told.narrowed++
	}
	e.told.written++
	return err
}

// uncovered is what is left of an entry when all is taken away that an exception
// covers which the file will not have, or which is not put first there: nil if that
// is all of it. A single exception inside the entry takes nothing away.
func (e *exporter) uncovered(it *lists.Item, row int) (*lists.Item, error) {
	switch it.Kind {
	case lists.IP, lists.CIDR:
		covered, err := e.covered(it, row, "", it.Net.Addr())
		if err != nil || covered {
			return nil, err
		}
	case lists.Addr:
		if it.Scope == lists.Local {
			return it, nil
		}
		covered, err := e.covered(it, row, it.Key.Text, netip.Addr{})
		if err != nil || covered {
			return nil, err
		}
	case lists.Domain:
		var name, below bool
		var err error
		if it.Scope != lists.Sub {
			name, err = e.covered(it, row, "x@"+it.Key.Text, netip.Addr{})
		}
		if it.Scope != lists.Exact && err == nil {
			below, err = e.covered(it, row, "x@0."+it.Key.Text, netip.Addr{})
		}
		rest := *it
		switch {
		case err != nil:
			return nil, err
		case it.Scope == lists.Tree && name && !below:
			rest.Scope = lists.Sub
		case it.Scope == lists.Tree && below && !name:
			rest.Scope = lists.Exact
		case name || below:
			return nil, nil
		}
		return &rest, nil
	}
	return it, nil
}

// covered reports whether an exception that counts here covers all senders like
// that one, or the whole of the entry's network.
func (e *exporter) covered(it *lists.Item, row int, sender string, client netip.Addr) (bool, error) {
	var err error
	if client.IsValid() {
		e.matches, err = e.Index.LookupClient(e.matches[:0], client, e.now)
	} else {
		a, bad := addr.Parse(sender)
		if bad != nil {
			return false, nil // too long for an address
		}
		e.matches, err = e.Index.Lookup(e.matches[:0], a, e.now)
	}
	return slices.ContainsFunc(e.matches, func(m index.Match) bool {
		switch {
		case m.Action != lists.Allow || !slices.Contains(e.excepts, m.Row) || !e.believed(e.Index.Lists()[m.Row].Source.List, m.Kind):
			return false
		case !e.reaches(m.Row, row):
			return false
		case e.rows[m.Row] && e.w.Exceptions() == lists.Prevail && e.written(m.Row):
			return false // it is written, and does the same there
		case client.IsValid():
			return m.Net.Bits() <= it.Net.Bits()
		case it.Kind == lists.Domain: // a listed name of the probe's own tells nothing
			return m.Kind == lists.Domain && len(m.Key.Text) <= len(it.Key.Text)
		}
		return true
	}), err
}
