package index

import (
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

// Source is one file of one list, as configured. Several sources may carry one
// list's name (a glob).
type Source struct {
	List     string // the list's name: 1 to 64 octets
	Path     string // at most 4096 octets
	Settings lists.Settings
	Mode     Mode
	Optional bool // a missing file leaves the list empty
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
	Summary lists.Summary // Verdict and Why tell a source that was left out
	Guard   uint64        // lists.Guard.ID of the guard it was read under
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
	Duplicates uint64 // entries that repeat key, scope and action of an earlier line of their file
	Dropped    uint64 // entries beyond the 64 that the file keeps of one key
	Bytes      int64  // of the file
	FilterBits uint64
	Hash       string // "xxh3", or "siphash" where asked for or where keys collide on purpose
	Reseeds    int    // how often the build began anew because keys crowded one page
	Elapsed    time.Duration
}
