package httpapi

import (
	"cmp"
	"errors"
	"fmt"
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

// PauseQuestion is that of POST /v1/lists/{list}/pause and resume.
type PauseQuestion struct {
	List   string `path:"list" json:"-" doc:"the list's name"`
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

func (s *Server) pauseList() method {
	return operate(s, operation{method: http.MethodPost, id: "pauseList", summary: "Let a list's blocks not count for a while", right: writing, body: maxPause, optional: true,
		about: "They count as those of a list in shadow mode do; its exceptions count as before. A list that is paused already has the new end.",
		lost:  "pauses cannot be changed", also: []int{http.StatusNotFound, http.StatusConflict},
	}, func(c call, q PauseQuestion) (a ListPaused, err error) {
		_, list, err := s.listNamed(q.List)
		if err != nil {
			return a, err
		}
		if err := mayPause(&list); err != nil {
			return a, fault{status: http.StatusConflict, text: err.Error()}
		}
		p, err := newPause(list.List, q, c.by(q.Author), time.Now())
		if err == nil {
			err = p.Check()
		}
		if err != nil {
			return a, badf("%v", err)
		}
		if err := c.record(audit.Line{By: p.By, Action: audit.ListPause, Subject: p.List, Why: p.Why, Detail: "until " + p.Until.UTC().Format(time.RFC3339)}); err != nil {
			return a, err
		}
		if err := s.settings.Pauses.Start(p); err != nil {
			return a, err
		}
		s.log.Warn("list paused", slog.String("list", p.List), slog.Time("until", p.Until), slog.String("by", p.By), slog.String("why", p.Why))
		return ListPaused{p.List, newListPause(s.settings.Pauses, p.List, p.Since)}, nil
	})
}

func (s *Server) resumeList() method {
	return operate(s, operation{method: http.MethodPost, id: "resumeList", summary: "Let a paused list count again", right: writing, body: maxPause, optional: true,
		lost: "pauses cannot be changed", also: []int{http.StatusNotFound, http.StatusConflict},
	}, func(c call, q PauseQuestion) (a ListPaused, err error) {
		if q.For != "" {
			return a, badf("for: a list that is resumed counts at once")
		}
		if _, paused := s.settings.Pauses.Of(q.List, time.Now()); !paused { // one that serves no more may be
			if _, _, err := s.listNamed(q.List); err != nil {
				return a, err
			}
			if problems := s.settings.Pauses.Problems(); len(problems) > 0 {
				return a, errors.New(problems[0])
			}
			return a, faultf(http.StatusConflict, "list %q is not paused", q.List)
		}
		by := c.by(q.Author)
		if err := c.record(audit.Line{By: by, Action: audit.ListResume, Subject: q.List, Why: q.Why}); err != nil {
			return a, err
		}
		if _, _, err := s.settings.Pauses.End(q.List, time.Now()); err != nil {
			return a, err
		}
		s.log.Warn("list resumed", slog.String("list", q.List), slog.String("by", by), slog.String("why", q.Why))
		return ListPaused{List: q.List}, nil
	})
}

func listParam() *huma.Param {
	p := parameter("list", "the list's name", "")
	p.In, p.Required = "path", true
	return p
}
