// Package lists turns list text of any known format into entries, each with its
// file and line. Its rules are docs/lists.md: a line is an entry, a comment, or
// refused with a reason, and never lost in silence.
package lists

import (
	"context"
	"net/netip"

	"blockd/addr"
)

// Kind tells what one Item is.
type Kind uint8

// The kinds of items. Words as `blockd lint --json` prints them: see String.
const (
	Skip   Kind = iota // "skip": a comment, a header, a line that asks for nothing here
	Err                // "err": a line that was refused
	Addr               // "addr": Key is an address or a local-part
	Domain             // "domain": Key is a domain
	IP                 // "ip": Net is one client address
	CIDR               // "cidr": Net is a network of client addresses
)

// Scope is how far an entry reaches.
type Scope uint8

// The scopes. Label boundaries count: bulk.test never matches notbulk.test.
const (
	Exact Scope = iota // "exact": the mailbox, name or address itself
	Sub                // "sub": names below, at any depth, not the name itself
	Tree               // "tree": the name and all below; the network and all in it
	Local              // "local": this local-part at any domain
)

// Action is what an entry asks for.
type Action uint8

// The actions. Their order is the file format's: see docs/index-format.md.
const (
	Block    Action = iota // "block"
	Allow                  // "allow"
	Tempfail               // "tempfail"
	Discard                // "discard"
)

// Class is the word that `blockd lint` prints beside an item, of the closed set
// of docs/lists.md, section 9. The empty class is a plain entry.
type Class string

// Item is what one line, or one part of a line, means.
//
// Key.Text and Reason may live in the reader's buffer: they hold until the
// callback returns, and who keeps them copies them.
type Item struct {
	Line    int // physical line, from 1
	Kind    Kind
	Key     addr.Key     // of Addr and Domain
	Net     netip.Prefix // of IP and CIDR, masked
	Scope   Scope
	Action  Action
	Reason  string // for the client; at most 400 octets, no controls
	Class   Class  // of Skip and Err: why. Of an entry: a warning, or ""
	Message string // for people, free text
	Column  int    // where the fault begins, in octets from 1; 0 = unknown
	Text    string // the physical line as read, at most 4096 octets; for lint
}

// Settings say how a file is to be read. The zero value reads plain entries that
// block. They come from a [[list]] or from command line flags.
type Settings struct {
	Format     string // a name of Formats with an optional argument: "csv:3"; "" = "auto"
	Action     Action // Block or Allow
	Subdomains *bool  // scope of bare names; nil = the format's own default
	Reason     string // for entries that have none
	MaxBytes   int64  // of unpacked text; 0 = 4 GiB
}

// Verdict of a file.
type Verdict string

// The verdicts of a file.
const (
	Loaded  Verdict = "loaded"
	Refused Verdict = "refused"
)

// Summary is what was made of one file.
type Summary struct {
	Format  string // the one that was used, with its argument
	Lines   int    // physical lines
	Entries int    // items of kind addr, domain, ip and cidr, duplicates included
	Errors  int    // lines refused
	Skipped int    // lines that were neither entry, error, blank nor comment
	Verdict Verdict
	Why     string   // of Refused: a word of the closed set, ": ", and a text
	Hash    [16]byte // of the file's bytes as stored (before unpacking): XXH3-128
	Size    int64    // the file's size as stored
}

// ReadFile reads the list at path and calls emit for every item in line order.
// It checks that the file did not change meanwhile.
//
// A file that is no list at all (missing, torn, binary, wrong encoding, …) gives
// a *FileError and a Summary whose Verdict is Refused; items emitted until then
// must be dropped by the caller. Refused lines are no error: they are items of
// kind Err. An error of emit or ctx ends the reading and is returned as it is.
func ReadFile(ctx context.Context, path string, s Settings, emit func(*Item) error) (Summary, error) {
	panic("unwritten")
}

// HashFile hashes the stored bytes of the list at path as ReadFile does, without
// reading entries, with the same checks of file kind and change.
func HashFile(ctx context.Context, path string) ([16]byte, error) { panic("unwritten") }

// FileError is a file that was refused whole. Class is a first word of a
// summary's "why": "missing", "gzip", "changed", ….
type FileError struct {
	Path  string
	Line  int // 0 = the file as a whole
	Class Class
	Err   error
}

func (e *FileError) Error() string { panic("unwritten") }
func (e *FileError) Unwrap() error { return e.Err }

// ErrChanged is wrapped by the FileError of a file that moved while it was read:
// keep what serves, and read it again a moment later.
var ErrChanged error
