package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/index/live"
	"blockd/lists"
	"blockd/records/audit"
	"blockd/records/pause"
)

// UsualPause is how long a list is paused unless "for" says otherwise.
const UsualPause = "1h"

// maxPause bounds the body of a request about a pause.
const maxPause = 4 << 10

// PauseQuestion is the body of POST /v1/lists/{list}/pause and resume.
type PauseQuestion struct {
	For    string `json:"for,omitempty" doc:"how long, such as 1h, which it is if it is not said; 31d at most"`
	Why    string `json:"why,omitempty" doc:"a line, for the log and other people"`
	Author string `json:"author,omitempty" doc:"who asks"`
}

// ListPause is how /v1/lists shows a pause.
type ListPause struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	By    string    `json:"by" doc:"empty without a token, as is why"`
	Why   string    `json:"why"`
}

// ListPaused is the answer to a question about a pause.
type ListPaused struct {
	List  string     `json:"list"`
	Pause *ListPause `json:"pause"` // null: the list counts
}

// newListPause returns what is shown of the pause of a list, nil if it counts.
func newListPause(s *pause.Set, list string, now time.Time) *ListPause {
	p, ok := s.Of(list, now)
	if !ok {
		return nil
	}
	return &ListPause{p.Since.UTC(), p.Until.UTC(), p.By, p.Why}
}

// newPause makes a pause of what is asked for.
func newPause(list string, q PauseQuestion, by string, now time.Time) (p pause.Pause, err error) {
	life, err := live.ParseLife(cmp.Or(q.For, UsualPause))
	if err != nil {
		return p, fmt.Errorf("for: %w", err)
	}
	return pause.Pause{List: list, Since: now, Until: now.Add(life), By: by, Why: q.Why}, nil
}

// mayPause says why a list with this row cannot be paused; nil if it can.
func mayPause(w *ListWorth) error {
	switch {
	case w.Mode == "shadow":
		return errors.New("the list is in shadow mode and refuses nobody; there is nothing to pause")
	case w.Action == lists.Allow.String():
		return errors.New("the list lets senders in and refuses nobody; there is nothing to pause")
	}
	return nil
}

// pausing reads a request about the pause of a list. If it is wrong, pausing has answered.
func (s *Server) pausing(w http.ResponseWriter, r *http.Request) (list *ListWorth, q PauseQuestion, ok bool) {
	name := r.PathValue("list")
	table := s.listTable(0)
	for i := range table.Worth {
		if table.Worth[i].List == name {
			list = &table.Worth[i]
		}
	}
	if list == nil {
		fail(w, http.StatusNotFound, fmt.Sprintf("there is no list %q; /v1/lists has those that serve", name))
		return nil, q, false
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPause))
	if err != nil {
		fail(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("body over %d octets", maxPause))
		return nil, q, false
	}
	if len(body) > 0 {
		if err := decodeWith(body, &q, true); err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return nil, q, false
		}
	}
	q.Author = s.callerOf(r).author(q.Author, r)
	return list, q, true
}

func (s *Server) pause(w http.ResponseWriter, r *http.Request) {
	list, q, ok := s.pausing(w, r)
	if !ok {
		return
	}
	if err := mayPause(list); err != nil {
		fail(w, http.StatusConflict, err.Error())
		return
	}
	p, err := newPause(list.List, q, q.Author, time.Now())
	if err == nil {
		err = p.Check()
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if !s.record(w, audit.Line{By: p.By, Action: audit.ListPause, Subject: p.List, Why: p.Why, Detail: "until " + p.Until.UTC().Format(time.RFC3339)}) {
		return
	}
	if err := s.settings.Pauses.Start(p); err != nil {
		s.pauseFault(w, err)
		return
	}
	s.log.Warn("list paused", slog.String("list", p.List), slog.Time("until", p.Until), slog.String("by", p.By), slog.String("why", p.Why))
	send(w, http.StatusOK, typeJSON, ListPaused{p.List, newListPause(s.settings.Pauses, p.List, p.Since)})
}

func (s *Server) resume(w http.ResponseWriter, r *http.Request) {
	list, q, ok := s.pausing(w, r)
	if !ok {
		return
	}
	if q.For != "" {
		fail(w, http.StatusBadRequest, "for: a list that is resumed counts at once")
		return
	}
	if _, paused := s.settings.Pauses.Of(list.List, time.Now()); !paused {
		fail(w, http.StatusConflict, fmt.Sprintf("list %q is not paused", list.List))
		return
	}
	if !s.record(w, audit.Line{By: q.Author, Action: audit.ListResume, Subject: list.List, Why: q.Why}) {
		return
	}
	if _, _, err := s.settings.Pauses.End(list.List, time.Now()); err != nil {
		s.pauseFault(w, err)
		return
	}
	s.log.Warn("list resumed", slog.String("list", list.List), slog.String("by", q.Author), slog.String("why", q.Why))
	send(w, http.StatusOK, typeJSON, ListPaused{List: list.List})
}

func (s *Server) pauseFault(w http.ResponseWriter, err error) {
	s.log.Error("pauses cannot be changed", slog.Any("error", err))
	fail(w, http.StatusInsufficientStorage, err.Error())
}

func describePause(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "pauseList", Summary: "Let a list's blocks not count for a while",
		Description: "They count as those of a list in shadow mode do; its exceptions count as before. A list that is paused already has the new end.",
		Parameters:  []*huma.Param{listParam()},
		RequestBody: &huma.RequestBody{Content: d.content(typeJSON, PauseQuestion{})},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, ListPaused{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusInsufficientStorage)
	return op
}

func describeResume(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "resumeList", Summary: "Let a paused list count again",
		Parameters:  []*huma.Param{listParam()},
		RequestBody: &huma.RequestBody{Content: d.content(typeJSON, PauseQuestion{})},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, ListPaused{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusInsufficientStorage)
	return op
}

func listParam() *huma.Param {
	p := parameter("list", "the list's name", "")
	p.In, p.Required = "path", true
	return p
}
