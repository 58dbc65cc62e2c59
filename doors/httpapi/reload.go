package httpapi

import (
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Reloaded is the answer to POST /v1/reload. It has names and no values: a value may be a secret.
type Reloaded struct {
	// Faults are why the configuration was not taken up, a line each; the one of before stays in force.
	Faults []string `json:"faults" doc:"why nothing of the configuration was taken up, a line each with its file and line; empty: it is in force"`
	Keys   []string `json:"keys" doc:"keys that have other values than before"`
	Lists  []string `json:"lists" doc:"lists with another configuration than before"`

	Swapped    bool     `json:"swapped" doc:"the files of the lists have led to another generation"`
	Generation string   `json:"generation" doc:"that serves"`
	Problems   []string `json:"problems" doc:"what is wrong with lists and others, as /readyz has it"`
}

// Nothing reports whether nothing had changed; a list that is refused is a change.
func (r Reloaded) Nothing() bool {
	return len(r.Faults)+len(r.Keys)+len(r.Lists)+len(r.Problems) == 0 && !r.Swapped
}

// reload waits for a reload, whose builds may take minutes.
func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // where there is none, nothing ends the wait but the caller
	values, err := parseQuery(r.URL.RawQuery)
	var v map[string]string
	if err == nil {
		v, err = onlyOnce(values, []string{"author"})
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	var answer Reloaded
	err, answered := unlessYielded(w, r, s.settings.Successor, 0, func() (err error) {
		answer, err = s.settings.Reload(r.Context(), s.callerOf(r).author(v["author"], r))
		return err
	})
	switch {
	case answered, r.Context().Err() != nil: // then nobody listens
		return
	case err != nil:
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusServiceUnavailable, "another process has just taken over; ask again")
		return
	}
	_ = control.SetWriteDeadline(time.Now().Add(requestTimeout))
	send(w, http.StatusOK, typeJSON, answer)
}

func describeReload(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "reload", Summary: "Read the configuration and all lists again",
		Description: "The answer comes when they are taken up. A configuration with a fault changes nothing.",
		Parameters:  []*huma.Param{parameter("author", "who asks, for the audit journal", "")},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, Reloaded{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusServiceUnavailable)
	return op
}
