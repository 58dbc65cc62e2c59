package parse

import "strconv"

// Error is a line that cannot be parsed, and its reply. Errors are
// shared values: compare by field, do not change them.
type Error struct {
	Code     int    // 500, 501, 553 or 555
	Enhanced string // "5.5.2", "5.5.4", "5.1.7", "5.1.3" or "5.6.7" (RFC 3463, RFC 6531)
	Text     string // printable ASCII, nothing of the client's inside
}

// Reply returns the reply line without CRLF: "501 5.5.4 text".
func (e *Error) Reply() string { return strconv.Itoa(e.Code) + " " + e.Enhanced + " " + e.Text }

func (e *Error) Error() string { return e.Reply() }

// ErrSMTPUTF8 is a path with octets above 127 in a transaction whose MAIL has not
// said SMTPUTF8. Line gives it for MAIL itself; for RCPT only the session knows
// what MAIL said, so it must look at Path.UTF8.
var ErrSMTPUTF8 = &Error{553, "5.6.7", "Address needs SMTPUTF8"}

var (
	errVerb      = &Error{500, "5.5.2", "Error: command not recognized"}
	errControl   = &Error{501, "5.5.2", "Error: control or 8-bit character in command"}
	errMail      = &Error{501, "5.5.2", "Syntax: MAIL FROM:<address>"}
	errRcpt      = &Error{501, "5.5.2", "Syntax: RCPT TO:<address>"}
	errName      = &Error{501, "5.5.4", "Syntax: one host name or address literal"}
	errArg       = &Error{501, "5.5.4", "Syntax: no argument allowed"}
	errNoArg     = &Error{501, "5.5.4", "Syntax: argument required"}
	errChunk     = &Error{501, "5.5.4", "Syntax: BDAT size [LAST]"}
	errSender    = &Error{553, "5.1.7", "Bad sender address syntax"}
	errRecipient = &Error{553, "5.1.3", "Bad recipient address syntax"}
	errParam     = &Error{501, "5.5.4", "Malformed or repeated parameter"}
	errUnknown   = &Error{555, "5.5.4", "Unsupported parameter"}
)
