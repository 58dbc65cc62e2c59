// Package parse reads the commands of an SMTP client, one line at a time, for a
// filter that forwards lines as they are.
//
// It is strict on purpose: the next server gets exactly the bytes that were
// checked here, so a line that two servers could read in two ways must not pass
// (docs/smtp.md, P1). What is not fully understood is an *Error with the reply
// for the client, and is never forwarded.
package parse

import "blockd/addr"

// Command is one command line, taken apart. Its slices are parts of the line:
// they are valid as long as the line is, and must not be changed.
type Command struct {
	Verb   Verb
	Path   addr.Path // of MAIL and RCPT
	Arg    []byte    // what follows the verb of all others, without blanks around; EHLO, HELO, LHLO: the name
	Params Params    // of MAIL and RCPT: which parameters were given
	Size   int64     // of SIZE; 0 when not given
}

// Line reads one command line without its CRLF (RFC 5321, section 4.1.1). It
// keeps nothing, and allocates only for paths that addr.ParsePath allocates for.
// The caller bounds the length of the line.
//
// The error is an *Error. The Verb is set even then if it was recognised, so
// that a session can count a faulty MAIL as a MAIL.
func Line(line []byte) (Command, error) { panic("unwritten") }
