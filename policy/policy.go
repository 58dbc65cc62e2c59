// Package policy decides. Every front door asks it and only translates the
// answer into its own protocol; no other package knows what a match leads to.
package policy

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/addr"
	"blockd/index"
)

// Kind is the verdict in one word, as `blockd check` and HTTP print it.
type Kind string

// The verdicts.
const (
	Blocked Kind = "blocked" // an entry that counts blocks, defers or discards
	Allowed Kind = "allowed" // an allow entry decides
	Clear   Kind = "clear"   // nothing that counts matches
	Unknown Kind = "unknown" // no sender, or the store cannot be read
)

// Settings of a Checker.
type Settings struct {
	RecipientsExempt []string // local-parts, compared without case, at any domain
	OnError          OnError  // what an unreadable store leads to
}

// OnError says what becomes of mail when the store cannot be read.
type OnError string

// The two choices.
const (
	AcceptOnError   OnError = "accept"
	TempfailOnError OnError = "tempfail"
)

// Checker decides about senders. It is safe for concurrent use and holds no
// generation: each verdict comes whole from the one that live returns.
type Checker struct{}

// New returns a Checker over live, which must never return nil. Metrics go to reg.
func New(live func() *index.Index, s Settings, log *slog.Logger, reg prometheus.Registerer) *Checker {
	panic("unwritten")
}

// Verdict is the decision about one sender, by one generation.
type Verdict struct {
	Kind       Kind
	Sender     addr.Addr        // canonical; zero for <> and for what is no sender
	Matches    []index.Match    // all of them, the most specific first
	Lists      []index.ListInfo // the table that Match.Row points into
	Decider    int              // index into Matches of the entry that decided; -1 none
	Shadow     int              // index into Matches of the entry that would have refused, had its list counted; -1 none
	Generation string
	Err        error // of Unknown: why. *addr.Error: no sender; else the store
}

// Sender decides about one reverse-path, given as text with or without angle
// brackets. It never fails: what goes wrong is Unknown, counted and logged.
func (c *Checker) Sender(reversePath string) Verdict { panic("unwritten") }

// Outcome is what becomes of one recipient of a transaction.
type Outcome uint8

// The outcomes.
const (
	Accept Outcome = iota
	Refuse         // permanent, 550
	Defer          // temporary, 451
)

// Decision is the answer to one RCPT (or to MAIL, where the filter refuses there).
type Decision struct {
	Outcome Outcome
	Reply   string // of Refuse and Defer: the whole reply line without CRLF, "550 5.7.1 <…>: …"
	Ref     string // in Reply and in the log; "" when accepted without a match
	Exempt  bool   // a listed sender, accepted because of the recipient
	Shadow  bool   // accepted, but a shadow list would have refused
}

// Recipient decides about one recipient of a sender with verdict v. recipient is
// the address of RCPT TO without angle brackets, as the client wrote it; "" asks
// about the sender alone.
func (c *Checker) Recipient(v Verdict, recipient string) Decision { panic("unwritten") }
