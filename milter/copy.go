package milter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"blockd/mail/spool"
)

// copied is the copy of a message that may have to prove its sender.
type copied struct {
	text   *spool.Copy // nil until the first octets
	broken error       // why the copy is incomplete; nil if it is not
}

func (c *copied) drop() {
	if c.text != nil {
		c.text.Close()
	}
}

// copies reports whether the message may have to prove its sender, for a recipient or for an
// address in its header.
func (s *session) copies() bool {
	return s.door.SeesMessage && (s.tx.AwaitsMessage() || s.tx.ReadsHeader())
}

// copyField adds a header field to the copy, with the octets that came over the wire, because
// signatures cover those. Mail servers pass folded lines with LF, and pass the blanks before
// the value only if they agreed to.
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
	if c.broken != nil {
		return
	}
	if c.text == nil {
		c.text = s.settings.Copies.Copy(s.settings.MaxCopy)
	}
	if _, err := c.text.Write(text); err != nil {
		c.text.Close()
		c.broken = err
	}
}

// examine looks for proof of the sender in the message. A message proves nothing if it is too
// large, or if its mail server leaves out the header and the end of the header. examine turns
// a panic into an error: on_error must not apply to a message whose sender is known to be
// listed.
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
	case c.broken == nil && c.text != nil:
		whole = c.text.Reader()
	case c.broken != nil && !errors.Is(c.broken, spool.ErrTooBig):
		return c.broken
	}
	return s.tx.Examine(ctx, whole)
}
