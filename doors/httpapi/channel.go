package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"blockd/index/live"
	"blockd/records/audit"
)

// Channel is the channel that this machine publishes: what blockd publish halt and blockd publish --again do.
type Channel struct {
	State func() (ChannelState, error)
	// Halt stops it at the sequence before the newest until a time, and Again publishes what an earlier sequence had; now: for all nodes at once.
	// The errors are for people, and ErrPublishing.
	Halt  func(ctx context.Context, until time.Time) error
	Again func(ctx context.Context, sequence int64, now bool) error
}

// ErrPublishing says that something is being published at the moment.
var ErrPublishing = errors.New("a publication is under way; try again in a moment")

// ChannelState is the answer to GET /v1/fleet/sequences.
type ChannelState struct {
	Channel   string        `json:"channel"`
	Sequence  int64         `json:"sequence" minimum:"0" doc:"the newest; 0: nothing was published yet"`
	Halted    *ChannelHalt  `json:"halted,omitempty" doc:"absent: nodes take the newest sequence"`
	Stands    bool          `json:"stands" doc:"an earlier sequence was published again, and nothing is published by itself until somebody says blockd publish"`
	Sequences []SequenceRow `json:"sequences" doc:"those that can be published again and the newest, the newest first"`
}

// ChannelHalt is where a channel is halted.
type ChannelHalt struct {
	Sequence int64     `json:"sequence" minimum:"1" doc:"nodes stay at it, or go back to it"`
	Until    time.Time `json:"until"`
}

// SequenceRow is a sequence that is in the store.
type SequenceRow struct {
	Sequence int64     `json:"sequence" minimum:"1"`
	Created  time.Time `json:"created"`
	Entries  int64     `json:"entries" minimum:"0" doc:"of all lists"`
	Lists    []string  `json:"lists" doc:"their names; those that are asked too"`
}

// HaltQuestion is the body of POST /v1/fleet/halt.
type HaltQuestion struct {
	Why    string `json:"why" minLength:"1" maxLength:"500" doc:"a line, for the audit journal and other people"`
	For    string `json:"for,omitempty" doc:"how long, such as 12h; 7d if it is not said, 1m to 31d"`
	Author string `json:"author,omitempty" doc:"who asks"`
}

// AgainQuestion is the body of POST /v1/fleet/again.
type AgainQuestion struct {
	Sequence int64  `json:"sequence" minimum:"1" doc:"whose content is the next sequence"`
	Now      bool   `json:"now,omitempty" doc:"for all nodes at once, and not in stages"`
	Why      string `json:"why,omitempty" maxLength:"500" doc:"a line, for the audit journal and other people"`
	Author   string `json:"author,omitempty" doc:"who asks"`
}

const (
	usualHalt = 7 * 24 * time.Hour
	mostHalt  = 31 * 24 * time.Hour
	maxWhy    = 500 // octets

	maxChannel = 4 << 10 // octets of a request
)

func (s *Server) channel(w http.ResponseWriter, _ *http.Request) {
	state, err := s.settings.Channel.State()
	if err != nil {
		s.log.Error("what was published cannot be read", slog.Any("error", err))
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	send(w, http.StatusOK, typeJSON, state)
}

// channelQuestion reads a request about the channel into q, and says how the channel is. If it is wrong, it has answered.
func (s *Server) channelQuestion(w http.ResponseWriter, r *http.Request, q any) (state ChannelState, ok bool) {
	body, ok := s.body(w, r, maxChannel)
	if !ok {
		return state, false
	}
	if err := decodeWith(body, q, true); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return state, false
	}
	state, err := s.settings.Channel.State()
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err.Error())
		return state, false
	}
	return state, true
}

// haltChannel answers POST /v1/fleet/halt.
func (s *Server) haltChannel(w http.ResponseWriter, r *http.Request) {
	var q HaltQuestion
	state, ok := s.channelQuestion(w, r, &q)
	if !ok {
		return
	}
	life, err := usualHalt, checkWhy(q.Why)
	if err == nil && strings.TrimSpace(q.Why) == "" {
		err = errors.New("why: want a line that says why; whoever looks at the fleet next asks that")
	}
	if err == nil && q.For != "" {
		if life, err = live.ParseLife(q.For); err != nil || life < time.Minute || life > mostHalt {
			err = fmt.Errorf("for: want 1m to 31d, have %q", q.For)
		}
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if len(state.Sequences) < 2 {
		fail(w, http.StatusConflict, "there is no sequence before the newest to stop at")
		return
	}
	line := audit.Line{By: s.callerOf(r).author(q.Author, r), Action: audit.SnapshotHalt, Subject: state.Channel, Why: q.Why, Detail: fmt.Sprintf("sequence %d", state.Sequence)}
	s.changeChannel(w, r, line, func(ctx context.Context) error { return s.settings.Channel.Halt(ctx, time.Now().Add(life)) })
}

// publishAgain answers POST /v1/fleet/again.
func (s *Server) publishAgain(w http.ResponseWriter, r *http.Request) {
	var q AgainQuestion
	state, ok := s.channelQuestion(w, r, &q)
	if !ok {
		return
	}
	if err := checkWhy(q.Why); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if !slices.ContainsFunc(state.Sequences, func(row SequenceRow) bool { return row.Sequence == q.Sequence }) {
		fail(w, http.StatusNotFound, fmt.Sprintf("sequence %d is not kept, or was never published; /v1/fleet/sequences has those that are", q.Sequence))
		return
	}
	line := audit.Line{By: s.callerOf(r).author(q.Author, r), Action: audit.SnapshotPublish, Subject: state.Channel, Why: q.Why, Detail: fmt.Sprintf("what sequence %d had", q.Sequence)}
	s.changeChannel(w, r, line, func(ctx context.Context) error { return s.settings.Channel.Again(ctx, q.Sequence, q.Now) })
}

// changeChannel makes a change, which is not given up half-way when the caller goes away, and answers how the channel is then.
func (s *Server) changeChannel(w http.ResponseWriter, r *http.Request, line audit.Line, change func(context.Context) error) {
	if !s.record(w, line) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), requestTimeout*3/4)
	defer cancel()
	if err := change(ctx); err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, ErrPublishing) {
			status = http.StatusConflict
		}
		s.log.Error("the channel is as it was", slog.String("channel", line.Subject), slog.String("asked", line.Action), slog.Any("error", err))
		fail(w, status, err.Error())
		return
	}
	s.log.Warn("channel changed", slog.String("channel", line.Subject), slog.String("change", line.Action), slog.String("detail", line.Detail), slog.String("by", line.By), slog.String("why", line.Why))
	s.channel(w, r)
}

func describeChannel(d *document) *huma.Operation {
	return d.administers(&huma.Operation{OperationID: "sequences", Summary: "What this machine has published, and whether it is halted",
		Responses: map[string]*huma.Response{"200": {Description: "OK", Content: d.content(typeJSON, ChannelState{})}}}, http.StatusServiceUnavailable)
}

func describeHalt(d *document) *huma.Operation {
	op := d.administers(&huma.Operation{OperationID: "haltChannel", Summary: "Stop the channel at the sequence before the newest",
		RequestBody: &huma.RequestBody{Required: true, Content: d.content(typeJSON, HaltQuestion{})},
		Responses:   map[string]*huma.Response{"200": {Description: "it is halted", Content: d.content(typeJSON, ChannelState{})}}},
		http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusServiceUnavailable, http.StatusInsufficientStorage)
	op.Description += " Nodes that have the newest go back, and nothing is published by itself meanwhile."
	return op
}

func describeAgain(d *document) *huma.Operation {
	op := d.administers(&huma.Operation{OperationID: "publishAgain", Summary: "Publish what an earlier sequence had",
		RequestBody: &huma.RequestBody{Required: true, Content: d.content(typeJSON, AgainQuestion{})},
		Responses:   map[string]*huma.Response{"200": {Description: "it is the newest sequence", Content: d.content(typeJSON, ChannelState{})}}},
		http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusServiceUnavailable, http.StatusInsufficientStorage)
	op.Description += " It ends a halt, and stands: nothing is published by itself until somebody says blockd publish."
	return op
}
