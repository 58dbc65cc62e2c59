// Package shared gives the machines of a fleet one set of live entries and tokens.
//
// An engine, a PostgreSQL or a Redis that all of them reach, gives each change a revision. A node takes the changes in the
// order of their revisions into its own live entries, and answers by those: a look-up never waits for the engine, and a
// start without it serves what was known. Of two changes of one entry the one with the higher revision is in force, whole.
package shared

import (
	"context"
	"errors"
	"time"

	"blockd/index/live"
)

// ScopeToken is the scope of rows that are tokens of the HTTP door: Entry is the name, Action "read" or "write", Why
// "sha256:HEX proof:HEX" and perhaps a blank and the owners that it is bound to, Gone says that it is revoked. The
// proof is a keyed hash.
const ScopeToken = "token"

// The bounds of what an engine is asked for, whoever has written it.
const (
	MostReports   = 5000
	MaxReport     = 64 << 10 // octets
	MaxAllReports = 64 << 20

	// MaxField is the most characters of a field of a row that are asked for. No live entry and no token has as many, so what is cut
	// off is none.
	MaxField = 20_000
)

// KeepGone is how long an engine keeps the row of what was removed.
const KeepGone = 7 * 24 * time.Hour

// Page is what has changed since a revision.
type Page struct {
	Epoch  string // drawn when the engine's rows were begun: another one says that they are others
	Rev    uint64 // the highest revision that was given, or that is left of them
	Now    time.Time
	Rows   []live.Row // in the order of their revisions, tokens among them
	Bad    []string   // what stands between them and is no row, by a name for people
	To     uint64     // the revision of the last of both; 0 = there are none
	More   bool       // there are more after these
	TooOld bool       // not all changes since then are known any more; Rows has none
}

// State is how much an engine has.
type State struct {
	Epoch string
	Rev   uint64
	Now   time.Time
	Count int64      // of entries that are not gone, without tokens
	XOR   *[2]uint64 // as live.Sum has it; nil = the engine cannot say
}

// Written is what came of a Write.
type Written struct {
	Given    []live.Given
	Replicas int // that have it too; -1 = the engine does not say
}

// ErrUnknown is wrapped by the error of a Write whose outcome is not known: it may have been made.
var ErrUnknown = errors.New("it is not known whether the change was made")

// ErrRefused is wrapped by the error of a Write that the engine will refuse however often it is asked: the change itself is
// at fault. Nothing was made.
var ErrRefused = errors.New("the store refuses this change")

// Engine keeps the rows of a fleet. Changes, All, Write, State, Sweep, Report and Reports are for one goroutine at a time; Wait is for another one.
// Each connects if it has to.
type Engine interface {
	// Changes returns at most so many rows with a revision above since.
	Changes(ctx context.Context, since uint64, most int) (Page, error)
	// All gives each all rows, those of removals too, some at a time, and by name what is no row. A row that changes meanwhile may come as before.
	All(ctx context.Context, each func(rows []live.Row, bad []string) error) error
	// Write makes all changes, in order, or none. Its error wraps live.ErrOwnerFull, live.ErrChanged or ErrRefused, or is about the engine.
	Write(ctx context.Context, wants []live.Want, terms live.Terms) (Written, error)
	State(ctx context.Context) (State, error)
	// Sweep removes what has ended, with a revision, and forgets what was removed KeepGone ago.
	Sweep(ctx context.Context) error
	// Wait returns nil when there may be a change, or the error of ctx.
	Wait(ctx context.Context) error
	// Report keeps a node's report for life; Reports returns those that live, by node: at most MostReports, none of more than MaxReport octets.
	Report(ctx context.Context, node string, report []byte, life time.Duration) error
	Reports(ctx context.Context) (map[string][]byte, error)
	// String names the engine without a password.
	String() string
	Close()
}
