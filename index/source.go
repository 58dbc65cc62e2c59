package index

import (
	"fmt"
	"time"

	"blockd/lists"
)

// Mode says whether the matches of a list count.
type Mode uint8

// The modes.
const (
	Enforce Mode = iota // "enforce": a match counts
	Shadow              // "shadow": a match is reported and does not count
)

// String returns the mode's word in configuration and output.
func (m Mode) String() string {
	if m == Shadow {
		return "shadow"
	}
	return "enforce"
}

// Exceptions says how far the exceptions of a list that blocks reach.
type Exceptions uint8

// The reaches.
const (
	OwnExceptions Exceptions = iota // "own": they lift what the same list blocks
	AllExceptions                   // "all": they go before the blocks of every list
	NoExceptions                    // "none": they are read and counted, and have no effect
)

// exceptionWords are their words in configuration and output.
var exceptionWords = [...]string{"own", "all", "none"}

func (e Exceptions) String() string { return exceptionWords[e] }

// ParseExceptions reads such a word.
func ParseExceptions(word string) (Exceptions, error) {
	for i, w := range exceptionWords {
		if w == word {
			return Exceptions(i), nil
		}
	}
	return 0, fmt.Errorf(`want "own", "all" or "none", have %q`, word)
}

// Source is one file of one list, as configured. Several sources may carry one
// list's name (a glob).
type Source struct {
	List     string // the list's name: 1 to 64 octets
	Path     string // at most 4096 octets
	Settings lists.Settings
	Mode     Mode
	Optional bool // a missing file leaves the list empty

	Exceptions Exceptions // see Reach
}

// Reach is how far the exceptions of the list reach: those of a list that allows
// reach all, whatever Exceptions says.
func (s *Source) Reach() Exceptions {
	if s.Settings.Action == lists.Allow {
		return AllExceptions
	}
	return s.Exceptions
}

// Equal reports whether both name the same file and read it the same way. The
// same content then gives the same entries if ListInfo.Guard is the same too,
// which a row has in place of Settings.Guard.
func (s Source) Equal(o Source) bool {
	a, b := s.Settings.Subdomains, o.Settings.Subdomains
	sameSubdomains := a == b || a != nil && b != nil && *a == *b
	s.Settings.Subdomains, o.Settings.Subdomains = nil, nil
	s.Settings.Guard, o.Settings.Guard = nil, nil
	return sameSubdomains && s == o
}

// Options of a build. The zero value is what the daemon uses.
type Options struct {
	BitsPerKey float64        // of the filter; 0 = 12, bounds 8 to 20
	KeepGoing  bool           // leave refused sources out instead of failing (first start only)
	SipHash    bool           // the keyed hash from the start, instead of when XXH3 is attacked
	Progress   func(Progress) // called often, from one goroutine at a time; nil = silence
	Seed       *Seed          // fixed build id, hash key and time, for golden files; nil = drawn anew
	Workers    int            // goroutines, at most 8; 0 = GOMAXPROCS
	Memory     int64          // octets for records, beyond which they go to a file; 0 = 448 MiB, at least 1 MiB

	// Cache is a folder for what was read of each source, so that one which has not
	// changed need not be parsed again; "" = none. It is made when it is needed and
	// is of no use to any other index. What is wrong with it costs time and no more.
	Cache string
	// LastGood puts what a refused source held in the last published build in its
	// place, from Cache; such a row has LastGood. A source that never was good is
	// refused as ever.
	LastGood bool
	// Hold names sources, by their place, that LastGood is to replace unread, and
	// why: who has judged the whole of them has found them wanting.
	Hold map[int]error
}

// Seed fixes what a build otherwise draws at random or reads from the clock.
type Seed struct {
	BuildID [16]byte
	HashKey [16]byte
	Built   time.Time
}

// ListInfo is one row of an index's list table: one source as it was compiled.
type ListInfo struct {
	Source  Source
	Summary lists.Summary // Verdict and Why tell a source that was left out
	Guard   uint64        // lists.Guard.ID of the guard it was read under
	// NetworkEntries are those for client addresses, repeated ones included.
	NetworkEntries int
	// Refused is the error of a source that KeepGoing left out, or that LastGood
	// replaced, else nil. It is not stored in the file.
	Refused error
	// LastGood: what is in the index is what the source held before it was refused.
	// Summary tells of that. It is not stored in the file.
	LastGood bool
}

// Report is what a build did.
type Report struct {
	Lists      []ListInfo
	Keys       uint64 // distinct
	Entries    uint64 // a key held by three lists counts three times
	Duplicates uint64 // entries that repeat key, scope and action of an earlier line of their file
	Dropped    uint64 // entries beyond the 64 that the file keeps of one key
	Bytes      int64  // of the file
	FilterBits uint64
	Hash       string // "xxh3", or "siphash" where asked for or where keys collide on purpose
	Reseeds    int    // how often the build began anew because keys crowded one page
	Elapsed    time.Duration
	Stages     []Stage  // what the time was spent on
	Cached     int      // sources that were not parsed, since they are as at the last build
	Notes      []string // what was wrong with Options.Cache, a line each; nothing that matters to the index
	Spilled    int64    // octets of records that went to a temporary file
	PeakMemory int64    // the most that the process has had so far, in octets; 0 = unknown
}
