package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/records/audit"
)

// Audit is the journal of changes, and where it is kept.
type Audit struct {
	Log    *audit.Log
	Folder string
}

// AuditList is the answer of /v1/audit.
type AuditList struct {
	Lines   []audit.Line `json:"lines"` // the newest first, never null
	Next    string       `json:"next,omitempty" doc:"the cursor of what is older; absent at the end"`
	Damaged int          `json:"damaged" doc:"lines that cannot be read; blockd audit --verify says where"`
}

// DefaultAudit is how many lines an answer has unless "limit" says otherwise.
const DefaultAudit = 100

// maxAuditText bounds what is searched for, in octets.
const maxAuditText = 1000

// record writes a line before the change that it is about. Where that fails it has answered, and nothing is to be changed.
func (s *Server) record(w http.ResponseWriter, line audit.Line) bool {
	if s.settings.Audit == nil {
		return true
	}
	if err := s.settings.Audit.Log.Add(line); err != nil {
		s.log.Error("change refused", "error", err)
		fail(w, http.StatusInsufficientStorage, err.Error())
		return false
	}
	return true
}

// ParseAuditQuery reads the parameters of /v1/audit. Its errors begin with the name of one.
func ParseAuditQuery(values url.Values) (q audit.Query, err error) {
	v, err := onlyOnce(values, []string{"q", "by", "action", "since", "until", "limit", "cursor"})
	if err != nil {
		return q, err
	}
	q = audit.Query{Text: v["q"], By: v["by"], Action: v["action"], Limit: DefaultAudit, Cursor: v["cursor"]}
	for _, name := range []string{"q", "by", "action", "cursor"} {
		if len(v[name]) > maxAuditText {
			return q, fmt.Errorf("%s: over %d octets", name, maxAuditText)
		}
	}
	for name, at := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		if text := v[name]; text != "" {
			if *at, err = time.Parse(time.RFC3339, text); err != nil {
				return q, fmt.Errorf("%s: want a time such as 2027-01-31T12:00:00Z, have %q", name, text)
			}
		}
	}
	if text := v["limit"]; text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > audit.MaxFound {
			return q, fmt.Errorf("limit: want 1 to %d, have %q", audit.MaxFound, text)
		}
	}
	return q, nil
}

// newAuditList returns the answer for found lines.
func newAuditList(f audit.Found) AuditList {
	l := AuditList{Lines: f.Lines, Next: f.Next, Damaged: f.Damaged}
	if l.Lines == nil {
		l.Lines = []audit.Line{}
	}
	return l
}

// audit answers with changes, the newest first. A search may read all of the journal, so one runs at a time.
func (s *Server) audit(w http.ResponseWriter, r *http.Request) {
	values, err := parseQuery(r.URL.RawQuery)
	var q audit.Query
	if err == nil {
		q, err = ParseAuditQuery(values)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if !s.searchingAudit.TryLock() {
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusTooManyRequests, "another search is under way; try again in a second")
		return
	}
	defer s.searchingAudit.Unlock()
	found, err := audit.Search(r.Context(), s.settings.Audit.Folder, q)
	switch {
	case errors.Is(err, audit.ErrCursor):
		fail(w, http.StatusBadRequest, "cursor: "+err.Error())
	case err != nil:
		s.log.Error("audit journal cannot be searched", "error", err)
		fail(w, http.StatusServiceUnavailable, "the audit journal cannot be read now")
	default:
		send(w, http.StatusOK, typeJSON, newAuditList(found))
	}
}

func describeAudit(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "audit", Summary: "Who has changed what, and why, the newest first",
		Description: "Each line has the SHA-256 of the one before it. Those of which all holds that is asked for; upper and lower case are the same.",
		Parameters: []*huma.Param{
			parameter("q", "a text that stands in subject, why, detail or by", ""),
			parameter("by", "a text that stands in by", ""),
			parameter("action", "such as entry.add, or entry for all of entries", ""),
			moment("since", "made then or later"),
			moment("until", "made before"),
			number("limit", "how many lines at most", 1, audit.MaxFound, DefaultAudit),
			parameter("cursor", "`next` of an answer: what is older than it showed", ""),
		},
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, AuditList{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusTooManyRequests, http.StatusServiceUnavailable)
	return op
}
