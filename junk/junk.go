// Package junk says which sender a user has called unwanted by moving a message to Junk. The message is a stranger's
// text: whatever is in it, no more comes of it than one address, and never one of the user's own domain.
package junk

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/mail"
	"strings"

	"blockd/addr"
)

// MaxHeader is how many octets of a message are read: its header has to end within them.
const MaxHeader = 256 << 10

// ErrRefused is wrapped by the error of a message of which no entry may come, in a sentence for the user.
var ErrRefused = errors.New("nothing is blocked")

// Sender gives the address that a message came from: that of Return-Path, which the server of the recipient has written on top of the
// message when it delivered it. From is not looked at, as its address is the sender's own words: whoever forges it would make the user block
// somebody else, and mail is judged by its envelope. recipient is the user, a mailbox. The error wraps ErrRefused.
func Sender(message io.Reader, recipient addr.Key) (addr.Key, error) {
	m, err := mail.ReadMessage(bufio.NewReader(io.LimitReader(message, MaxHeader)))
	if err != nil {
		return addr.Key{}, fmt.Errorf("%w: this is no message, or its header is over %d octets", ErrRefused, MaxHeader)
	}
	all := m.Header["Return-Path"]
	if len(all) == 0 {
		return addr.Key{}, fmt.Errorf("%w: the message has no Return-Path, which the delivering server writes", ErrRefused)
	}
	a, err := addr.Parse(strings.TrimSpace(all[0])) // the first is the last one written
	if err != nil {
		return addr.Key{}, fmt.Errorf("%w: its Return-Path is no address", ErrRefused)
	}
	if a.Null() {
		return addr.Key{}, fmt.Errorf("%w: the message is a bounce, whose sender is nobody", ErrRefused)
	}
	key, ok := a.Key()
	if !ok {
		return addr.Key{}, fmt.Errorf("%w: its Return-Path is no address that can be listed", ErrRefused)
	}
	home := recipient.Text[strings.LastIndexByte(recipient.Text, '@')+1:]
	if d := a.Domain(); d == home || strings.HasSuffix(d, "."+home) || strings.HasSuffix(home, "."+d) {
		return addr.Key{}, fmt.Errorf("%w: %s is of your own domain; if that is meant, ask the administrator", ErrRefused, key.Text)
	}
	return key, nil
}
