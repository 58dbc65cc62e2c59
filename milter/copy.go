package milter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"blockd/spool"
)

// copied is what is kept of a message that may have to prove something.
type copied struct {
	text *spool.Copy // nil = nothing came so far
	torn error       // why no more of it is kept
}

func (c *copied) drop() {
	if c.text != nil {
		c.text.Close()
	}
}

// copies reports whether the message may have to prove something: for a recipient, or
// for an address in its header.
func (s *session) copies() bool {
	return s.door.SeesMessage && (s.tx.AwaitsMessage() || s.tx.ReadsHeader())
}

// copyField adds a header field to the copy as it came over the wire: signatures are
// about those octets. A mail server hands over folded lines with LF, and the blanks
// in front of the text only if it was asked to.
func (s *session) copyField(name, value string) {
	line := make([]byte, 0, len(name)+len(value)+len(value)/16+8)
	line = append(append(line, name...), ':')
	if !s.exact {
		line = append(line, ' ')
	}
	for i := range len(value) {
		if value[i] == '\n' && (i == 0 || value[i-1] != '\r') {
			line = append(line, '\r')
		}
		line = append(line, value[i])
	}
	s.copy(append(line, "\r\n"...))
}

// copy adds octets to the copy of the message.
func (s *session) copy(text []byte) {
	c := &s.copied
	if c.torn != nil {
		return
	}
	if c.text == nil {
		c.text = s.settings.Copies.Copy(s.settings.MaxCopy)
	}
	if _, err := c.text.Write(text); err != nil {
		c.text.Close()
		c.torn = err
	}
}

// examine looks for what the message proves of its sender. One that is too large, or of a
// mail server that leaves out the header and its end, proves nothing. A message that makes
// us panic must not get what on_error gives to those of whom nothing is known.
func (s *session) examine() (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.metrics.panics.Inc()
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), s.settings.ProofTimeout)
	defer cancel()
	var whole io.Reader
	switch c := &s.copied; {
	case c.torn == nil && c.text != nil:
		whole = c.text.Reader()
	case c.torn != nil && !errors.Is(c.torn, spool.ErrTooBig):
		return c.torn
	}
	return s.tx.Examine(ctx, whole)
}
