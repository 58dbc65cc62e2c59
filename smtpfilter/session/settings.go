package session

import (
	"cmp"
	"time"

	"blockd/smtpfilter/upstream"
)

// Settings of a Relay.
type Settings struct {
	Hostname   string            // in the greeting, in EHLO's reply, in trace headers
	RejectAt   string            // "rcpt" (also "") or "mail": where a listed sender is refused
	ClientInfo string            // "none" (also ""), "xclient", "proxy-v2"; "none" adds a Received header
	Protocol   upstream.Protocol // what upstream speaks
	Limits     Limits
}

// Limits of one session. A zero field takes the default named beside it.
type Limits struct {
	CommandIdle   time.Duration // 5 min: a command line must be whole by then
	DataStart     time.Duration // 2 min: from 354 to the first octet of data
	DataBlock     time.Duration // 3 min: from one octet of data to the next
	UpstreamReply time.Duration // 5 min: for upstream's reply to a command
	FinalReply    time.Duration // 10 min: for upstream's reply to the dot
	Session       time.Duration // 1 h: the whole session, save the wait for the final reply
	Drain         time.Duration // 60 s: for a transaction when the filter stops
	GreetWait     time.Duration // 0 = none: who talks before our greeting gets 521
	ErrorDelay    time.Duration // 1 s: before each error reply beyond SoftErrors

	MinDataRate  int   // 500 octets a second, over a whole DATA
	MessageSize  int64 // 50 MiB: our own cap; the smaller of it and upstream's SIZE is offered
	Recipients   int   // 1,000 RCPT a transaction (RFC 5321, section 4.5.3.1.8, asks for 100)
	SoftErrors   int   // 10 of our own 5xx replies since the last accepted message
	HardErrors   int   // 20: then 421 and the end
	JunkCommands int   // 100 NOOP, RSET, VRFY, HELP, EHLO since the last accepted message
}

// withDefaults fills the zero fields.
func (l Limits) withDefaults() Limits {
	l.CommandIdle = cmp.Or(l.CommandIdle, 5*time.Minute)
	l.DataStart = cmp.Or(l.DataStart, 2*time.Minute)
	l.DataBlock = cmp.Or(l.DataBlock, 3*time.Minute)
	l.UpstreamReply = cmp.Or(l.UpstreamReply, 5*time.Minute)
	l.FinalReply = cmp.Or(l.FinalReply, 10*time.Minute)
	l.Session = cmp.Or(l.Session, time.Hour)
	l.Drain = cmp.Or(l.Drain, time.Minute)
	l.ErrorDelay = cmp.Or(l.ErrorDelay, time.Second)
	l.MinDataRate = cmp.Or(l.MinDataRate, 500)
	l.MessageSize = cmp.Or(l.MessageSize, 50<<20)
	l.Recipients = cmp.Or(l.Recipients, 1000)
	l.SoftErrors = cmp.Or(l.SoftErrors, 10)
	l.HardErrors = cmp.Or(l.HardErrors, 20)
	l.JunkCommands = cmp.Or(l.JunkCommands, 100)
	return l
}
