// Package history keeps the last decisions on disk, so that somebody can ask later
// why a mail was refused, and what a new list would have done to the mail of a week.
//
// It is bounded in octets and in age, and mail never waits for it: a decision is put
// into a buffer in memory, one goroutine writes what has gathered there, and what has
// no room is dropped and counted. Nothing is synced: a crash of the machine may cost
// the last seconds, one of the program at most a quarter of one.
//
// On disk are segments, text files of one decision a line behind a checksum. A line
// that does not agree with its checksum is left out and counted, and those around it
// count: the end of a line cannot stand in one, whatever a client has sent.
package history

import (
	"errors"
	"net/netip"
	"time"
)

// Record is one decision. Its field names are part of blockd's interface.
type Record struct {
	Time      time.Time  `json:"time"` // to the millisecond, UTC
	Door      string     `json:"door"` // "smtp", "milter", "policy", "socketmap" or "tcp"
	Outcome   string     `json:"outcome"`
	Verdict   string     `json:"verdict"`
	Client    netip.Addr `json:"client,omitzero"`
	Helo      string     `json:"helo,omitempty"`
	Sender    string     `json:"sender"`              // canonical, or as the client wrote what is no address; "" is <>
	Recipient string     `json:"recipient,omitempty"` // as the client wrote it; "" where the decision is for all, or before one was named

	Generation string `json:"generation"`
	Ref        string `json:"ref,omitempty"` // "" where no list had a part in it, and no rule refused it

	// Repeated is how many refusals this one stands for, itself included, which all had
	// its reference and came within a minute; 0: for itself alone.
	Repeated int `json:"repeated,omitempty"`

	// Why a listed sender was accepted, and what else is to be known of one.
	Exempt        bool `json:"exempt,omitempty"`        // everybody may write to the recipient
	Shadow        bool `json:"shadow,omitempty"`        // the list does not count yet
	Authenticated bool `json:"authenticated,omitempty"` // had logged in: only the client was asked about

	// The entry that decided, or would have. List is "" if there is none.
	Source string `json:"source,omitempty"` // the header field of the address; "" = the envelope
	List   string `json:"list,omitempty"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Entry  string `json:"entry,omitempty"`
	Scope  string `json:"scope,omitempty"`
	Action string `json:"action,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Network returns the network that a client counts for: an IPv4 /24 or an IPv6 /48, the
// least that is routed on its own and so the least that one party has. It is zero for a
// client that is not known.
func Network(client netip.Addr) netip.Prefix {
	client = client.Unmap().WithZone("")
	bits := 24
	if client.Is6() {
		bits = 48
	}
	p, _ := client.Prefix(bits)
	return p
}

// Settings of a Log.
type Settings struct {
	Folder string        // made if it is not there
	Max    int64         // octets on disk, MinMax at least
	Keep   time.Duration // what is older is not shown; its file goes at most a day later
}

// The bounds of a history.
const (
	// MinMax is the least Settings.Max, in octets: one file is written while the oldest goes.
	MinMax = 16 << 20

	// maxText is how many octets of one text are kept. Those of legal addresses, names
	// and reasons are shorter; a path may lose its end.
	maxText = 512

	// maxSegment is the size of a file. 8 MiB are some 60,000 decisions and are read in
	// one piece: searches begin at the newest.
	maxSegment = 8 << 20

	// maxBuffer is what may wait for the disk, less than a small history's segment: at
	// 50,000 decisions a second a fifth of a second of them.
	maxBuffer = 3 << 19

	// writeFrom is how much is written at once while much comes, and writeAfter how
	// long little waits.
	writeFrom  = 256 << 10
	writeAfter = 250 * time.Millisecond

	// maxSearches run at a time: each reads up to all of the files, by one processor.
	maxSearches = 2

	// segmentAge bounds how much longer than Keep a decision may stay on disk.
	segmentAge = 24 * time.Hour
	pruneEvery = time.Hour
)

// ErrLocked is wrapped by Open's error when another process writes to the folder.
var ErrLocked = errors.New("another process keeps its history there")

// ErrBusy is Log.Search's error while as many searches run as may.
var ErrBusy = errors.New("other searches are under way")

// errNoLine reports a line that is not one that was written.
var errNoLine = errors.New("damaged")
