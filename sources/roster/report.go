// Package roster is one view of a fleet: what its nodes say of themselves, and whether those that have taken a new sequence first
// refuse more than the others.
package roster

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// How often a node reports, and for how long a report counts.
const (
	Every = 30 * time.Second
	Life  = 90 * time.Second
)

// The bounds of a report.
const (
	MaxReport   = 64 << 10 // octets of its JSON
	maxName     = 255
	maxText     = 300
	maxProblems = 20
	maxSources  = 200
)

// Report is what a node says of itself. The counts grow from the start of its process on.
type Report struct {
	Node       string    `json:"node" doc:"its name"`
	At         time.Time `json:"at" doc:"when it was made, by the clock of the node"`
	Version    string    `json:"version" doc:"of blockd"`
	Generation string    `json:"generation" doc:"of its index"`
	Ready      bool      `json:"ready" doc:"mail may be sent there"`
	Address    string    `json:"address,omitempty" doc:"where its HTTP door can be asked by others (fleet.address)"`

	Channel  string `json:"channel,omitempty" doc:"that it follows; absent: none"`
	Sequence int64  `json:"sequence,omitempty" doc:"that it serves"`
	Newest   int64  `json:"newest,omitempty" doc:"the highest that it has seen"`
	Lag      int64  `json:"lag,omitempty" doc:"seconds since the sequence was made that it serves"`
	Canary   bool   `json:"canary,omitempty" doc:"it is among the first of each sequence"`
	Pinned   int64  `json:"pinned,omitempty" doc:"the sequence at which it stays"`

	GateRefusals int      `json:"gate_refusals" doc:"lists whose newest content its gate refuses"`
	Sources      []Source `json:"sources,omitempty" doc:"of its lists that have one, those that are well left out"`

	LiveRevision uint64 `json:"live_revision,omitempty" doc:"of the newest change of shared live entries that acts there"`
	LiveSum      string `json:"live_sum,omitempty" doc:"of these entries"`
	LiveUp       bool   `json:"live_up,omitempty" doc:"their database answers"`
	LiveLost     int    `json:"live_lost,omitempty" doc:"changes that their database has lost"`

	Begun     time.Time `json:"begun" doc:"when its process began"`
	Checks    uint64    `json:"checks" doc:"senders that it has decided about"`
	Refused   uint64    `json:"refused" doc:"of these, those that were listed"`
	Since     Counts    `json:"since" doc:"the same since it serves its sequence"`
	PerSecond float64   `json:"checks_per_second" doc:"of the last minutes"`
	Problems  []string  `json:"problems" doc:"as its /readyz has them, the first of them"`
}

// Counts are those of a time.
type Counts struct {
	Sequence int64  `json:"sequence"`
	Checks   uint64 `json:"checks"`
	Refused  uint64 `json:"refused"`
}

// Source is how the source of a list is.
type Source struct {
	List  string `json:"list"`
	State string `json:"state"`
}

// Share is the share of senders that were listed, of the last counts that a report has; 0 without any.
func (r *Report) Share() float64 {
	if r.Checks == 0 {
		return 0
	}
	return float64(r.Refused) / float64(r.Checks)
}

// Encode returns the JSON of a report, without what is beyond its bounds.
func (r Report) Encode() ([]byte, error) {
	r.Problems = slices.Clone(r.Problems[:min(len(r.Problems), maxProblems)])
	for i, text := range r.Problems {
		r.Problems[i] = cut(text)
	}
	if r.Problems == nil {
		r.Problems = []string{}
	}
	r.Sources = r.Sources[:min(len(r.Sources), maxSources)]
	text, err := json.Marshal(r)
	if err == nil && len(text) > MaxReport {
		err = fmt.Errorf("a report of %d octets", len(text))
	}
	return text, err
}

// cut returns one line of at most maxText octets.
func cut(text string) string {
	text = strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// Decode reads a report that another machine has sent.
func Decode(text []byte) (r Report, err error) {
	if len(text) > MaxReport {
		return r, fmt.Errorf("a report of more than %d octets", MaxReport)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, err
	}
	for _, t := range []string{r.Node, r.Version, r.Generation, r.Address, r.Channel, r.LiveSum} {
		if len(t) > maxName || !utf8.ValidString(t) || strings.ContainsFunc(t, unicode.IsControl) {
			return r, errors.New("a text that is too long, or not one line")
		}
	}
	if r.Node == "" || len(r.Problems) > maxProblems || len(r.Sources) > maxSources || r.Refused > r.Checks || r.Since.Refused > r.Since.Checks {
		return r, errors.New("no report of a node")
	}
	for i, text := range r.Problems {
		r.Problems[i] = cut(text)
	}
	for i, s := range r.Sources {
		r.Sources[i] = Source{cut(s.List), cut(s.State)}
	}
	if r.Problems == nil {
		r.Problems = []string{}
	}
	return r, nil
}
