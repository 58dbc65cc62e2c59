// Package reload owns time: when to look at the list files, when to build,
// whether a new generation may serve, the swap, and the old one's end.
package reload

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/lists"
)

// List is one [[list]] of the configuration.
type List struct {
	Name       string
	Path       string // a file or a glob
	Settings   lists.Settings
	Mode       index.Mode
	Optional   bool
	AllowEmpty bool // a list that had entries may become empty
}

// Settings of a Reloader.
type Settings struct {
	Path  string // of the index file
	Lists []List
	Quiet time.Duration // no event for so long before a build; 0 = 500 ms
	Poll  time.Duration // the slow look at all files; 0 = 30 s
}

// Reloader holds the serving generation and makes the next one.
type Reloader struct{}

// Status is what /readyz and the console say.
type Status struct {
	Ready       bool // false: a list that is not optional has never loaded
	Generation  string
	Since       time.Time // of the swap
	LastAttempt time.Time
	Problems    []string // one line each: why the last reload did not serve; empty = all is well
	Files       []index.ListInfo
}

// Open makes the first generation serve: the index at Settings.Path if it was
// built from these lists as they are now, else a fresh build; if a list is
// refused and the index on disk holds a good generation of these lists, that one;
// else a build without the refused lists (and Ready is false, unless optional).
func Open(ctx context.Context, s Settings, log *slog.Logger, reg prometheus.Registerer) (*Reloader, error) {
	panic("unwritten")
}

// Live returns the serving generation, never nil. Load it once a transaction.
func (r *Reloader) Live() *index.Index { panic("unwritten") }

// Run watches until ctx ends. Call it once.
func (r *Reloader) Run(ctx context.Context) error { panic("unwritten") }

// Now asks Run for a reload at once, without the quiet time (SIGHUP). It does
// not wait.
func (r *Reloader) Now() { panic("unwritten") }

// Status may be called at any time.
func (r *Reloader) Status() Status { panic("unwritten") }
