package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/records/audit"
	"blockd/records/letter"
)

// Report is how letters are made and sent.
type Report struct {
	Every time.Duration // how long ago a letter begins that nothing else is said of
	Make  func(ctx context.Context, since, until time.Time) (letter.Letter, error)
	To    string // whom it goes to
	Send  func(ctx context.Context, l *letter.Letter) ([]ReportDelivery, error)
}

// ReportAnswer is the answer of /v1/report.
type ReportAnswer struct {
	Letter  letter.Letter `json:"letter"`
	Subject string        `json:"subject"`
	Text    string        `json:"text" doc:"the letter for people, with times where the daemon is"`
	Empty   bool          `json:"empty" doc:"nothing has happened, and no such letter would be sent by itself"`
}

// NewReportAnswer is the answer for a letter.
func NewReportAnswer(l letter.Letter) ReportAnswer {
	return ReportAnswer{l, l.Subject(), l.Text(time.Local), l.Empty()}
}

// ReportDelivery is what the next server said about one recipient.
type ReportDelivery struct {
	Recipient string `json:"recipient"`
	Accepted  bool   `json:"accepted"`
	Reply     string `json:"reply" doc:"its first line, as it came"`
}

// ReportSent is the answer to a letter that was sent.
type ReportSent struct {
	Deliveries []ReportDelivery `json:"deliveries"`
}

// longestReport bounds how far back a letter may begin.
const longestReport = 3660 * 24 * time.Hour

// letter makes the letter that a request asks for. Without one it has answered.
func (s *Server) letter(w http.ResponseWriter, r *http.Request, more ...string) (l letter.Letter, v map[string]string, ok bool) {
	values, err := parseQuery(r.URL.RawQuery)
	if err == nil {
		v, err = onlyOnce(values, append(more, "since"))
	}
	now := time.Now()
	since := now.Add(-s.settings.Report.Every)
	if text := v["since"]; err == nil && text != "" {
		if since, err = time.Parse(time.RFC3339, text); err != nil {
			err = fmt.Errorf("since: want a time such as 2027-01-31T12:00:00Z, have %q", text)
		} else if since.After(now) || now.Sub(since) > longestReport {
			err = fmt.Errorf("since: want a time of the last ten years, have %q", text)
		}
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return l, v, false
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // a large history is read for longer than an answer may take
	if l, err = s.settings.Report.Make(r.Context(), since, now); err != nil {
		if r.Context().Err() == nil {
			s.log.Error("no report", "error", err)
			fail(w, http.StatusInternalServerError, err.Error())
		}
		return l, v, false
	}
	return l, v, true
}

func (s *Server) report(w http.ResponseWriter, r *http.Request) {
	l, _, ok := s.letter(w, r)
	if !ok {
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(requestTimeout))
	send(w, http.StatusOK, typeJSON, NewReportAnswer(l))
}

func (s *Server) sendReport(w http.ResponseWriter, r *http.Request) {
	l, v, ok := s.letter(w, r, "author")
	if !ok || !s.record(w, ReportLine(s.callerOf(r).author(v["author"], r), s.settings.Report.To)) {
		return
	}
	all, err := s.settings.Report.Send(r.Context(), &l)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(requestTimeout))
	if err != nil {
		fail(w, http.StatusBadGateway, err.Error())
		return
	}
	send(w, http.StatusOK, typeJSON, ReportSent{all})
}

// ReportLine is the audit line of a letter that is about to be sent.
func ReportLine(by, to string) audit.Line {
	return audit.Line{By: by, Action: audit.ReportSend, Subject: to}
}

func sinceParam() *huma.Param {
	return parameter("since", "where it begins, RFC 3339; else report.every ago", "")
}

func describeReport(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "report", Summary: "The letter of [report], as it would be now",
		Description: "It is read from the whole history of the time, one letter after the other, which may take seconds.",
		Parameters:  []*huma.Param{sinceParam()},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, ReportAnswer{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusInternalServerError)
	return op
}

func describeSendReport(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "sendReport", Summary: "Send the letter of [report] now",
		Description: "Also where nothing has happened. When the next one is due does not change. 502: no recipient's server has taken it.",
		Parameters:  []*huma.Param{sinceParam(), parameter("author", "who has it sent", "")},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, ReportSent{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusInternalServerError, http.StatusBadGateway)
	return op
}
