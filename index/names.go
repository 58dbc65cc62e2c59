package index

import (
	"blockd/index/internal/format"
	"blockd/index/internal/segment"
)

// What an index is made from and what its list table says, as package format has it.
type (
	// Source is one file of one list, as configured.
	Source = format.Source
	// Mode says whether the matches of a list count.
	Mode = format.Mode
	// Exceptions says how far the exceptions of a list that blocks reach.
	Exceptions = format.Exceptions
	// ListInfo is one row of an index's list table: one source as it was compiled.
	ListInfo = format.ListInfo
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
