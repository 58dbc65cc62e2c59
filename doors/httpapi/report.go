package httpapi

import (
	"context"
	"net/http"
	"time"

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

// letter makes the letter since a time; zero = as long ago as Report.Every.
func (s *Server) letter(c call, since time.Time) (l letter.Letter, err error) {
	now := time.Now()
	switch {
	case since.IsZero() && !c.URL.Query().Has("since"):
		since = now.Add(-s.settings.Report.Every)
	case since.After(now) || now.Sub(since) > longestReport:
		return l, badf("since: want a time of the last ten years, have %q", c.URL.Query().Get("since"))
	}
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Time{}) // a large history is read for longer than an answer may take
	l, err = s.settings.Report.Make(c.Context(), since, now)
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(requestTimeout))
	if c.Context().Err() != nil {
		err = errAnswered // nobody listens
	}
	return l, err
}

func (s *Server) report() method {
	return operate(s, operation{method: http.MethodGet, id: "report", summary: "The letter of [report], as it would be now",
		about: "It is read from the whole history of the time, one letter after the other, which may take seconds.", right: privately, status: http.StatusInternalServerError, lost: "no report",
	}, func(c call, q struct {
		Since time.Time `query:"since" doc:"where it begins (report.every ago if it is not said)"`
	}) (a ReportAnswer, err error) {
		l, err := s.letter(c, q.Since)
		return NewReportAnswer(l), err
	})
}

func (s *Server) sendReport() method {
	return operate(s, operation{method: http.MethodPost, id: "sendReport", summary: "Send the letter of [report] now",
		about: "Also where nothing has happened. When the next one is due does not change. 502: no recipient's server has taken it.",
		right: writing, status: http.StatusInternalServerError, lost: "no report", also: []int{http.StatusBadGateway, http.StatusInsufficientStorage},
	}, func(c call, q struct {
		Since  time.Time `query:"since" doc:"where it begins (report.every ago if it is not said)"`
		Author string    `query:"author" doc:"who has it sent"`
	}) (a ReportSent, err error) {
		l, err := s.letter(c, q.Since)
		if err != nil {
			return a, err
		}
		if err := c.record(ReportLine(c.by(q.Author), s.settings.Report.To)); err != nil {
			return a, err
		}
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Time{})
		all, err := s.settings.Report.Send(c.Context(), &l)
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(requestTimeout))
		if err != nil {
			return a, faultf(http.StatusBadGateway, "%v", err)
		}
		return ReportSent{all}, nil
	})
}

// ReportLine is the audit line of a letter that is about to be sent.
func ReportLine(by, to string) audit.Line {
	return audit.Line{By: by, Action: audit.ReportSend, Subject: to}
}
