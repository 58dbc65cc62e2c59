package httpapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// newTestChannel is a channel with two sequences that notes what it is asked to do. The tests of cmd/blockd and cmd/blockd/e2e/console use the real publisher.
func newTestChannel() *Channel {
	state := ChannelState{Channel: "prod", Sequence: 2, Sequences: []SequenceRow{{Sequence: 2, Lists: []string{"spam"}}, {Sequence: 1, Lists: []string{}}}}
	return &Channel{
		State: func() (ChannelState, error) { return state, nil },
		Halt: func(_ context.Context, until time.Time) error {
			state.Halted = &ChannelHalt{state.Sequence - 1, until.UTC()}
			return nil
		},
		Again: func(context.Context, int64, bool) error {
			state.Halted, state.Stands = nil, true
			return nil
		},
	}
}

func TestTheChannelIsHaltedAndGoesBack(t *testing.T) {
	f, _ := newChangingFixture(t)
	channel := f.settings.Channel
	serve := func(channel *Channel) {
		f.settings.Channel = channel
		f.serve(f.settings)
	}
	serve(channel)
	post := func(path, body string, want int) string {
		t.Helper()
		w := f.ask("POST", path, body, f.write, json1)
		testkit.Equal(t, fmt.Sprintf("%s %s: %s", path, body, w.Body), w.Code, want)
		return w.Body.String()
	}
	for body, says := range map[string]string{
		`{}`:             "why",
		`{"why":" "}`:    "why",
		`{"why":"a\nb"}`: "one line",
		`{"why":"` + strings.Repeat("x", 501) + `"}`: "500 octets",
		`{"why":"x","for":"32d"}`:                    "1m to 31d",
		`{"why":"x","for":"59s"}`:                    "1m to 31d",
		`{"why":"x","sequence":1}`:                   "sequence",
		`{"why":"x"`:                                 "",
	} {
		testkit.Has(t, post("/v1/fleet/halt", body, 400), says)
	}
	post("/v1/fleet/again", `{"sequence":3}`, 404)
	post("/v1/fleet/again", `{}`, 404)
	post("/v1/fleet/again", `{"sequence":1,"why":"a\rb"}`, 400)
	post("/v1/fleet/halt", `{"why":"`+strings.Repeat("x", maxChannel)+`"}`, 413)
	testkit.Has(t, post("/v1/fleet/halt", `{"why":"good mail is refused","for":"12h"}`, 200), `"halted":{"sequence":1,`)
	if said := post("/v1/fleet/again", `{"sequence":1,"now":true}`, 200); strings.Contains(said, "halted") || !strings.Contains(said, `"stands":true`) {
		t.Error(said)
	}
	for path, want := range map[string]int{"/v1/fleet/sequences": 200, "/v1/fleet/halt": 405} {
		f.gives(t, want, "GET", path, "", f.write)
	}
	one, busy, away := newTestChannel(), newTestChannel(), newTestChannel()
	one.State = func() (ChannelState, error) { return ChannelState{Sequences: []SequenceRow{{Sequence: 1}}}, nil }
	busy.Halt = func(context.Context, time.Time) error { return ErrPublishing }
	away.State = func() (ChannelState, error) { return ChannelState{}, errors.New("the disk is gone") }
	for want, channel := range map[int]*Channel{409: busy, 503: away} {
		serve(channel)
		post("/v1/fleet/halt", `{"why":"x"}`, want)
	}
	serve(one)
	testkit.Has(t, post("/v1/fleet/halt", `{"why":"x"}`, 409), "no sequence before")
}
