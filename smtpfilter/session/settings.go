package session

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"time"

	"blockd/mail/mailbox"
	"blockd/mail/msgauth"
	"blockd/mail/spool"
	"blockd/smtpfilter/upstream"
)

// Settings configure a Relay.
type Settings struct {
	Hostname   string            // our name in the greeting, in the reply to EHLO and in Received fields
	RejectAt   string            // "rcpt" (also "") or "mail": the command at which a listed sender is refused
	Mail       string            // "lazy" (also "") or "strict": whether MAIL is answered here and goes upstream with the first RCPT, or goes there at once
	ClientInfo string            // "none" (also ""), "xclient" or "proxy-v2": how upstream learns the client's address; "none" adds a Received field instead
	Protocol   upstream.Protocol // SMTP or LMTP, to upstream
	Limits     Limits

	ClientRejectAt    string            // "rcpt" (also "") or "connect": the event at which a listed client is refused
	Helo              string            // "off" (also "") or "valid": whether EHLO must name a host
	PTR               string            // "off" (also ""), "exists" or "confirmed": whether the client's address must have a name in DNS
	Resolver          *msgauth.Resolver // asks DNS for PTR; nil = the rule refuses nothing
	Auth              string            // whether AUTH is forwarded to upstream
	SkipAuthenticated bool              // senders of clients that have authenticated are not looked up
	Chunking          bool              // offer CHUNKING and BINARYMIME if upstream does
	Trusted           []netip.Prefix    // clients in these networks are never checked
	// Own reports whether a client is this program, which sends its own mail: that is not checked. nil: none is.
	Own        func(client netip.AddrPort) bool
	Quarantine *mailbox.Quarantine // the Maildir for quarantined mail; nil = lists cannot quarantine
	Copies     *spool.Store        // copies of messages that may prove their sender; nil = a new store
	MaxCopy    int64               // the largest copy in octets; a larger message proves nothing; 0 = 10 MiB

	// StartTLS does the server's side of a TLS handshake on a client's connection, within a
	// time limit of its own. nil means that STARTTLS is not offered. After an error the
	// session ends without sending another octet.
	StartTLS func(ctx context.Context, conn net.Conn) (net.Conn, error)

	// Crowded reports whether clients get Limits.StressIdle for their next command instead of
	// Limits.CommandIdle. nil means never. Sessions call it at once from many goroutines.
	Crowded func() bool
}

// FinalReply is the default of Limits.FinalReply (RFC 5321, section 4.5.3.2.6).
const FinalReply = 10 * time.Minute

// Limits bound one session. A zero field means the default that its comment names.
type Limits struct {
	CommandIdle   time.Duration // 5 min: until the next command line has arrived whole
	StressIdle    time.Duration // 30 s: the same while Settings.Crowded returns true
	DataStart     time.Duration // 2 min: from 354 to the first octet of data
	DataBlock     time.Duration // 3 min: from one octet of data to the next
	UpstreamReply time.Duration // 5 min: for upstream's reply to a command
	FinalReply    time.Duration // 10 min: for upstream's reply to the dot
	Session       time.Duration // 1 h: the whole session, without the wait for the final reply
	Drain         time.Duration // 60 s: for an open transaction when the filter stops
	GreetWait     time.Duration // 0 = none: the delay before our greeting; clients that talk during it get 521
	ErrorDelay    time.Duration // 1 s: before each error reply beyond SoftErrors

	MinDataRate  int   // 500 octets a second, on average over a message
	MessageSize  int64 // 50 MiB in octets: the SIZE offered is the smaller of this and upstream's
	CommandRate  int   // 0 = any number: commands a minute; one more gets 421 and ends the session
	Recipients   int   // 1,000 RCPT a transaction (RFC 5321, section 4.5.3.1.8, asks for 100)
	SoftErrors   int   // 10 error replies of our own since the last accepted message; later ones are delayed
	HardErrors   int   // 20 such replies; then 421 and the end
	Tarpits      int   // 256 sessions of a Relay whose answer is delayed; answers of others come at once
	JunkCommands int   // 100 NOOP, RSET, VRFY, HELP, EHLO since the last accepted message
}

// commandTimeout returns how long a client has for its next command.
func (s Settings) commandTimeout() time.Duration {
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
