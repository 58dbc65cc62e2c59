package parse

// Error is a line that is not understood, and the reply it deserves. Errors are
// shared values: compare by field, do not change them.
type Error struct {
	Code     int    // 500, 501, 553 or 555
	Enhanced string // "5.5.2", "5.5.4", "5.1.7", "5.1.3" or "5.6.7" (RFC 3463, RFC 6531)
	Text     string // printable ASCII, nothing of the client's inside
}

// Reply returns the reply line without CRLF: "501 5.5.4 text".
func (e *Error) Reply() string { panic("unwritten") }

func (e *Error) Error() string { return e.Reply() }
