package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Class says in one word why a source was not fetched.
type Class string

// The classes: those of a server that gave no whole answer, …
const (
	Unreachable Class = "unreachable" // no connection, a certificate that is not good, no HTTP
	Timeout     Class = "timeout"     // silence, or the fetch took longer than it may
	Status      Class = "status"      // an answer other than 200 and 304
	Redirect    Class = "redirect"    // too many, or to where a list must not come from
	Truncated   Class = "truncated"   // the body was cut, or a cut could not be seen
	Disk        Class = "disk"        // the copy cannot be read or written
)

// … and those of a whole answer that is not taken.
const (
	TooBig   Class = "too-big"  // over Source.MaxBytes
	Encoding Class = "encoding" // packed in a way that was not asked for
	HTML     Class = "html"     // a web page or XML
	Checksum Class = "checksum" // another one is published, or none that can be read
	// Signature: the file is not signed, or not by the key of Source.Signature.
	Signature Class = "signature"
	Refused   Class = "refused" // by Source.Check
)

// result is the class's word of blockd_fetch_total{result}.
func (c Class) result() result {
	switch c {
	case TooBig, Encoding, HTML, Checksum, Signature, Refused:
		return refused
	}
	return failed
}

// Error says why the copy of a source was not brought up to date. It is as it was.
type Error struct {
	List  string
	Class Class
	Err   error

	retryAfter time.Duration // what the server asked for; 0 = nothing
}

// Error gives one line, without credentials: "list NAME: class: text".
func (e *Error) Error() string { return fmt.Sprintf("list %s: %s: %s", e.List, e.Class, e.text()) }

func (e *Error) Unwrap() error { return e.Err }

// maxText bounds what a server can write into a log: the names in a certificate,
// or a header line, come back in errors of the standard library.
const maxText = 300

// text is Err in one printable line of bounded length.
func (e *Error) text() string {
	text := strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, e.Err.Error())
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// fault is an *Error of a list that the caller fills in.
func fault(c Class, format string, args ...any) *Error {
	return &Error{Class: c, Err: fmt.Errorf(format, args...)}
}

// explain makes an *Error of an error of net/http. Its class is c unless the error
// says otherwise. The reason why ctx ended comes first: the rest follows from it.
func explain(ctx context.Context, c Class, err error) *Error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if ours, ok := errors.AsType[*Error](err); ok {
		return ours
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err // its own text has the URL
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		c = Timeout
	}
	if c == Unreachable && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = errors.New("the server closed the connection without an answer")
	}
	return &Error{Class: c, Err: err}
}
