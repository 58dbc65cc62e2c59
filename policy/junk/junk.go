// Package junk is what follows when users say that mail is junk. The sender of a message that a user has moved to Junk becomes
// an entry of that user's own. What several users say, and complaints of other servers (RFC 5965), make a proposal for everybody, which
// waits for a person: nothing here ever blocks a sender for everybody by itself.
//
// A message is a stranger's text. Whatever is in it, no more comes of it than one address, and that of the envelope.
package junk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/mail"
	"strings"

	"blockd/mail/addr"
	"blockd/records/correspondents"
)

// MaxHeader is how many octets of a message are read: its header has to end within them.
const MaxHeader = 256 << 10

var (
	// ErrRefused is wrapped by the error of a message of which no entry may come, in a sentence for the user.
	ErrRefused = errors.New("nothing is blocked")
	// ErrAsk is wrapped by the error of a sender who is blocked only if the user says once more that this is meant.
	ErrAsk = errors.New("nothing is blocked yet")
)

// Message is what counts of a message in Junk.
type Message struct {
	Sender addr.Addr // that of the envelope, with Key
	Key    addr.Key  // of the entry: always an address
	List   addr.Addr // where posts to the mailing list go that it came from, at the domain of Sender; zero = none is named
}

// Read takes the sender from a message: that of Return-Path, which the server of the recipient has written on top of the
// message when it delivered it. From is not looked at, as its address is the sender's own words: whoever forges it would make the user block
// somebody else, and mail is judged by its envelope. The error wraps ErrRefused.
func Read(message io.Reader) (m Message, err error) {
	header, err := mail.ReadMessage(bufio.NewReader(io.LimitReader(message, MaxHeader)))
	if err != nil {
		return m, fmt.Errorf("%w: this is no message, or its header is over %d octets", ErrRefused, MaxHeader)
	}
	all := header.Header["Return-Path"]
	if len(all) == 0 {
		return m, fmt.Errorf("%w: the message has no Return-Path, which the delivering server writes", ErrRefused)
	}
	m.Sender, err = addr.Parse(strings.TrimSpace(all[0])) // the first is the last one written
	if err != nil {
		return m, fmt.Errorf("%w: its Return-Path is no address", ErrRefused)
	}
	if m.Sender.Null() {
		return m, fmt.Errorf("%w: the message is a bounce, whose sender is nobody", ErrRefused)
	}
	key, ok := m.Sender.Key()
	if !ok {
		return m, fmt.Errorf("%w: its Return-Path is no address that can be listed", ErrRefused)
	}
	m.Key = key
	if _, post, found := strings.Cut(header.Header.Get("List-Post"), "<mailto:"); found {
		post, _, _ = strings.Cut(post, ">")
		post, _, _ = strings.Cut(post, "?")
		if list, err := addr.Parse(post); err == nil && list.Domain() == m.Sender.Domain() {
			m.List = list
		}
	}
	return m, nil
}

// Guards know which senders a user has probably not meant. The zero value knows none.
type Guards struct {
	Correspondents *correspondents.Set
	Protected      func(domain string) bool // a mailbox provider, a domain of index.protected, or this server's own
}

// Object says why a user is to be asked once more before a sender is blocked for him; nil = he need not be. The error wraps ErrAsk.
//
// A mailing list is one that users here post to. That its header says so is not enough: then bulk mail that says so could never be blocked.
func (g Guards) Object(m Message, user addr.Key) error {
	home, d := user.Text[strings.LastIndexByte(user.Text, '@')+1:], m.Sender.Domain()
	switch {
	case d == home || strings.HasSuffix(d, "."+home) || strings.HasSuffix(home, "."+d):
		return fmt.Errorf("%w: %s is of your own domain", ErrAsk, m.Key.Text)
	case g.Correspondents.Has(m.Sender):
		return fmt.Errorf("%w: users of this server write to %s", ErrAsk, m.Key.Text)
	case m.List.Domain() != "" && g.Correspondents.Has(m.List):
		return fmt.Errorf("%w: users of this server write to %s, the mailing list that the message came from; %s sends all of its mail", ErrAsk, m.List, m.Key.Text)
	case g.Protected != nil && g.Protected(d):
		return fmt.Errorf("%w: %s is one of many people at a protected domain", ErrAsk, m.Key.Text)
	}
	return nil
}
