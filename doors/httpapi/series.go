package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/records/rollup"
)

// Series is the answer of /v1/series.
type Series struct {
	By      string      `json:"by" enum:"outcome,door,list,shadow,overruled,checks"`
	Span    string      `json:"span" enum:"1h,24h,7d,30d,365d"`
	From    time.Time   `json:"from" doc:"where the first count begins"`
	Until   time.Time   `json:"until" doc:"where the last count ends, which is of now and still grows"`
	Step    int         `json:"step" minimum:"60" doc:"seconds of one count"`
	Since   *time.Time  `json:"since" doc:"counts are kept since then: before it nothing is known; null: not yet"`
	Filling bool        `json:"filling" doc:"what the history has of before is being read: ask again"`
	Series  []SeriesRow `json:"series" doc:"the most first; names without a count are left out"`
}

// SeriesRow is one name over time.
type SeriesRow struct {
	Name   string   `json:"name" doc:"an outcome, a door or a list; (none): no list; (others): names beyond the first 64"`
	Counts []uint64 `json:"counts" doc:"one for each step from from to until"`
}

var seriesParameters = []string{"by", "span", "outcome", "door", "list"}

// Checks is how many questions programs have asked over HTTP since the start of the process.
func (s *Server) Checks() uint64 { return s.checks.Load() }

// seriesOf counts what a query asks for. If it is wrong, seriesOf has answered.
func (s *Server) seriesOf(w http.ResponseWriter, r *http.Request) (found rollup.Series, q rollup.Query, ok bool) {
	values, err := parseQuery(r.URL.RawQuery)
	var v map[string]string
	if err == nil {
		v, err = onlyOnce(values, seriesParameters)
	}
	if err == nil {
		q = rollup.Query{By: cmp.Or(v["by"], "outcome"), Span: cmp.Or(v["span"], "24h"), Outcome: v["outcome"], Door: v["door"], List: v["list"]}
		err = cmp.Or(oneOf("by", q.By, rollup.Groups()...), oneOf("span", q.Span, rollup.Spans()...), oneOf("outcome", q.Outcome, append(slices.Clone(counted), "")...))
	}
	if err == nil {
		found, err = s.settings.Rollup.Series(q, time.Now())
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
	}
	return found, q, err == nil
}

// counted are the outcomes that are counted.
var counted = outcomes[:6]

func (s *Server) series(w http.ResponseWriter, r *http.Request) {
	found, q, ok := s.seriesOf(w, r)
	if !ok {
		return
	}
	answer := Series{By: q.By, Span: q.Span, From: found.From, Until: found.Until, Step: int(found.Step / time.Second), Filling: found.Filling, Series: []SeriesRow{}}
	if !found.Since.IsZero() {
		answer.Since = &found.Since
	}
	for _, row := range found.Rows {
		answer.Series = append(answer.Series, SeriesRow(row))
	}
	sendTagged(w, r, answer)
}

// seriesCSV answers with a row for each step.
func (s *Server) seriesCSV(w http.ResponseWriter, r *http.Request) {
	found, _, ok := s.seriesOf(w, r)
	if !ok {
		return
	}
	out := exporting(w, typeCSV, "series.csv")
	columns := []string{"time"}
	for _, row := range found.Rows {
		name := row.Name
		if strings.IndexByte(formula, name[0]) >= 0 {
			name = "'" + name
		}
		columns = append(columns, name)
	}
	t := newTable(out, columns)
	for i, at := 0, found.From; at.Before(found.Until); i, at = i+1, at.Add(found.Step) {
		t.time(&at)
		for _, row := range found.Rows {
			t.cell = append(t.cell, strconv.FormatUint(row.Counts[i], 10))
		}
		if t.end() != nil {
			return // the client has gone
		}
	}
	t.w.Flush()
	out.Flush()
}

func seriesParams() []*huma.Param {
	return []*huma.Param{
		choice("by", "what is counted: decisions about mail by outcome (if it is not said), door or list; shadow: what lists in shadow mode would have decided; "+
			"overruled: blocks that an allow entry overruled, by list; checks: senders and clients asked about, by door", rollup.Groups()...),
		choice("span", "how far back; 24h if it is not said. The steps are 1 minute, 10 minutes, 1 hour, 6 hours and 1 day", rollup.Spans()...),
		choice("outcome", "only these, of by=door and by=list", counted...),
		limited("door", "only this one, of by=outcome and by=checks", maxQueryText),
		limited("list", "only this one, of by=outcome, list, shadow and overruled", maxQueryText),
	}
}

func describeSeries(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "series", Summary: "How many decisions over time",
		Description: "Kept over restarts, for a year. Steps are aligned to UTC. A list that decides counts; what one in shadow mode would have decided is by=shadow.",
		Parameters:  seriesParams(), Responses: d.tagged(Series{})}
	d.problems(op, http.StatusBadRequest)
	return op
}

func describeSeriesCSV(d *document) *huma.Operation {
	op := d.describeExport("seriesCSV", "How many decisions over time, as CSV", seriesParams(), nil, []string{"time", "and one for each name"})
	op.Description = "A row for each step: the time where it begins, and a count for each name."
	return op
}
