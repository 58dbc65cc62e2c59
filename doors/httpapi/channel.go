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

// channelOperation is what the operations of the channel have in common. The body says what is asked, if it has one.
func channelOperation(method, id, summary, about, done string, body int64, also ...int) operation {
	o := operation{method: method, id: id, summary: summary, about: about, done: done, right: admin, body: body, also: append(also, http.StatusServiceUnavailable)}
	if body == 0 {
		o.status = http.StatusServiceUnavailable
	}
	return o
}

// channelState is how the channel is.
func (s *Server) channelState() (ChannelState, error) {
	state, err := s.settings.Channel.State()
	if err != nil {
		s.log.Error("what was published cannot be read", slog.Any("error", err))
		err = faultf(http.StatusServiceUnavailable, "%v", err)
	}
	return state, err
}

func (s *Server) sequences() method {
	return operate(s, channelOperation(http.MethodGet, "sequences", "What this machine has published, and whether it is halted", "", "", 0),
		func(call, struct{}) (ChannelState, error) { return s.channelState() })
}

func (s *Server) haltChannel() method {
	return operate(s, channelOperation(http.MethodPost, "haltChannel", "Stop the channel at the sequence before the newest",
		" Nodes that have the newest go back, and nothing is published by itself meanwhile.", "it is halted", maxChannel, http.StatusConflict), func(c call, q HaltQuestion) (state ChannelState, err error) {
		if state, err = s.channelState(); err != nil {
			return state, err
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
			return state, badf("%v", err)
		}
		if len(state.Sequences) < 2 {
			return state, faultf(http.StatusConflict, "there is no sequence before the newest to stop at")
		}
		line := audit.Line{By: c.by(q.Author), Action: audit.SnapshotHalt, Subject: state.Channel, Why: q.Why, Detail: fmt.Sprintf("sequence %d", state.Sequence)}
		return s.changeChannel(c, line, func(ctx context.Context) error { return s.settings.Channel.Halt(ctx, time.Now().Add(life)) })
	})
}

func (s *Server) publishAgain() method {
	return operate(s, channelOperation(http.MethodPost, "publishAgain", "Publish what an earlier sequence had",
		" It ends a halt, and stands: nothing is published by itself until somebody says blockd publish.", "it is the newest sequence", maxChannel, http.StatusNotFound, http.StatusConflict), func(c call, q AgainQuestion) (state ChannelState, err error) {
		if state, err = s.channelState(); err != nil {
			return state, err
		}
		if err := checkWhy(q.Why); err != nil {
			return state, badf("%v", err)
		}
		if !slices.ContainsFunc(state.Sequences, func(row SequenceRow) bool { return row.Sequence == q.Sequence }) {
			return state, faultf(http.StatusNotFound, "sequence %d is not kept, or was never published; /v1/fleet/sequences has those that are", q.Sequence)
		}
		line := audit.Line{By: c.by(q.Author), Action: audit.SnapshotPublish, Subject: state.Channel, Why: q.Why, Detail: fmt.Sprintf("what sequence %d had", q.Sequence)}
		return s.changeChannel(c, line, func(ctx context.Context) error { return s.settings.Channel.Again(ctx, q.Sequence, q.Now) })
	})
}

// changeChannel makes a change, which is not given up half-way when the caller goes away, and says how the channel is then.
func (s *Server) changeChannel(c call, line audit.Line, change func(context.Context) error) (state ChannelState, err error) {
	if err := c.record(line); err != nil {
		return state, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), requestTimeout*3/4)
	defer cancel()
	if err := change(ctx); err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, ErrPublishing) {
			status = http.StatusConflict
		}
		s.log.Error("the channel is as it was", slog.String("channel", line.Subject), slog.String("asked", line.Action), slog.Any("error", err))
		return state, faultf(status, "%v", err)
	}
	s.log.Warn("channel changed", slog.String("channel", line.Subject), slog.String("change", line.Action), slog.String("detail", line.Detail), slog.String("by", line.By), slog.String("why", line.Why))
	return s.channelState()
}
