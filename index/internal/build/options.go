package build

import (
	"context"
	"time"

	"blockd/index/internal/format"
	"blockd/mail/digest"
)

// Options of a build. The zero value is what the daemon uses.
type Options struct {
	BitsPerKey float64        // of the filter; 0 = 12, bounds 8 to 20
	KeepGoing  bool           // leave refused sources out instead of failing
	Hashes     digest.Set     // digests by which addresses can be asked for too; each is one more key an address
	SipHash    bool           // the keyed hash from the start, instead of when XXH3 is attacked
	Progress   func(Progress) `json:"-"` // called often, from one goroutine at a time; nil = silence
	// Parse is ParseSegment by another process, for updates; nil = in this one.
	Parse   func(ctx context.Context, cache string, s format.Source) error `json:"-"`
	Seed    *Seed                                                          // fixed build id, hash key and time, for golden files; nil = drawn anew
	Workers int                                                            // goroutines, at most 8; 0 = GOMAXPROCS
	Memory  int64                                                          // octets for records, beyond which they go to a file; 0 = 448 MiB, at least 1 MiB

	// Cache is a folder for what was read of each source, so that one which has not
	// changed need not be parsed again; "" = none. It is made when it is needed and
	// is of no use to any other index. What is wrong with it costs time and no more.
	Cache string
	// LastGood puts what a refused source held in the last published build in its
	// place, from Cache; such a row has LastGood. A source that never was good is
	// refused as ever.
	LastGood bool
	// Hold names sources, by their place, that LastGood is to replace unread, and
	// why: who has judged the whole of them has found them wanting. With KeepGoing
	// one that never was good is left out.
	Hold map[int]error
}

// Seed fixes what a build otherwise draws at random or reads from the clock.
type Seed struct {
	BuildID [16]byte
	HashKey [16]byte
	Built   time.Time
}

// Report is what a build did.
type Report struct {
	Lists      []format.ListInfo
	Keys       uint64 // distinct, those for digests not counted
	Entries    uint64 // a key held by three lists counts three times
	Owners     uint64 // recipients, mailboxes and domains, that have entries of their own
	Digests    uint64 // keys by which addresses can be asked for by their digests
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
