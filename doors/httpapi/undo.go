package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/index/kept"
	"blockd/records/audit"
)

// Undo is what lists held before, and how they are taken back to it.
type Undo struct {
	Kept   *kept.Store
	Review func(list string) bool                       // whether its loads wait to be adopted
	Good   func(ctx context.Context, list string) error // why a list cannot follow its files again, before it is to; nil: nobody knows
	Lists  func() []string                              // that can be taken back
	Serves func(ctx context.Context, list string) error // waits until what a list is to hold serves

	HeldBack func(list string) (n int, first []kept.HeldBack) // entries of a list that are held back now
}

// actWithin is how long an answer waits for what was asked to serve. Lists of ten million entries take some seconds.
const actWithin = 30 * time.Second

// Generations is the answer of /v1/generations, the newest first.
type Generations struct {
	Generations []ListGeneration `json:"generations"`
}

// ListGeneration is one generation that served.
type ListGeneration struct {
	Generation string      `json:"generation"`
	Time       time.Time   `json:"time"`
	How        string      `json:"how" doc:"built, updated, found on disk, compiled by another process, rollback, recovered or adopt"`
	By         string      `json:"by,omitempty" doc:"who asked for it; left out without a token"`
	Why        string      `json:"why,omitempty"`
	Lists      []ListCount `json:"lists"`
}

// ListCount is a list of a generation.
type ListCount struct {
	Name    string `json:"name"`
	Entries int    `json:"entries"`
	Added   *int   `json:"added" doc:"since the generation before; null: not counted"`
	Removed *int   `json:"removed"`
}

// newGenerations shows generations, the newest first.
func newGenerations(all []kept.Generation) Generations {
	shown := Generations{Generations: []ListGeneration{}}
	for i := len(all) - 1; i >= 0; i-- {
		g := ListGeneration{Generation: all[i].ID, Time: all[i].Time, How: all[i].How, By: all[i].By, Why: all[i].Why, Lists: []ListCount{}}
		if n := len(all[i].Also); n > 0 {
			g.Generation = all[i].Also[n-1]
		}
		for _, l := range all[i].Lists {
			g.Lists = append(g.Lists, ListCount{l.Name, l.Entries, l.Added, l.Removed})
		}
		shown.Generations = append(shown.Generations, g)
	}
	return shown
}

// UndoQuestion is the body of POST /v1/lists/{list}/rollback and adopt.
type UndoQuestion struct {
	List   string `path:"list" json:"-" doc:"the list's name"`
	To     string `json:"to,omitempty" doc:"of a rollback: a time (RFC 3339), an age such as 7d, or a generation; what served before if it is not said"`
	If     string `json:"if,omitempty" doc:"of an adoption: the content that was looked at, as diff names it; 409 if another one waits by now"`
	Why    string `json:"why,omitempty" doc:"a line, for the log and other people"`
	Author string `json:"author,omitempty" doc:"who asks"`
}

// PinnedList is how a list stands that does not follow its file.
type PinnedList struct {
	How      string        `json:"how" doc:"rollback, review or recovered"`
	Served   time.Time     `json:"served" doc:"when its content began to serve"`
	Since    time.Time     `json:"since" doc:"of the rollback, or of the last adoption"`
	By       string        `json:"by" doc:"empty without a token, as is why"`
	Why      string        `json:"why"`
	Proposal *ListProposal `json:"proposal" doc:"what waits; null: nothing does"`
}

// ListProposal is a content that waits to be adopted.
type ListProposal struct {
	Content  string    `json:"content" doc:"its name, for if"`
	Since    time.Time `json:"since"`
	Entries  int       `json:"entries"`
	Added    *int      `json:"added"`
	Removed  *int      `json:"removed"`
	Findings []string  `json:"findings" doc:"what speaks against it"`

	Weighed *kept.Weighed `json:"weighed" doc:"what an adoption would do; null: not known yet"`
}

// newPinned shows a pin; nil for a list that follows its file.
func newPinned(pins []kept.Pin, list string) *PinnedList {
	for _, p := range pins {
		if p.List != list {
			continue
		}
		h := &PinnedList{How: p.How, Served: p.Served, Since: p.Since, By: p.By, Why: p.Why}
		if w := p.Proposal; w != nil {
			h.Proposal = &ListProposal{w.Content.ID(), w.Since, w.Content.Entries(), w.Added, w.Removed, w.Against(), w.Weighed}
		}
		return h
	}
	return nil
}

// ListUndone is the answer to a rollback or an adoption.
type ListUndone struct {
	List   string      `json:"list"`
	Served time.Time   `json:"served" doc:"when the content that serves now began to serve first"`
	Serves bool        `json:"serves" doc:"it serves; false: text says what it waits for"`
	Text   string      `json:"text,omitempty"`
	Held   *PinnedList `json:"held" doc:"null: the list follows its file"`

	HeldBack  int             `json:"held_back" doc:"entries of the list that do not act, for they would refuse senders who wrote lately, or correspondents"`
	HeldFirst []kept.HeldBack `json:"held_first" doc:"the first of them"`
}

func (s *Server) listGenerations() method {
	return operate(s, operation{method: http.MethodGet, id: "listGenerations", summary: "What was served: when, how, and what changed by list; the newest first", status: http.StatusInternalServerError},
		func(c call, _ struct{}) (Generations, error) {
			all, err := s.settings.Undo.Kept.Generations()
			shown := newGenerations(all)
			for i := range shown.Generations {
				if !s.mayKnow(c.Request) {
					shown.Generations[i].By, shown.Generations[i].Why = "", ""
				}
			}
			return shown, err
		})
}

// checkWhy says what is wrong with a reason, in a line.
func checkWhy(text string) error {
	if len(text) > maxWhy || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("why: want one line of at most %d octets", maxWhy)
	}
	return nil
}

// undoable says why a list has nothing to go back to.
func (s *Server) undoable(list string) error {
	if slices.Contains(s.settings.Undo.Lists(), list) {
		return nil
	}
	return faultf(http.StatusNotFound, "no list %q can be taken back: /v1/lists has those that serve; live entries and lists that are asked have no earlier content", list)
}

// undo is an operation about what a list is to hold.
func (s *Server) undo(id, summary, text, action string, change func(c call, q UndoQuestion, who kept.Who) (kept.Pin, error)) method {
	return operate(s, operation{method: http.MethodPost, id: id, summary: summary, about: text + " Answers when it serves, or after 30 s.", right: writing, body: maxPause, optional: true,
		lost: "list not " + action, faults: []faultKind{{kept.ErrWhen, http.StatusBadRequest}}, also: []int{http.StatusNotFound, http.StatusConflict},
	}, func(c call, q UndoQuestion) (done ListUndone, err error) {
		if err := s.undoable(q.List); err != nil {
			return done, err
		}
		if err := checkWhy(q.Why); err != nil {
			return done, badf("%v", err)
		}
		q.Author = c.by(q.Author)
		pin, err := change(c, q, kept.Who{By: q.Author, Why: q.Why})
		if refused := (*kept.Refused)(nil); errors.As(err, &refused) {
			err = faultf(http.StatusConflict, "%s", refused.Text)
		}
		if err != nil {
			return done, err
		}
		s.log.Warn("list "+action, slog.String("list", q.List), slog.Time("to", pin.Served), slog.String("by", q.Author), slog.String("why", q.Why))
		return s.undone(c.Context(), q.List, pin.Served), nil
	})
}

func (s *Server) rollbackList() method {
	return s.undo("rollbackList", "Let a list serve what it had before", "What its file has that is newer waits until it is adopted.", "taken back", func(c call, q UndoQuestion, who kept.Who) (kept.Pin, error) {
		return s.settings.Undo.Kept.Rollback(c.Context(), q.List, q.To, who, time.Now(), func(p kept.Point) error {
			return c.record(audit.Line{By: q.Author, Action: audit.ListRollback, Subject: q.List, Why: q.Why,
				Detail: fmt.Sprintf("to what served from %s on, generation %s", p.Time.Format(time.RFC3339), p.Generation)})
		})
	})
}

func (s *Server) adoptList() method {
	return s.undo("adoptList", "Let in what waits of a list", "A list that is not reviewed follows its file again.", "adopted", func(c call, q UndoQuestion, who kept.Who) (kept.Pin, error) {
		return s.settings.Undo.Kept.Adopt(c.Context(), q.List, q.If, s.settings.Undo.Review(q.List), who, time.Now(), func(id string) error {
			if good := s.settings.Undo.Good; good != nil {
				if err := good(c.Context(), q.List); err != nil {
					return err
				}
			}
			return c.record(audit.Line{By: q.Author, Action: audit.ListAdopt, Subject: q.List, Why: q.Why, Detail: "content " + id})
		})
	})
}

// undone is the answer when the change serves, or says why it does not yet.
func (s *Server) undone(ctx context.Context, list string, served time.Time) ListUndone {
	ctx, cancel := context.WithTimeout(ctx, actWithin)
	defer cancel()
	done := ListUndone{List: list, Served: served, Serves: true, HeldFirst: []kept.HeldBack{}}
	if err := s.settings.Undo.Serves(ctx, list); err != nil {
		done.Serves, done.Text = false, err.Error()
	}
	pins, err := s.settings.Undo.Kept.Pins()
	if err == nil {
		done.Held = newPinned(pins, list)
	}
	n, first := s.settings.Undo.HeldBack(list)
	done.HeldBack, done.HeldFirst = n, append(done.HeldFirst, first...)
	return done
}

func (s *Server) undoFault(w http.ResponseWriter, what, list string, err error) {
	if refused := (*kept.Refused)(nil); errors.As(err, &refused) {
		fail(w, http.StatusConflict, refused.Text)
		return
	}
	if errors.Is(err, kept.ErrWhen) {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	s.log.Error(what+" failed", slog.String("list", list), slog.Any("error", err))
	fail(w, http.StatusInsufficientStorage, err.Error())
}

// diff answers as writeDiff does.
func (s *Server) diff(w http.ResponseWriter, r *http.Request) {
	list := r.PathValue("list")
	if err := s.undoable(list); err != nil {
		operation{}.fail(call{r, w, s}, err)
		return
	}
	v, err := onlyOnce(r.URL.Query(), []string{"since", "limit"})
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	limit := math.MaxInt
	if text := v["limit"]; text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 0 {
			fail(w, http.StatusBadRequest, fmt.Sprintf("limit: %q: want a number", text))
			return
		}
	}
	store := s.settings.Undo.Kept
	from, to, waits, err := store.Sides(list, v["since"], time.Now())
	if err == nil {
		err = store.Unpack(r.Context(), from.Content, to.Content)
	}
	if err != nil {
		s.undoFault(w, "diff", list, err)
		return
	}
	w.Header()["Content-Type"] = typeJSON
	if err := writeDiff(r.Context(), w, store, list, from, to, waits, limit); err != nil {
		s.log.Error("diff ended early", slog.String("list", list), slog.Any("error", err))
		panic(http.ErrAbortHandler) // a half answer must not look like a whole one
	}
}

// writeDiff writes one JSON object with what differs, entry by entry, so that it takes no memory for them. Where what waits is one
// side, "content" names it. At most limit entries are named that came, and as many that went; all are counted.
func writeDiff(ctx context.Context, w io.Writer, store *kept.Store, list string, from, to kept.Point, waits bool, limit int) error {
	out := bufio.NewWriter(w)
	head := struct {
		List string    `json:"list"`
		From time.Time `json:"from"`
		To   time.Time `json:"to"`
		Wait bool      `json:"waits"`
		ID   string    `json:"content"`
		Say  []string  `json:"findings"`

		Weighed *kept.Weighed `json:"weighed"`
	}{list, from.Time, to.Time, waits, to.Content.ID(), append([]string{}, to.Findings...), to.Weighed}
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	out.Write(text[:len(text)-1])
	out.WriteString(`,"removed":[`)
	added, removed := 0, 0
	err = store.Diff(ctx, from.Content, to.Content, func(e kept.Entry) error {
		n := &removed
		if e.Came {
			n = &added
		}
		switch {
		case e.Came && added == 0:
			out.WriteString(`],"added":[`)
		case *n > 0 && *n < limit:
			out.WriteByte(',')
		}
		if *n++; *n > limit {
			return nil
		}
		text, err := json.Marshal(e.String())
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	if added == 0 {
		out.WriteString(`],"added":[`)
	}
	fmt.Fprintf(out, `],"counts":{"added":%d,"removed":%d}}`+"\n", added, removed)
	return out.Flush()
}

// ListDiff is what writeDiff writes.
type ListDiff struct {
	List     string    `json:"list"`
	From     time.Time `json:"from" doc:"when the one content began to serve"`
	To       time.Time `json:"to" doc:"when the other one did, or was proposed"`
	Waits    bool      `json:"waits" doc:"the other one is a proposal"`
	Content  string    `json:"content" doc:"the name of the other one, for if of an adoption"`
	Findings []string  `json:"findings" doc:"what speaks against a proposal"`

	Weighed *kept.Weighed `json:"weighed" doc:"what an adoption of a proposal would do; null: there is none, or it is not known yet"`

	Added   []string   `json:"added"`
	Removed []string   `json:"removed"`
	Counts  DiffCounts `json:"counts"`
}

// DiffCounts are how many entries came and went.
type DiffCounts struct {
	Added   int `json:"added"`
	Removed int `json:"removed"`
}

func describeDiff(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "diffList", Summary: "Entries of a list that came and went",
		Description: "Without since: what waits to be adopted against what serves, or else what serves against what served before. The answer is streamed, whatever its size.",
		Parameters: []*huma.Param{listParam(), parameter("since", "a time (RFC 3339), an age such as 7d, or a generation", ""),
			parameter("limit", "name so many entries at most that came, and as many that went; all are counted", "")},
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, ListDiff{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusInsufficientStorage)
	return op
}
