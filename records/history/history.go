// Package history keeps the last decisions on disk. It answers later
// why a mail was refused, and what a new list would have done to the mail of a week.
//
// It is bounded in octets and in age, and mail never waits for it. A decision goes
// into a buffer in memory, and one goroutine writes the buffer. A decision without
// room is dropped and counted. Nothing is synced: a crash of the machine may cost
// the last seconds, a crash of the program at most a quarter of a second.
//
// On disk are segments, text files with one decision a line, after its checksum. A line
// that does not agree with its checksum is left out and counted. The lines around it
// still count, because a line cannot hold a line end, whatever a client has sent.
package history

import (
	"errors"
	"net/netip"
	"time"
)

// Record is one decision. Its field names are part of blockd's interface.
type Record struct {
	Time      time.Time  `json:"time"` // to the millisecond, UTC
	Door      string     `json:"door"` // "smtp", "milter", "policy", "socketmap", "tcp", "dns" or "resp"
	Outcome   string     `json:"outcome"`
	Verdict   string     `json:"verdict"`
	Client    netip.Addr `json:"client,omitzero"`
	Helo      string     `json:"helo,omitempty"`
	Sender    string     `json:"sender"`              // canonical, or as the client wrote what is no address; "" is <>
	Recipient string     `json:"recipient,omitempty"` // as the client wrote it; "" where the decision is for all, or before one was named

	Generation string `json:"generation"`
	Ref        string `json:"ref,omitempty"` // "" where no list had a part in it, and no rule refused it

	// Repeated is how many refusals this one stands for, itself included. All had
	// its reference, sender and entry, and came within a minute. 0: only itself. With Several
	// they had several recipients of one domain, of whom this one was the last.
	Repeated int  `json:"repeated,omitempty"`
	Several  bool `json:"several,omitempty"`

	// Why a listed sender was accepted, and other facts about it.
	Exempt        bool `json:"exempt,omitempty"`        // every sender may write to the recipient
	Shadow        bool `json:"shadow,omitempty"`        // the list does not count yet
	Authenticated bool `json:"authenticated,omitempty"` // had logged in: only the client was checked
	Unasked       bool `json:"unasked,omitempty"`       // the store of a list could not be asked about the sender
	Correspondent bool `json:"correspondent,omitempty"` // users of this server write to the sender
	Pardoned      bool `json:"excused,omitempty"`       // a list would have refused it; it passed as a correspondent with proof
	Sole          bool `json:"sole,omitempty"`          // no other list had an entry for it
	Hearsay       bool `json:"hearsay,omitempty"`       // any user of this machine could have been the door's peer: it is no evidence
	FirstSeen     bool `json:"first_seen,omitempty"`    // put off once: the sender's domain had not sent mail here before

	// The entry that decided, or would have. List is "" if there is none.
	Source string `json:"source,omitempty"` // the header field of the address; "" = the envelope
	List   string `json:"list,omitempty"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Entry  string `json:"entry,omitempty"`
	Scope  string `json:"scope,omitempty"`
	Action string `json:"action,omitempty"`
	Reason string `json:"reason,omitempty"`
	Owner  string `json:"owner,omitempty"` // the mailbox or domain whose entry it is; "" = everybody's
}

// Listed is the outcome of an answer to a program, which is no decision about mail.
const Listed = "listed"

// Mail is the outcome that a Query asks for to have all but Listed.
const Mail = "mail"

// Excused reports whether the list would have refused it, and is not one of those that count
// for the recipient.
func (r *Record) Excused() bool {
	return r.Verdict == "clear" && r.List != "" && !r.Shadow && !r.Exempt
}

// Network returns the network that a client counts for: an IPv4 /24 or an IPv6 /48. These
// are the smallest networks that are routed on their own, so one party has at least as
// much. It is zero for an unknown client.
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
	Folder string                 // made if it is not there
	Max    int64                  // octets on disk, MinMax at least
	Settle func(add func(Record)) // gives what is still counted elsewhere, before decisions are read; nil: nothing is
	Keep   time.Duration          // older decisions are not shown; their file goes at most a day later
}

// The bounds of a history.
const (
	// MinMax is the least Settings.Max, in octets: one file is written while the oldest goes.
	MinMax = 16 << 20

	// maxText is how many octets of one text are kept. Legal addresses, names
	// and reasons are shorter; a path may lose its end.
	maxText = 512

	// maxSegment is the size of a file. 8 MiB are some 60,000 decisions and are read in
	// one piece: searches begin at the newest.
	maxSegment = 8 << 20

	// maxBuffer bounds what waits for the disk. It is less than a small history's segment,
	// and a fifth of a second at 50,000 decisions a second.
	maxBuffer = 3 << 19

	// maxOfNetwork bounds what waits of one client's network, and maxOfDoor of one door, so that a flood leaves room for
	// the decisions about others. They are told apart by keyed hashes of so many values.
	maxOfNetwork = maxBuffer / 8 * 6
	maxOfDoor    = maxBuffer / 8 * 7
	mostNetworks = 256

	// At writeFrom octets the buffer is written at once. Fewer wait for writeAfter at
	// most.
	writeFrom  = 256 << 10
	writeAfter = 250 * time.Millisecond

	// maxSearches run at a time, because each may read all of the files, on one processor.
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
