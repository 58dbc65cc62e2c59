// Package parse reads the commands of an SMTP client, one line at a time, for a
// filter that forwards lines as they are.
//
// It is strict on purpose. The next server gets exactly the bytes that were
// checked here, so a line that two servers could read in two ways must not pass
// (docs/smtp.md, P1). A line that it does not fully understand is an *Error with the reply
// for the client, and is never forwarded.
package parse

import (
	"bytes"

	"blockd/mail/addr"
)

// Command is one command line, taken apart. Its slices are parts of the line:
// they are valid as long as the line is, and must not be changed.
type Command struct {
	Verb   Verb
	Path   addr.Path // of MAIL and RCPT
	Arg    []byte    // of the other verbs: the text after the verb, without blanks around; EHLO, HELO, LHLO: the name
	Params Params    // of MAIL and RCPT: which parameters were given
	Size   int64     // of SIZE, 0 when not given; of BDAT: the octets of its chunk
	Last   bool      // of BDAT: the chunk is the message's last
}

// maxName bounds the name in EHLO, in octets: RFC 5321, section 4.5.3.1.2.
const maxName = 255

// Line reads one command line without its CRLF (RFC 5321, section 4.1.1). It
// keeps nothing, and allocates only if addr.ParsePath does, and for the dates
// of RRVS and HOLDUNTIL. The caller bounds the length of the line.
//
// The error is an *Error. The Verb is set even then if it was recognised, so
// that a session can count a faulty MAIL as a MAIL. After a faulty BDAT the place of the
// next command is unknown.
func Line(line []byte) (Command, error) {
	word, rest, _ := bytes.Cut(line, []byte(" "))
	c := Command{Verb: verbOf(word)}
	if c.Verb == Unknown || c.Verb == HTTP {
		return c, errVerb
	}
	var err error
	switch c.Verb {
	case MAIL:
		err = c.mail(rest)
	case RCPT:
		err = c.rcpt(rest)
	case BDAT:
		err = c.bdat(rest)
	default:
		c.Arg = bytes.Trim(rest, " ")
		err = c.checkArg()
	}
	if err != nil {
		return Command{Verb: c.Verb}, err // a careless caller gets no half of a command
	}
	return c, nil
}

// checkArg judges the argument of every verb but MAIL, RCPT and BDAT.
func (c *Command) checkArg() error {
	for _, b := range c.Arg {
		if b < ' ' || b > '~' {
			return errControl
		}
	}
	switch c.Verb {
	case EHLO, HELO, LHLO:
		// Real clients say names that are no domains ("my_pc", "[10.0.0.1"). The
		// log and XCLIENT need the name bounded and printable.
		if len(c.Arg) == 0 || len(c.Arg) > maxName || bytes.IndexByte(c.Arg, ' ') >= 0 {
			return errName
		}
	case DATA, RSET, QUIT, STARTTLS:
		if len(c.Arg) > 0 {
			return errArg
		}
	case VRFY:
		if len(c.Arg) == 0 {
			return errNoArg
		}
	}
	return nil
}

// mail reads the text after "MAIL ".
func (c *Command) mail(rest []byte) error {
	path, params, err := pathAndParams(rest, "FROM:", errMail, errSender)
	if err != nil {
		return err
	}
	if len(path.Domain) == 0 && len(path.Local) > 0 {
		return errSender // RFC 5321 knows <postmaster> as a recipient only
	}
	if err := c.readParams(params, mailParams); err != nil {
		return err
	}
	if path.UTF8 && !c.Params.Has(ParamSMTPUTF8) {
		return ErrSMTPUTF8
	}
	c.Path = path
	return nil
}

// rcpt reads the text after "RCPT ".
func (c *Command) rcpt(rest []byte) error {
	path, params, err := pathAndParams(rest, "TO:", errRcpt, errRecipient)
	if err != nil {
		return err
	}
	// EqualFold knows letters above 127 that fold to "s" and "k".
	if len(path.Domain) == 0 && (path.UTF8 || !bytes.EqualFold(path.Local, []byte("postmaster"))) {
		return errRecipient
	}
	if err := c.readParams(params, rcptParams); err != nil {
		return err
	}
	c.Path = path
	return nil
}

// bdat reads "size [LAST]" (RFC 3030, section 2), one blank between the two.
func (c *Command) bdat(rest []byte) error {
	size, last, ok := bytes.Cut(bytes.TrimRight(rest, " "), []byte(" "))
	if ok && !isWord(last, "LAST") {
		return errChunk
	}
	c.Last = ok
	if c.Size, ok = parseSize(size); !ok {
		return errChunk
	}
	return nil
}

// pathAndParams reads "FROM:<path> params". Blanks after the colon are outside
// RFC 5321, but clients send them, and Postfix, Exim and Sendmail all skip them.
// A path without its angle brackets is refused, because these servers read it differently.
func pathAndParams(rest []byte, keyword string, usage, bad *Error) (path addr.Path, params []byte, err error) {
	n := len(keyword)
	if len(rest) < n || !bytes.EqualFold(rest[:n], []byte(keyword)) {
		return addr.Path{}, nil, usage
	}
	rest = bytes.TrimLeft(rest[n:], " ")
	if len(rest) == 0 || rest[0] != '<' {
		return addr.Path{}, nil, usage
	}
	path, rest, err = addr.ParsePath(rest)
	if err != nil {
		return addr.Path{}, nil, bad
	}
	if len(rest) > 0 && rest[0] != ' ' {
		return addr.Path{}, nil, usage
	}
	return path, rest, nil
}
