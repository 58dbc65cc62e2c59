package parse

// Verb is the command word, read without regard to case.
type Verb uint8

// The verbs. Line accepts every verb that it knows; which of them are served,
// and in which order, is the session's business. Unknown and HTTP come with an
// *Error always.
const (
	Unknown Verb = iota
	EHLO
	HELO
	LHLO
	MAIL
	RCPT
	DATA
	RSET
	NOOP
	VRFY
	EXPN
	HELP
	QUIT
	STARTTLS
	AUTH
	BDAT
	ETRN
	XCLIENT
	XFORWARD
	HTTP // GET, POST, CONNECT, "Host:" and kin: a browser was sent here, close at once
)

// String returns the word as it is written on the wire, in capitals; "HTTP" and
// "unknown" for the two that are no SMTP commands.
func (v Verb) String() string { panic("unwritten") }
