package httpapi

import (
	"errors"
	"net/http"
	"time"

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

// AuditQuestion is that of GET /v1/audit.
type AuditQuestion struct {
	Text   string    `query:"q" doc:"a text that stands in subject, why, detail or by"`
	By     string    `query:"by" doc:"a text that stands in by"`
	Action string    `query:"action" doc:"such as entry.add, or entry for all of entries"`
	Since  time.Time `query:"since" doc:"made then or later"`
	Until  time.Time `query:"until" doc:"made before"`
	Limit  int       `query:"limit" doc:"how many lines at most" minimum:"1" maximum:"1000" default:"100"`
	Cursor string    "query:\"cursor\" doc:\"`next` of an answer: what is older than it showed\""
}

// searchAudit answers with changes, the newest first. A search may read all of the journal, so one runs at a time.
func (s *Server) searchAudit() method {
	return operate(s, operation{method: http.MethodGet, id: "audit", summary: "Who has changed what, and why, the newest first",
		about: "Each line has the SHA-256 of the one before it. Those of which all holds that is asked for; upper and lower case are the same.", right: privately, large: true,
		status: http.StatusServiceUnavailable, lost: "audit journal cannot be searched", because: "the audit journal cannot be read now", also: []int{http.StatusTooManyRequests},
	}, func(c call, q AuditQuestion) (l AuditList, err error) {
		for name, text := range map[string]string{"q": q.Text, "by": q.By, "action": q.Action, "cursor": q.Cursor} {
			if len(text) > maxAuditText {
				return l, badf("%s: over %d octets", name, maxAuditText)
			}
		}
		if !s.searchingAudit.TryLock() {
			return l, fault{http.StatusTooManyRequests, "another search is under way; try again in a second", 1}
		}
		defer s.searchingAudit.Unlock()
		found, err := audit.Search(c.Context(), s.settings.Audit.Folder, audit.Query(q))
		if errors.Is(err, audit.ErrCursor) {
			err = badf("cursor: %v", err)
		}
		return AuditList{append([]audit.Line{}, found.Lines...), found.Next, found.Damaged}, err
	})
}
