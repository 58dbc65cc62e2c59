package quarantine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"blockd/internal/durable"
)

// Mail is a message on its way out of quarantine.
type Mail struct {
	ID         string
	Sender     string   // the reverse-path without brackets, as the client wrote it
	Recipients []string // likewise; one at least
	UTF8       bool     // it came with SMTPUTF8 (RFC 6531)
	EightBit   bool     // it has octets above 127
	Binary     bool     // it has a CR or LF by itself, or no CRLF at its end: DATA cannot carry it
	Size       int64    // octets of Message
	Message    io.Reader

	// End is to be called before the octets go out by which the next server takes the message. After an error they must
	// not go.
	End func() error
}

// Delivery is what the next server said about one recipient.
type Delivery struct {
	Recipient string `json:"recipient"`
	Accepted  bool   `json:"accepted"`
	Reply     string `json:"reply"` // its first line, as it came
}

// Deliver sends m on, and returns an answer for each recipient. An error that wraps ErrUnsure says that the message may have been taken; after
// any other it was not.
type Deliver func(ctx context.Context, m Mail) ([]Delivery, error)

// Released is what became of a release.
type Released struct {
	ID         string     `json:"id"`
	Sender     string     `json:"sender"`
	Deliveries []Delivery `json:"deliveries"`
	Left       bool       `json:"left"` // it is still in quarantine, for the recipients that were not accepted
}

// Release sends a message to the recipients it was meant for, from its own sender, and removes it when the next server has
// taken it. If that takes it for some, it stays for the others. Only once: a message whose last release was cut off is
// ErrUnsure unless again is true. by is written into the message's trace, for who reads it.
func (f Folder) Release(ctx context.Context, id, by string, again bool, deliver Deliver) (Released, error) {
	h, err := f.hold(id)
	if err != nil {
		return Released{}, err
	}
	defer h.Close()
	before, err := f.unsure(h.id)
	if err == nil && !before.IsZero() && !again {
		err = fmt.Errorf("%w, at %s", ErrUnsure, before.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	if err != nil {
		return Released{}, err
	}
	top, err := readTop(h)
	if err != nil {
		return Released{}, err
	}
	m, err := top.mail(h, by)
	if err != nil {
		return Released{}, err
	}
	m.End = func() error { return f.remember(h.id, time.Now()) }
	answers, err := deliver(ctx, m)
	r := Released{ID: h.id, Sender: top.sender, Deliveries: answers, Left: true}
	if errors.Is(err, ErrUnsure) {
		return r, err
	}
	var rest []string
	for _, a := range answers {
		if !a.Accepted {
			rest = append(rest, a.Recipient)
		}
	}
	switch {
	case err != nil || len(rest) == len(answers): // nobody has it
		if before.IsZero() {
			err = errors.Join(err, f.forget(h.id))
		}
		return r, err
	case len(rest) == 0:
		r.Left, err = false, h.remove(f)
	default:
		var kept io.Closer // and locked, until the note has gone
		if kept, err = f.keepFor(h, top, rest); err == nil {
			defer kept.Close()
		}
	}
	if err != nil { // the note stays: to release it again would send it twice
		return r, fmt.Errorf("the next server has it, but it is still in quarantine: %w", err)
	}
	return r, f.forget(h.id)
}

// TakeOut takes recipients out of a message: it stays for the others, and goes if there are none. Nothing is changed if whose
// is false of all. The texts of the message stay as they are. ErrBusy, ErrNotThere and ErrForeign are as of Release.
func (f Folder) TakeOut(id string, whose func(recipient string) bool) error {
	h, err := f.hold(id)
	if err != nil {
		return err
	}
	defer h.Close()
	top, err := readTop(h)
	if err != nil {
		return err
	}
	rest := slices.DeleteFunc(slices.Clone(top.recipients), whose)
	switch len(rest) {
	case len(top.recipients):
		return nil
	case 0:
		return errors.Join(h.remove(f), f.forget(h.id))
	}
	kept, err := f.keepFor(h, top, rest)
	if err != nil {
		return err
	}
	return kept.Close()
}

// keepFor replaces the file by one for some of its recipients, under its name. Nobody can hold that one until it is closed.
func (f Folder) keepFor(h held, top top, recipients []string) (io.Closer, error) {
	path, err := h.where(f)
	if err != nil || path == "" {
		return h, err // somebody has removed it
	}
	if _, err := h.Seek(top.length, io.SeekStart); err != nil {
		return nil, err
	}
	draft, err := durable.Create(filepath.Join(string(f), "tmp", filepath.Base(path)), 0o600)
	if err != nil {
		return nil, err
	}
	kept, err := durable.Hold(draft.File, ErrBusy)
	if err == nil {
		out := bufio.NewWriter(draft)
		out.WriteString(envelopeFields(top.sender, recipients))
		if _, err = io.Copy(out, h); err == nil {
			err = out.Flush()
		}
	}
	if err == nil {
		err = durable.Rename(draft.File, path)
	}
	if err != nil {
		draft.Discard()
		return nil, err
	}
	return kept, nil
}

// envelopeFields are what package smtpfilter/session writes above a message that is set aside.
func envelopeFields(sender string, recipients []string) string {
	var b strings.Builder
	b.WriteString("Return-Path: <" + sender + ">\r\n")
	for _, r := range recipients {
		b.WriteString("Delivered-To: " + r + "\r\n")
	}
	return b.String()
}

// top is what stands above a message: its envelope. Those lines are blockd's own: a sender's own fields of these names come
// after the Received field.
type top struct {
	sender     string
	recipients []string
	length     int64 // octets of these lines
}

const maxTop = 4 << 20 // octets; a thousand recipients have some 300 KB

// readTop reads the first lines of a file, from its beginning. ErrForeign: they are not blockd's.
func readTop(from io.ReadSeeker) (t top, err error) {
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return t, err
	}
	lines := bufio.NewReader(io.LimitReader(from, maxTop))
	first, err := lines.ReadString('\n')
	path, is := strings.CutPrefix(first, "Return-Path: <")
	path, ends := strings.CutSuffix(path, ">\r\n")
	if !is || !ends || !sendable(path) {
		return t, errors.Join(ErrForeign, realError(err))
	}
	t.sender, t.length = path, int64(len(first))
	for {
		line, err := lines.ReadString('\n')
		recipient, is := strings.CutPrefix(line, "Delivered-To: ")
		if !is {
			break
		}
		recipient, ends := strings.CutSuffix(recipient, "\r\n")
		if !ends || !sendable(recipient) || recipient == "" {
			return t, errors.Join(ErrForeign, realError(err))
		}
		t.recipients = append(t.recipients, recipient)
		t.length += int64(len(line))
	}
	if len(t.recipients) == 0 {
		return t, ErrForeign
	}
	return t, nil
}

func realError(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// sendable reports whether a path can stand in a command: whoever can write files here could else write commands.
func sendable(path string) bool {
	return len(path) <= maxPath && !strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// maxPath bounds a path, in octets; RFC 5321 has 256, and source routes are longer.
const maxPath = 1000

// mail is the message as it goes out: without the envelope's fields, of which Delivered-To would make Postfix see a loop,
// and with a trace of the release.
func (t top) mail(h io.ReadSeeker, by string) (Mail, error) {
	m := Mail{Sender: t.sender, Recipients: slices.Clone(t.recipients)}
	if _, err := h.Seek(t.length, io.SeekStart); err != nil {
		return m, err
	}
	s := scan{}
	if _, err := io.Copy(&s, h); err != nil {
		return m, err
	}
	if _, err := h.Seek(t.length, io.SeekStart); err != nil {
		return m, err
	}
	trace := "X-Blockd-Released: " + time.Now().Format("Mon, 02 Jan 2006 15:04:05 -0700")
	if word := traceWord(by); word != "" {
		trace += " by " + word
	}
	trace += "\r\n"
	m.UTF8, m.EightBit, m.Binary, m.Size = s.utf8(), s.eightBit, s.bare || s.last != '\n', s.size+int64(len(trace))
	m.Message = io.MultiReader(strings.NewReader(trace), h)
	return m, nil
}

// traceWord is a name as it may stand in a header field.
func traceWord(name string) string {
	name = strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, name)
	return name[:min(len(name), 64)]
}

// scan looks at a message in one pass.
type scan struct {
	size           int64
	last           byte
	eightBit, bare bool
	begin          []byte // enough to hold blockd's Received field
}

func (s *scan) Write(p []byte) (int, error) {
	if room := 8<<10 - len(s.begin); room > 0 {
		s.begin = append(s.begin, p[:min(room, len(p))]...)
	}
	for _, c := range p {
		s.eightBit = s.eightBit || c >= 0x80
		s.bare = s.bare || (c == '\n') != (s.last == '\r')
		s.last = c
	}
	s.size += int64(len(p))
	return len(p), nil
}

// utf8 reports whether blockd's own Received field says that the message came with SMTPUTF8 (RFC 6531, section 4.3).
func (s *scan) utf8() bool {
	_, received, found := bytes.Cut(s.begin, []byte("Received: from "))
	field, _, ended := bytes.Cut(received, []byte(";\r\n"))
	return found && ended && bytes.Contains(field, []byte(" (blockd) with UTF8SMTP"))
}
