package session

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"time"

	"blockd/mailbox"
	"blockd/smtpfilter/upstream"
	"blockd/spool"
)

// Settings of a Relay.
type Settings struct {
	Hostname   string            // in the greeting, in EHLO's reply, in trace headers
	RejectAt   string            // "rcpt" (also "") or "mail": where a listed sender is refused
	ClientInfo string            // "none" (also ""), "xclient", "proxy-v2"; "none" adds a Received header
	Protocol   upstream.Protocol // what upstream speaks
	Limits     Limits

	ClientRejectAt    string              // "rcpt" (also "") or "connect": where a listed client is refused
	Helo              string              // "off" (also "") or "valid": whether EHLO must name a host
	PTR               string              // "off" (also ""), "exists" or "confirmed": whether the client's address must have a name in DNS
	Auth              string              // "off" (also "") or "forward": AUTH goes on to upstream
	SkipAuthenticated bool                // no list of senders is asked about a client that has authenticated
	Chunking          bool                // CHUNKING and BINARYMIME are offered where upstream does
	Trusted           []netip.Prefix      // no list is asked about these clients
	Quarantine        *mailbox.Quarantine // for mail that a list sets aside; nil = there is none
	Copies            *spool.Store        // of messages that are to prove something; nil = one of its own
	MaxCopy           int64               // octets of such a message; a larger one proves nothing; 0 = 10 MiB

	// StartTLS does the server's side of a TLS handshake on a client's
	// connection, within a limit of its own; nil = STARTTLS is not offered. After
	// an error the session ends without a further octet.
	StartTLS func(ctx context.Context, conn net.Conn) (net.Conn, error)

	// Crowded reports that clients are to be given Limits.StressIdle for their
	// next command, and not Limits.CommandIdle; nil = never.
	Crowded func() bool
}

// FinalReply is the default of Limits.FinalReply (RFC 5321, section 4.5.3.2.6).
const FinalReply = 10 * time.Minute

// Limits of one session. A zero field takes the default named beside it.
type Limits struct {
	CommandIdle   time.Duration // 5 min: a command line must be whole by then
	StressIdle    time.Duration // 30 s: the same while Settings.Crowded
	DataStart     time.Duration // 2 min: from 354 to the first octet of data
	DataBlock     time.Duration // 3 min: from one octet of data to the next
	UpstreamReply time.Duration // 5 min: for upstream's reply to a command
	FinalReply    time.Duration // 10 min: for upstream's reply to the dot
	Session       time.Duration // 1 h: the whole session, save the wait for the final reply
	Drain         time.Duration // 60 s: for a transaction when the filter stops
	GreetWait     time.Duration // 0 = none: a client that talks before our greeting gets 521
	ErrorDelay    time.Duration // 1 s: before each error reply beyond SoftErrors

	MinDataRate  int   // 500 octets a second, over a whole DATA
	MessageSize  int64 // 50 MiB: our own cap; the smaller of it and upstream's SIZE is offered
	CommandRate  int   // 0 = any: commands a minute, then 421 and the end
	Recipients   int   // 1,000 RCPT a transaction (RFC 5321, section 4.5.3.1.8, asks for 100)
	SoftErrors   int   // 10 of our own 5xx replies since the last accepted message
	HardErrors   int   // 20: then 421 and the end
	Tarpits      int   // 256 sessions of a Relay whose answer is held back; beyond them answers come at once
	JunkCommands int   // 100 NOOP, RSET, VRFY, HELP, EHLO since the last accepted message
}

// patience is how long a client has for its next command.
func (s Settings) patience() time.Duration {
	if s.Crowded != nil && s.Crowded() {
		return min(s.Limits.StressIdle, s.Limits.CommandIdle)
	}
	return s.Limits.CommandIdle
}

// withDefaults fills the zero fields.
func (l Limits) withDefaults() Limits {
	l.CommandIdle = cmp.Or(l.CommandIdle, 5*time.Minute)
	l.StressIdle = cmp.Or(l.StressIdle, 30*time.Second)
	l.DataStart = cmp.Or(l.DataStart, 2*time.Minute)
	l.DataBlock = cmp.Or(l.DataBlock, 3*time.Minute)
	l.UpstreamReply = cmp.Or(l.UpstreamReply, 5*time.Minute)
	l.FinalReply = cmp.Or(l.FinalReply, FinalReply)
	l.Session = cmp.Or(l.Session, time.Hour)
	l.Drain = cmp.Or(l.Drain, time.Minute)
	l.ErrorDelay = cmp.Or(l.ErrorDelay, time.Second)
	l.MinDataRate = cmp.Or(l.MinDataRate, 500)
	l.MessageSize = cmp.Or(l.MessageSize, 50<<20)
	l.Recipients = cmp.Or(l.Recipients, 1000)
	l.SoftErrors = cmp.Or(l.SoftErrors, 10)
	l.HardErrors = cmp.Or(l.HardErrors, 20)
	l.Tarpits = cmp.Or(l.Tarpits, 256)
	l.JunkCommands = cmp.Or(l.JunkCommands, 100)
	return l
}
