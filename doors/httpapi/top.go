package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/records/history"
)

// DefaultTop is how many rows /v1/top has unless "limit" says otherwise, and maxTopRows the most.
const (
	DefaultTop = 20
	maxTopRows = 1000
)

// topWithin bounds a count: an answer must be written within requestTimeout.
const topWithin = 25 * time.Second

// Top is the answer of /v1/top.
type Top struct {
	By        string     `json:"by" enum:"client,sender,domain,list,recipient,entry"`
	From      *time.Time `json:"from" doc:"decisions since then were counted; null: all that are kept"`
	Until     *time.Time `json:"until" doc:"and before; null: up to now"`
	Decisions uint64     `json:"decisions" doc:"that fit; a folded refusal counts as often as it was repeated"`
	Without   uint64     `json:"without" doc:"of these: without a client, a list, a recipient or an entry"`
	Distinct  uint64     `json:"distinct" doc:"names"`
	Top       []TopRow   `json:"top" doc:"the most first"`
	Damaged   int        `json:"damaged" doc:"lines of the files that had to be left out"`
}

// TopRow is one name.
type TopRow struct {
	Name      string  `json:"name" doc:"in lower case; <> is the null sender; of by=entry the list, a blank and the entry"`
	List      string  `json:"list,omitempty" doc:"of by=entry"`
	Entry     string  `json:"entry,omitempty" doc:"of by=entry"`
	Decisions uint64  `json:"decisions"`
	Share     float64 `json:"share" minimum:"0" maximum:"1" doc:"of all decisions that fit"`
}

// timeSpans are the values of "span" where it stands for since.
var timeSpans = map[string]time.Duration{"1h": time.Hour, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour}

func spanNames() []string { return []string{"1h", "24h", "7d", "30d"} }

// spanOf reads "span", which stands for since.
func spanOf(v url.Values, now time.Time) (since time.Time, err error) {
	text := v.Get("span")
	if err := oneOf("span", text, append(spanNames(), "")...); err != nil || text == "" {
		return since, err
	}
	if v.Get("since") != "" {
		return since, fmt.Errorf("span: want it or since")
	}
	return now.Add(-timeSpans[text]), nil
}

// parseTopQuery reads the parameters of /v1/top.
func parseTopQuery(raw string, now time.Time) (q history.TopQuery, err error) {
	values, err := parseQuery(raw)
	v := url.Values(values)
	if err != nil {
		return q, err
	}
	since, err := spanOf(v, now)
	if err != nil {
		return q, err
	}
	q.By = "domain"
	if len(v["by"]) == 1 {
		q.By = v.Get("by")
	}
	if err := oneOf("by", q.By, history.Groups()...); err != nil {
		return q, err
	}
	limit, err := limitOf(v.Get("limit"), DefaultTop, maxTopRows)
	if err != nil {
		return q, err
	}
	for _, name := range []string{"by", "span"} {
		if len(v[name]) > 1 {
			return q, fmt.Errorf("%s: want it once", name)
		}
		delete(v, name)
	}
	if q.Query, err = ParseDecisionQuery(v); err != nil {
		return q, err
	}
	if !since.IsZero() {
		q.Since = since
	}
	q.Limit = limit
	return q, nil
}

// topOf counts. If that fails, topOf has answered.
func (s *Server) topOf(w http.ResponseWriter, r *http.Request) (t Top, ok bool) {
	q, err := parseTopQuery(r.URL.RawQuery, time.Now())
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return t, false
	}
	ctx, end := context.WithTimeout(r.Context(), topWithin)
	defer end()
	found, err := s.settings.History.Most(ctx, q)
	switch {
	case err == nil:
	case r.Context().Err() != nil: // the client has gone
		return t, false
	case errors.Is(err, context.DeadlineExceeded):
		fail(w, http.StatusServiceUnavailable, fmt.Sprintf("not counted within %s: ask about a shorter time, or use blockd history top", topWithin))
		return t, false
	default:
		s.historyFault(w, r, err)
		return t, false
	}
	t = Top{By: q.By, Decisions: found.Decisions, Without: found.Without, Distinct: found.Distinct, Damaged: found.Damaged, Top: []TopRow{}}
	if !q.Since.IsZero() {
		since := q.Since.UTC().Truncate(time.Second)
		t.From = &since
	}
	if !q.Until.IsZero() {
		until := q.Until.UTC()
		t.Until = &until
	}
	for _, row := range found.Rows {
		shown := TopRow{Name: row.Name, Decisions: row.Decisions, Share: row.Share}
		if q.By == "entry" {
			shown.List, shown.Entry, _ = strings.Cut(row.Name, " ") // no list has a blank in its name
		}
		t.Top = append(t.Top, shown)
	}
	return t, true
}

func (s *Server) top(w http.ResponseWriter, r *http.Request) {
	if t, ok := s.topOf(w, r); ok {
		sendTagged(w, r, t)
	}
}

var topColumns = []string{"name", "list", "entry", "decisions", "share"}

func (s *Server) topCSV(w http.ResponseWriter, r *http.Request) {
	s.exportTop(w, r, typeCSV, "top.csv", func(out io.Writer, rows []TopRow) error {
		t := newTable(out, topColumns)
		for _, row := range rows {
			t.text(row.Name, row.List, row.Entry)
			t.number(row.Decisions)
			t.cell = append(t.cell, strconv.FormatFloat(row.Share, 'f', 6, 64))
			if err := t.end(); err != nil {
				return err
			}
		}
		t.w.Flush()
		return nil
	})
}

func (s *Server) topLines(w http.ResponseWriter, r *http.Request) {
	s.exportTop(w, r, typeStream, "top.ndjson", func(out io.Writer, rows []TopRow) error {
		text := encoder(out)
		for _, row := range rows {
			if err := text.Encode(row); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Server) exportTop(w http.ResponseWriter, r *http.Request, contentType []string, name string, write func(io.Writer, []TopRow) error) {
	t, ok := s.topOf(w, r)
	if !ok {
		return
	}
	out := exporting(w, contentType, name)
	if write(out, t.Top) == nil {
		out.Flush()
	}
}

func topParams() []*huma.Param {
	params := []*huma.Param{
		choice("by", "what decisions are counted by; domain, that of the sender, if it is not said", history.Groups()...),
		choice("span", "how far back, in place of since", spanNames()...),
	}
	all := decisionParams()
	all = slices.DeleteFunc(all, func(p *huma.Param) bool { return p.Name == "sort" })
	return append(append(params, all...), number("limit", "how many rows at most", 1, maxTopRows, DefaultTop))
}

func describeTop(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "top", Summary: "What has the most decisions",
		Description: "The counts are exact. Of names with equal counts any may be shown. Where outcome, list, door, verdict and times alone select, a month of millions takes a second at most; else all of it is read.",
		Parameters:  topParams(), Responses: d.tagged(Top{})}
	d.problems(op, http.StatusBadRequest, http.StatusServiceUnavailable)
	return op
}

func describeTopCSV(d *document) *huma.Operation {
	op := d.describeExport("topCSV", "What has the most decisions, as CSV", topParams(), nil, topColumns)
	op.Description = "The rows of /v1/top."
	d.problems(op, http.StatusServiceUnavailable)
	return op
}

func describeTopLines(d *document) *huma.Operation {
	op := d.describeExport("topLines", "What has the most decisions, one a line", topParams(), TopRow{}, nil)
	op.Description = "The rows of /v1/top; the schema is that of a line."
	d.problems(op, http.StatusServiceUnavailable)
	return op
}
