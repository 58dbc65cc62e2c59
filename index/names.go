package index

import (
	"blockd/index/internal/build"
	"blockd/index/internal/format"
	"blockd/index/internal/segment"
)

// What an index is made from, how it is built, and what its list table says. The
// packages that own these types say the rest.
type (
	// Source is one file of one list, as configured.
	Source = format.Source
	// Mode says whether the matches of a list count.
	Mode = format.Mode
	// Exceptions says how far the exceptions of a list that blocks reach.
	Exceptions = format.Exceptions
	// ListInfo is one row of an index's list table: one source as it was compiled.
	ListInfo = format.ListInfo
	// Options of a build. The zero value is what the daemon uses.
	Options = build.Options
	// Seed fixes what a build otherwise draws at random or reads from the clock.
	Seed = build.Seed
	// Progress is how far a build is.
	Progress = build.Progress
	// Report is what a build did.
	Report = build.Report
	// Stage is one part of a build and the time that it took.
	Stage = build.Stage
	// SourcesError carries the error of every source that was refused, in order.
	SourcesError = build.SourcesError
	// ListWorth is what one list adds to the others.
	ListWorth = format.ListWorth
	// Overlap is what two lists have in common.
	Overlap = format.Overlap
)

// The modes and reaches; format says what they mean.
const (
	Enforce       = format.Enforce
	Shadow        = format.Shadow
	OwnExceptions = format.OwnExceptions
	AllExceptions = format.AllExceptions
	NoExceptions  = format.NoExceptions
)

// ParseExceptions reads "own", "all" or "none".
func ParseExceptions(word string) (Exceptions, error) { return format.ParseExceptions(word) }

// CacheSuffix makes the name of an index's own cache folder out of its path.
const CacheSuffix = ".cache"

var (
	// ErrCorrupt is wrapped by every error about a file that is no index this
	// program can trust: damaged, cut off, or of another format version.
	ErrCorrupt = format.ErrCorrupt

	// ErrRead is wrapped by every error about a store that could not be read
	// after it was opened: the disk failed, the file was cut off under its
	// mapping, or a page is damaged (which wraps ErrCorrupt too).
	ErrRead = format.ErrRead

	// ErrTooDifferent is wrapped by Update's error where only a Build can tell what
	// the lists say now. Its text says why.
	ErrTooDifferent = segment.ErrTooDifferent
)
