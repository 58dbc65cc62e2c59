package index

import (
	"blockd/index/internal/build"
	"blockd/index/internal/format"
	"blockd/index/internal/segment"
)

// What an index is made from, how it is built, and what its list table says. The
// packages that own these types say the rest.
type (
	Source       = format.Source      // one file of one list, as configured
	Mode         = format.Mode        // whether the matches of a list count
	Exceptions   = format.Exceptions  // how far the exceptions of a list reach
	ListInfo     = format.ListInfo    // one source as it was compiled
	ListWorth    = format.ListWorth   // what one list adds to the others
	Overlap      = format.Overlap     // what two lists have in common
	Options      = build.Options      // of a build; the zero value is what the daemon uses
	Progress     = build.Progress     // how far a build is
	Report       = build.Report       // what a build did
	SourceError  = build.SourceError  // why a source is refused
	SourcesError = build.SourcesError // the error of every source that was refused
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

// DefaultMemory is Options.Memory where that is 0, in octets.
const DefaultMemory = build.DefaultMemory

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
