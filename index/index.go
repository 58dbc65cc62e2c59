// Package index is one generation of the lists: filter, exact store and list
// table, built together, kept in one immutable file, and trusted together.
//
// The file is specified in docs/index-format.md. The filter answers "surely not"
// for nearly every sender; only the exact store, which holds every key in full,
// can make a Match.
package index

import (
	"context"
	"time"

	"blockd/addr"
	"blockd/lists"
)

// Mode says whether the matches of a list count.
type Mode uint8

// The modes.
const (
	Enforce Mode = iota // "enforce": a match counts
	Shadow              // "shadow": a match is reported and does not count
)

// Source is one file of one list, as configured. Several sources may carry one
// list's name (a glob).
type Source struct {
	List     string // the list's name: 1 to 64 octets
	Path     string
	Settings lists.Settings
	Mode     Mode
	Optional bool // a missing file leaves the list empty
}

// Options of a build. The zero value is what the daemon uses.
type Options struct {
	BitsPerKey float64        // of the filter; 0 = 12, bounds 8 to 20
	KeepGoing  bool           // leave refused sources out instead of failing (first start only)
	Progress   func(Progress) // called often, from one goroutine at a time; nil = silence
	Seed       *Seed          // fixed build id, hash key and time, for golden files; nil = drawn anew
}

// Seed fixes what a build otherwise draws at random or reads from the clock.
type Seed struct {
	BuildID [16]byte
	HashKey [16]byte
	Built   time.Time
}

// Progress is how far a build is.
type Progress struct {
	Stage   string // "read", "sort", "write", "verify"
	Source  string // of "read": the file
	Done    int64  // bytes read or written, of Total
	Total   int64
	Entries int64
}

// ListInfo is one row of an index's list table: one source as it was compiled.
type ListInfo struct {
	Source  Source
	Summary lists.Summary
	// NetworkEntries were read but are not in the index: this version of the
	// file format's writer keeps senders only.
	NetworkEntries int
	// Refused is the error of a source that KeepGoing left out, else nil. It is
	// not stored in the file.
	Refused error
}

// Report is what a build did.
type Report struct {
	Lists      []ListInfo
	Keys       uint64 // distinct
	Entries    uint64 // a key held by three lists counts three times
	Bytes      int64  // of the file
	FilterBits uint64
	Elapsed    time.Duration
}

// Draft is a built index file that nobody serves yet: complete, synced and
// checked as a reader would, under a temporary name beside its target.
type Draft struct {
	Report Report
}

// Build reads all sources and writes a draft of the index at path. The file at
// path is not touched. When sources are refused it returns a *SourcesError that
// names every one of them (unless KeepGoing). Two builds of one path at a time
// are refused with ErrLocked.
func Build(ctx context.Context, path string, sources []Source, o Options) (*Draft, error) {
	panic("unwritten")
}

// Index is the draft, opened as a reader opens it. It stays valid after Publish.
func (d *Draft) Index() *Index { panic("unwritten") }

// Publish renames the draft to its target and syncs the folder.
func (d *Draft) Publish() error { panic("unwritten") }

// Discard removes the draft; after Publish it does nothing. Call it with defer.
func (d *Draft) Discard() { panic("unwritten") }

// SourcesError carries the error of every source that was refused, in order.
type SourcesError struct{ Errs []error }

func (e *SourcesError) Error() string   { panic("unwritten") }
func (e *SourcesError) Unwrap() []error { return e.Errs }

// Index is one generation, open for look-ups. It never changes, so goroutines
// share it without a lock. It pins its file: replace that file by rename, never
// write into it. The mapping goes when the last reference has gone.
type Index struct{}

// Open maps the index file at path and checks header, bounds, the sums of the
// small sections and of the filter. A damaged file gives an error that wraps
// ErrCorrupt and names the file.
func Open(path string) (*Index, error) { panic("unwritten") }

// Verify reads and sums every page of the store: the whole file is known good.
func (ix *Index) Verify(ctx context.Context) error { panic("unwritten") }

// Match is one entry that covers a sender. It holds copies only, nothing of the
// mapping.
type Match struct {
	Row    int      // of Lists(): which source
	Key    addr.Key // the entry; its text is the sender's own memory
	Scope  lists.Scope
	Action lists.Action
	Line   int
	Reason string
}

// Lookup appends to dst every entry that covers a, and that has not expired at
// now, the most specific first: address, exact name, longest sub or tree name,
// local-part; between equally specific ones in the order of Lists. It does not
// allocate when nothing matches. An error (wrapping ErrRead) means that the
// store could not be read: the sender is then neither listed nor clear.
func (ix *Index) Lookup(dst []Match, a addr.Addr, now time.Time) ([]Match, error) {
	panic("unwritten")
}

// Lists returns the list table in configuration order. Do not change it.
func (ix *Index) Lists() []ListInfo { panic("unwritten") }

// Generation is the build id in hexadecimal (32 digits), as logs and answers show it.
func (ix *Index) Generation() string { panic("unwritten") }

// Built is when the build began.
func (ix *Index) Built() time.Time { panic("unwritten") }

// Counts of the index as its header states them.
func (ix *Index) Counts() (keys, entries uint64) { panic("unwritten") }

// FalsePositives is how often the filter said perhaps and the store said no
// since Open, with the number of keys that were asked. Approximate under load.
func (ix *Index) FalsePositives() (falsePositives, asked uint64) { panic("unwritten") }

// FalsePositiveRate is the rate that the filter's size and load predict.
func (ix *Index) FalsePositiveRate() float64 { panic("unwritten") }
