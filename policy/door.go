package policy

import (
	"log/slog"
	"net/netip"
	"time"
)

// Door says what a front door is and what it can do. It is stated once; every decision
// is then one that the door can carry out.
type Door struct {
	Name string // in the history and in the log
	Log  *slog.Logger

	// What it can do with a message.
	Marks       bool // put a header field on top of it
	Quarantines bool // set it aside
	Discards    bool // take it and drop it; elsewhere a discard entry counts as a block
	Splits      bool // set it aside for some recipients, and pass it on for the others
	Holds       bool // a message that is set aside names no list

	// What it is shown.
	SeesHeader  bool
	SeesMessage bool
	// Streams: the message goes on while it comes. What is known at the end of the header
	// is then done there, and a mark, which stands on top, cannot wait for the end.
	Streams bool

	// Where it asks.
	Greets       bool // its answer to a client that connects stands in place of the greeting
	PassesAtMail bool // it is not told the recipients of a message that has passed at MAIL
	SendersOnly  bool // it never hears of recipients
	HearsEnd     bool // it says Completed of every message that wants it

	SkipAuthenticated bool          // no list of senders is asked about a client that has authenticated
	ProofTimeout      time.Duration // for the DNS queries of one answer; what is open then is not proved; 0 = the resolver's own

	forgets bool // nothing is proved, remembered or logged
}

// Client is the SMTP client of a transaction.
type Client struct {
	Addr          netip.Addr // of the mail, not of a proxy; zero = unknown
	Helo          string
	Authenticated bool // it has logged in
	Trusted       bool // no list is asked about it

	// Line has the door's own fields of a log line; nil = none.
	Line func() []slog.Attr
}

// String is the client's address, as every line of the log has it.
func (c *Client) String() string {
	if !c.Addr.IsValid() {
		return "unknown"
	}
	return c.Addr.Unmap().WithZone("").String()
}

// Mail is what MAIL says.
type Mail struct {
	Sender  string // the reverse-path, as Checker.Ask takes it
	Other   string // a second spelling of it, about which lists are asked too; "" = none
	Written string // as the client wrote it, for the history and the log
	UTF8    bool   // the client has said SMTPUTF8, and so can read more than ASCII
	List    string // of a door that hears of senders only: this list alone decides; "" = all
}
