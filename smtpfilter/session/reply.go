package session

import (
	"strings"

	"blockd/policy/reply"
)

// Our own replies (docs/smtp.md, "Reply texts"). Each is one line of fixed text, with nothing
// from the client or upstream in it.
const (
	replyOK            = "250 2.0.0 Ok\r\n"
	replyMailOK        = "250 2.1.0 Ok\r\n"
	replyRcptOK        = "250 2.1.5 Ok\r\n"
	replyVRFY          = "252 2.1.5 Send some mail, I will try my best\r\n"
	replyHelp          = "214 2.0.0 RFC 5321\r\n"
	replyGoAhead       = "354 End data with <CR><LF>.<CR><LF>\r\n"
	replyBye           = "221 2.0.0 Bye\r\n"
	replyStartTLS      = "220 2.0.0 Ready to start TLS\r\n"
	replyStopping      = "421 4.3.2 Service is stopping, try again\r\n"
	replyTimeout       = "421 4.4.2 Timeout\r\n"
	replyTooManyErrors = "421 4.7.0 Too many errors\r\n"
	replyTooFast       = "421 4.7.0 Too many commands a minute\r\n"
	replyTooMuchJunk   = "421 4.7.0 Too many commands without mail\r\n"
	replyInternalEnd   = "421 4.3.0 Internal error, try again\r\n"
	replyChanged       = "421 4.3.0 Service has changed, connect again\r\n"
	replyNoClientInfo  = "421 4.3.0 Next server is misconfigured, try again later\r\n"
	replyNotReached    = "421 4.4.1 Next server is not reachable, try again later\r\n"
	replyInternal      = "451 4.3.0 Internal error, try again\r\n"
	replyUnreachable   = "451 4.4.1 Next server is not reachable, try again\r\n"
	replyLost          = "451 4.4.2 Connection to the next server lost, try again\r\n"
	replyTooManyRcpt   = "452 4.5.3 Too many recipients\r\n"
	replyOneRcpt       = "452 4.5.3 One recipient a transaction here, send the others again\r\n"
	replyNoAuthNow     = "454 4.7.0 Temporary authentication failure\r\n"
	replyLongSASL      = "500 5.5.6 Authentication line too long\r\n"
	replyBadSASL       = "501 5.5.2 Cannot decode the authentication\r\n"
	replyBadAuth       = "501 5.5.4 Syntax: AUTH mechanism [initial-response]\r\n"
	replyAuthTwice     = "503 5.5.1 Authenticated already\r\n"
	replyAuthInMail    = "503 5.5.1 No AUTH within a transaction\r\n"
	replyNoMechanism   = "504 5.5.4 Mechanism not offered\r\n"
	replyLongLine      = "500 5.5.2 Line too long\r\n"
	replyBareLine      = "500 5.5.2 Error: bare <CR>, bare <LF> or NUL received\r\n"
	replyHTTP          = "500 5.5.2 This is an SMTP server\r\n"
	replyBehindTLS     = "501 5.5.4 Commands behind STARTTLS\r\n"
	replyNotServed     = "502 5.5.1 Command not implemented\r\n"
	replyTLSActive     = "503 5.5.1 TLS is active already\r\n"
	replyNeedHello     = "503 5.5.1 Send EHLO or HELO first\r\n"
	replyNested        = "503 5.5.1 Nested MAIL command\r\n"
	replyNeedMail      = "503 5.5.1 Need MAIL command\r\n"
	replyNeedChunk     = "503 5.5.1 This message needs BDAT\r\n"
	replyBegun         = "503 5.5.1 The message has begun, send RSET first\r\n"
	replyNoService     = "503 5.5.1 No service for this address, send QUIT\r\n"
	replyTooEarly      = "521 5.5.1 Wait for the greeting\r\n"
	replyBareData      = "550 5.5.2 Error: bare <CR> or <LF> received\r\n"
	replyTooBig        = "552 5.3.4 Message too big\r\n"
	replyNeedUTF8      = "553 5.6.7 Address needs SMTPUTF8\r\n"
	replyNoRcpt        = "554 5.5.1 No valid recipients\r\n"
	replyLoop          = "554 5.4.6 Too many hops\r\n"
)

// firstLine returns the first line of a reply, for the log.
func firstLine[T string | []byte](text T) string {
	line, _, _ := strings.Cut(string(text), "\r\n")
	return line
}

// textOf returns a reply as the client gets it, with CRLF.
func textOf(r reply.Reply) string { return r.String() + "\r\n" }

var refuseManySenders = reply.Reply{Code: 554, Enhanced: "5.6.0", Text: "Message header has too many senders or is too big"}

// Refusals by a rule on the client's names. They end with the operator's contact, as the
// refusals of lists do.
var (
	refuseBadHelo   = reply.Reply{Code: 550, Enhanced: "5.7.1", Text: "Helo command rejected: not a host name or address literal"}
	refuseOurHelo   = reply.Reply{Code: 550, Enhanced: "5.7.1", Text: "Helo command rejected: that is this server's own name"}
	refuseNoReverse = reply.Reply{Code: 550, Enhanced: "5.7.25", Text: "Client host rejected: its address has no valid name in DNS"} // RFC 7372, section 3.3
)
