// Package wire reads and scans SMTP's bytes: command lines with strict CRLF,
// message data up to its CRLF.CRLF, and replies, each with hard bounds.
//
// Nothing here repairs what it reads. A line end that is not CRLF is an error,
// because two servers that disagree about where a line ends disagree about
// where a message ends (SMTP smuggling).
package wire
