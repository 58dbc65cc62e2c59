package httpapi

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/index/live"
	"blockd/records/history"
)

// exportBuffer is how many octets of an answer wait to be written.
const exportBuffer = 32 << 10

// stalling is the writer of a long answer: it may take as long as its reader reads on.
type stalling struct {
	http.ResponseWriter
	control *http.ResponseController
	next    time.Time // when the deadline is set again
}

func (s *stalling) Write(b []byte) (int, error) {
	if now := time.Now(); now.After(s.next) {
		s.next = now.Add(requestTimeout / 4)
		_ = s.control.SetWriteDeadline(now.Add(requestTimeout)) // where there is none, nothing ends the wait but the caller
	}
	return s.ResponseWriter.Write(b)
}

// exporting begins an answer that is a file of rows.
func exporting(w http.ResponseWriter, contentType []string, name string) *bufio.Writer {
	w.Header()["Content-Type"] = contentType
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	return bufio.NewWriterSize(&stalling{ResponseWriter: w, control: http.NewResponseController(w)}, exportBuffer)
}

// table writes rows as CSV (RFC 4180), a head first. A program of spreadsheets takes a text that begins like a formula for
// one, and strangers write senders: so such a text has an apostrophe before it, which reading takes away again.
type table struct {
	w    *csv.Writer
	cell []string // of the current row
}

// formula begins what a spreadsheet may take for more than a text.
const formula = "=+-@\t\r"

func newTable(out io.Writer, columns []string) *table {
	t := &table{w: csv.NewWriter(out)}
	t.w.Write(columns)
	return t
}

func (t *table) text(texts ...string) {
	for _, text := range texts {
		if text != "" && strings.IndexByte(formula, text[0]) >= 0 {
			text = "'" + text
		}
		t.cell = append(t.cell, text)
	}
}

func (t *table) number(n uint64) {
	text := ""
	if n > 0 {
		text = strconv.FormatUint(n, 10)
	}
	t.cell = append(t.cell, text)
}

func (t *table) time(at *time.Time) {
	text := ""
	if at != nil && !at.IsZero() {
		text = at.Format(time.RFC3339Nano)
	}
	t.cell = append(t.cell, text)
}

func (t *table) end() error {
	err := t.w.Write(t.cell)
	t.cell = t.cell[:0]
	return err
}

// entryColumns are those of live entries in CSV. The first five are what a change has.
var entryColumns = []string{"entry", "action", "why", "author", "expires", "added", "number"}

func (s *Server) entriesCSV(w http.ResponseWriter, r *http.Request) {
	s.exportEntries(w, r, typeCSV, "entries.csv", func(out io.Writer) func(*LiveEntry) error {
		t := newTable(out, entryColumns)
		return func(e *LiveEntry) error {
			if e == nil {
				t.w.Flush()
				return nil
			}
			action := e.Action
			if len(e.Require) > 0 { // a program that reads the file and knows no proof must not take it for an exception without
				action += " with " + strings.Join(e.Require, " or ")
			}
			t.text(e.Entry, action, e.Why, e.Author)
			t.time(e.Expires)
			t.time(e.Added)
			t.number(e.Number)
			return t.end()
		}
	})
}

func (s *Server) entriesLines(w http.ResponseWriter, r *http.Request) {
	s.exportEntries(w, r, typeStream, "entries.ndjson", func(out io.Writer) func(*LiveEntry) error {
		text := encoder(out)
		return func(e *LiveEntry) error {
			if e == nil {
				return nil
			}
			return text.Encode(e)
		}
	})
}

// exportEntries answers with all entries that the query selects, the newest first. rows makes the function that writes each,
// and is called with nil at the end.
func (s *Server) exportEntries(w http.ResponseWriter, r *http.Request, contentType []string, name string, rows func(io.Writer) func(*LiveEntry) error) {
	values, err := parseQuery(r.URL.RawQuery)
	var v map[string]string
	if err == nil {
		v, err = onlyOnce(values, []string{"q"})
	}
	if err != nil || len(v["q"]) > maxQueryText {
		fail(w, http.StatusBadRequest, cmp.Or(err, fmt.Errorf("q: over %d octets", maxQueryText)).Error())
		return
	}
	if _, fresh := s.unlessKept(w, r); !fresh {
		return
	}
	out := exporting(w, contentType, name)
	row, fits := rows(out), live.Matching(v["q"])
	for e := range s.settings.Entries.All() {
		if fits(e) && row(s.mark(NewLiveEntry(e))) != nil {
			return // the client has gone
		}
	}
	row(nil)
	out.Flush()
}

// decisionColumns are those of decisions in CSV.
var decisionColumns = []string{"time", "door", "outcome", "verdict", "client", "helo", "sender", "recipient", "ref", "list", "entry", "action", "reason", "repeated"}

func (s *Server) decisionsCSV(w http.ResponseWriter, r *http.Request) {
	s.exportDecisions(w, r, typeCSV, "decisions.csv", func(out io.Writer) func(*history.Record) error {
		t := newTable(out, decisionColumns)
		return func(d *history.Record) error {
			if d == nil {
				t.w.Flush()
				return nil
			}
			client := ""
			if d.Client.IsValid() {
				client = d.Client.String()
			}
			t.time(&d.Time)
			t.text(d.Door, d.Outcome, d.Verdict, client, d.Helo, d.Sender, d.Recipient, d.Ref, d.List, d.Entry, d.Action, d.Reason)
			t.number(uint64(d.Repeated))
			return t.end()
		}
	})
}

func (s *Server) decisionsLines(w http.ResponseWriter, r *http.Request) {
	s.exportDecisions(w, r, typeStream, "decisions.ndjson", func(out io.Writer) func(*history.Record) error {
		text := encoder(out)
		return func(d *history.Record) error {
			if d == nil {
				return nil
			}
			return text.Encode(d)
		}
	})
}

// exportDecisions is exportEntries for decisions, page after page: so others may search between two.
func (s *Server) exportDecisions(w http.ResponseWriter, r *http.Request, contentType []string, name string, rows func(io.Writer) func(*history.Record) error) {
	values, err := parseQuery(r.URL.RawQuery)
	var q history.Query
	if err == nil {
		q, err = ParseDecisionQuery(values)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	q.Limit = history.MaxFound
	found, err := s.settings.History.Search(r.Context(), q)
	if err != nil {
		s.historyFault(w, r, err)
		return
	}
	out := exporting(w, contentType, name)
	row := rows(out)
	for {
		for i := range found.Records {
			if row(&found.Records[i]) != nil {
				return // the client has gone
			}
		}
		if q.Cursor = found.Next; q.Cursor == "" {
			break
		}
		for {
			if found, err = s.settings.History.Search(r.Context(), q); !errors.Is(err, history.ErrBusy) {
				break
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
		if err != nil {
			panic(http.ErrAbortHandler) // a clean end would say that all is there
		}
	}
	row(nil)
	out.Flush()
}

// describeExport describes a file of rows: as NDJSON of v's type, or as CSV if v is nil.
func (d *document) describeExport(id, summary string, params []*huma.Param, v any, columns []string) *huma.Operation {
	media, schema := typeStream[0], &huma.Schema{Type: huma.TypeString, Description: "CSV of RFC 4180 with the columns " + strings.Join(columns, ", ") +
		". A text that a spreadsheet would take for a formula has an apostrophe before it"}
	if v == nil {
		media = "text/csv"
	} else {
		schema = d.schemaOf(v)
	}
	op := &huma.Operation{OperationID: id, Summary: summary, Description: "All that is found, however much; of " + typeStream[0] + " the schema is that of a line.",
		Parameters: params,
		Responses: map[string]*huma.Response{"200": {Description: "OK", Headers: header("Content-Disposition", "the name of the file"),
			Content: map[string]*huma.MediaType{media: {Schema: schema}}}}}
	d.problems(op, http.StatusBadRequest)
	return op
}

func describeEntriesCSV(d *document) *huma.Operation {
	op := d.describeExport("entriesCSV", "Live entries as CSV", entryParams()[:1], nil, entryColumns)
	op.Responses["304"] = d.unchanged()
	return op
}

func describeEntriesLines(d *document) *huma.Operation {
	op := d.describeExport("entriesLines", "Live entries, one a line", entryParams()[:1], LiveEntry{}, nil)
	op.Responses["304"] = d.unchanged()
	return op
}

func describeDecisionsCSV(d *document) *huma.Operation {
	op := d.describeExport("decisionsCSV", "Past decisions as CSV", decisionParams(), nil, decisionColumns)
	d.problems(op, http.StatusServiceUnavailable)
	return op
}

func describeDecisionsLines(d *document) *huma.Operation {
	op := d.describeExport("decisionsLines", "Past decisions, one a line", decisionParams(), history.Record{}, nil)
	d.problems(op, http.StatusServiceUnavailable)
	return op
}
