package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/lists"
)

// The bounds of a text that is linted, in octets, and of the findings that are shown.
const (
	maxLint   = 1 << 20
	lintTime  = 2 * time.Second // a megabyte of addresses takes a tenth
	mostFound = 200
)

// Lint is the answer of /v1/lint.
type Lint struct {
	Summary LintSummary `json:"summary"`
	Items   []LintItem  `json:"items" doc:"lines that are refused or worth a look: the first 200"`
	More    int         `json:"more" doc:"how many of these are not shown"`
}

// LintSummary is what `blockd lint --json` says of a file.
type LintSummary struct {
	Format  string `json:"format" doc:"as found, or as said"`
	Lines   int    `json:"lines"`
	Entries int    `json:"entries"`
	Keys    int    `json:"keys" doc:"distinct"`
	Errors  int    `json:"errors" doc:"lines that are refused"`
	Skipped int    `json:"skipped"`
	Verdict string `json:"verdict" enum:"loaded,refused"`
	Why     string `json:"why"`
}

// LintItem is one line.
type LintItem struct {
	Line    int    `json:"line"`
	Column  int    `json:"column" doc:"where the fault begins, in octets from 1; 0: not known"`
	Kind    string `json:"kind"`
	Key     string `json:"key"`
	Scope   string `json:"scope"`
	Action  string `json:"action"`
	Reason  string `json:"reason"`
	Class   string `json:"class" doc:"why, in a word"`
	Message string `json:"message"`
	Hint    string `json:"hint"`
	Text    string `json:"text" doc:"the line"`
}

// lintSettings reads how a text is to be read.
func (s *Server) lintSettings(raw string) (set lists.Settings, err error) {
	values, err := parseQuery(raw)
	if err != nil {
		return set, err
	}
	v, err := onlyOnce(values, []string{"format", "action", "list"})
	if err != nil {
		return set, err
	}
	guard := lists.DefaultGuard()
	switch {
	case v["list"] != "" && v["action"] != "":
		return set, errors.New("action: a list has its own; want it or list")
	case v["list"] != "":
		if s.settings.ListSettings == nil {
			return set, fmt.Errorf("list: no list %q in the configuration", v["list"])
		}
		var there bool
		if set, there = s.settings.ListSettings(v["list"]); !there {
			return set, fmt.Errorf("list: no list %q in the configuration", v["list"])
		}
	default:
		if v["action"] != "" {
			if set.Action, err = lists.ParseAction(v["action"]); err != nil {
				return set, fmt.Errorf("action: %w", err)
			}
		}
		guard.Frees = set.Action == lists.Allow
		if set.Guard, err = lists.NewGuard(guard); err != nil {
			return set, err
		}
		set.Format = "auto"
	}
	if v["format"] != "" {
		if set.Format = v["format"]; set.Format != "auto" {
			if err := lists.ParseFormat(set.Format); err != nil {
				return set, fmt.Errorf("format: %w", err)
			}
		}
	}
	return set, nil
}

func (s *Server) lint(w http.ResponseWriter, r *http.Request) {
	set, err := s.lintSettings(r.URL.RawQuery)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	text, ok := s.body(w, r, maxLint)
	if !ok {
		return
	}
	select { // a megabyte takes a tenth of a second
	case s.scans <- struct{}{}:
		defer func() { <-s.scans }()
	case <-r.Context().Done():
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), lintTime)
	defer cancel()
	answer, err := lintText(ctx, text, set)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		fail(w, http.StatusRequestEntityTooLarge, "this text takes longer to read than a request may: give less of it, or ask blockd lint FILE")
	case err == nil:
		send(w, http.StatusOK, typeJSON, answer)
	case r.Context().Err() == nil:
		fail(w, http.StatusInternalServerError, err.Error())
	}
}

func lintText(ctx context.Context, text []byte, set lists.Settings) (Lint, error) {
	answer := Lint{Items: []LintItem{}}
	sum, keys, err := lists.LintText(ctx, text, set, func(it *lists.Item) error {
		if it.Class == "" || it.Kind == lists.Skip {
			return ctx.Err()
		}
		if len(answer.Items) == mostFound {
			answer.More++
			return ctx.Err()
		}
		item := LintItem{Line: it.Line, Column: it.Column, Kind: it.Kind.String(), Key: it.Name(), Reason: it.Reason, Class: string(it.Class), Message: it.Message,
			Hint: lists.Hint(it.Class), Text: strings.ToValidUTF8(it.Text, "\uFFFD")}
		if it.Kind != lists.Err {
			item.Scope, item.Action = it.Scope.String(), it.Action.String()
		}
		answer.Items = append(answer.Items, item)
		return nil
	})
	if refused := (*lists.FileError)(nil); err != nil && !errors.As(err, &refused) {
		return answer, err
	}
	answer.Summary = LintSummary{sum.Format, sum.Lines, sum.Entries, keys, sum.Errors, sum.Skipped, string(sum.Verdict), sum.Why}
	return answer, nil
}

func describeLint(d *document) *huma.Operation {
	op := &huma.Operation{OperationID: "lint", Summary: "What does each line of a list mean?",
		Description: "As `blockd lint` says of a file, but for the list's own tests, which are not run. The text is not kept.",
		Parameters: []*huma.Param{limited("format", "that of the text; found out if it is not said", maxQueryText), choice("action", "of its entries; block if it is not said", "block", "allow", "tempfail", "discard"),
			limited("list", "the list of the configuration by whose settings it is read", maxQueryText)},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{typeLines: {Schema: &huma.Schema{Type: huma.TypeString}}}},
		Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, Lint{})}}}
	d.problems(op, http.StatusBadRequest, http.StatusRequestEntityTooLarge)
	return op
}
