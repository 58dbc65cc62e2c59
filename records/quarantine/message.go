package quarantine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"os"
	"strings"
	"time"

	"golang.org/x/text/encoding/htmlindex"
)

// Message is what a list of messages shows of one. All texts are strangers' and may have any octet.
type Message struct {
	ID         string     `json:"id"`
	Kept       time.Time  `json:"kept"`       // when it was set aside
	Size       int64      `json:"size"`       // octets of its file
	Sender     string     `json:"sender"`     // of the envelope; "" is the null sender
	Recipients []string   `json:"recipients"` // never null
	From       string     `json:"from"`       // of the header, decoded
	Subject    string     `json:"subject"`    // likewise
	Lists      []string   `json:"lists"`      // those that set it aside
	Ref        string     `json:"ref"`        // of the decision, for blockd history; "" = unknown
	Unsure     *time.Time `json:"unsure"`     // a release was cut off then, and the next server may have it; null: none
	Foreign    bool       `json:"foreign"`    // another program's file: it cannot be released
}

// Query is which messages are wanted.
type Query struct {
	Sender, Recipient, List string    // a part of the text, in any case; "" = any
	Since, Before           time.Time // when they were set aside; zero = any time
	After                   string    // the ID of the last one that was shown
	Limit                   int       // 1 to MaxFound
}

// MaxFound bounds an answer of List.
const MaxFound = 1000

// Found is the answer to a Query.
type Found struct {
	Messages []Message `json:"messages"` // the newest first, never null
	More     bool      `json:"more"`     // there are more than the limit
}

// List finds messages. It reads the header of each that may be meant, and ends early with ctx.
func (f Folder) List(ctx context.Context, q Query) (found Found, err error) {
	found.Messages = []Message{}
	all, err := f.files()
	if err != nil {
		return found, err
	}
	for _, one := range all {
		if q.After != "" && later(one.id, q.After) >= 0 {
			continue
		}
		if ctx.Err() != nil {
			return found, ctx.Err()
		}
		at, err := f.kept(one)
		if err != nil || !q.Since.IsZero() && at.Before(q.Since) || !q.Before.IsZero() && !at.Before(q.Before) {
			continue
		}
		m, err := f.read(one)
		switch {
		case errors.Is(err, fs.ErrNotExist): // gone meanwhile
		case err != nil:
			return found, err
		case !q.wants(m):
		case len(found.Messages) == min(max(q.Limit, 1), MaxFound):
			found.More = true
			return found, nil
		default:
			found.Messages = append(found.Messages, m)
		}
	}
	return found, nil
}

func (q Query) wants(m Message) bool {
	return has(q.Sender, m.Sender, m.From) && has(q.Recipient, m.Recipients...) && has(q.List, m.Lists...)
}

// has reports whether one of the texts has part in it, in any case.
func has(part string, texts ...string) bool {
	part = strings.ToLower(part)
	for _, text := range texts {
		if strings.Contains(strings.ToLower(text), part) {
			return true
		}
	}
	return part == ""
}

// maxHeader is how much of a message's header is looked at, in octets.
const maxHeader = 64 << 10

// read reads what is shown of a message.
func (f Folder) read(one file) (Message, error) {
	opened, err := os.Open(f.path(one))
	if err != nil {
		return Message{}, err
	}
	defer opened.Close()
	m, _, err := f.about(one, opened)
	return m, err
}

// about reads what is shown of an open file, and the envelope's lines in it.
func (f Folder) about(one file, opened *os.File) (m Message, t top, err error) {
	info, err := opened.Stat()
	if err != nil {
		return m, t, err
	}
	m = Message{ID: one.id, Size: info.Size(), Kept: info.ModTime(), Recipients: []string{}, Lists: []string{}}
	if s := seconds(one.id); s > 0 {
		m.Kept = time.Unix(s, 0)
	}
	m.Kept = m.Kept.UTC().Truncate(time.Second)
	switch t, err = readTop(opened); {
	case errors.Is(err, ErrForeign):
		m.Foreign, t = true, top{}
	case err != nil:
		return m, t, err
	default:
		m.Sender, m.Recipients = t.sender, t.recipients
	}
	if at, err := f.unsure(one.id); err == nil && !at.IsZero() {
		m.Unsure = &at
	}
	if _, err := opened.Seek(t.length, io.SeekStart); err != nil {
		return m, t, err
	}
	own := !m.Foreign
	for field := range fields(io.LimitReader(opened, maxHeader)) {
		name, value, _ := strings.Cut(field, ":")
		switch name = strings.ToLower(strings.TrimSpace(name)); {
		case name == "x-blockd" && own:
			m.tagged(value)
		case name == "received":
			own = false // below it nothing is blockd's
		case name == "from" && m.From == "":
			m.From = decoded(value)
		case name == "subject" && m.Subject == "":
			m.Subject = decoded(value)
		}
	}
	return m, t, nil
}

// tagged takes up a field as reply.Tag writes it.
func (m *Message) tagged(value string) {
	for word := range strings.FieldsSeq(value) {
		if list, ok := strings.CutPrefix(word, "list="); ok {
			m.Lists = append(m.Lists, list)
		}
		if ref, ok := strings.CutPrefix(word, "ref="); ok {
			m.Ref = ref
		}
	}
}

// fields are the fields of a header, unfolded. A line that is none ends it.
func fields(from io.Reader) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		lines := bufio.NewReader(from)
		field := ""
		for {
			line, err := lines.ReadString('\n')
			line = strings.TrimRight(line, "\r\n")
			if line != "" && (line[0] == ' ' || line[0] == '\t') && field != "" {
				field += line
			} else {
				if field != "" && !yield(field) {
					return
				}
				if field = line; !strings.Contains(line, ":") {
					return
				}
			}
			if err != nil {
				if field != "" {
					yield(field)
				}
				return
			}
		}
	}
}

// words decodes RFC 2047; an unknown charset leaves the word as it is.
var words = mime.WordDecoder{CharsetReader: func(charset string, input io.Reader) (io.Reader, error) {
	e, err := htmlindex.Get(charset)
	if err != nil {
		return nil, err
	}
	return e.NewDecoder().Reader(input), nil
}}

// maxText bounds a decoded text, in octets.
const maxText = 1000

func decoded(value string) string {
	value = strings.TrimSpace(value)
	if text, err := words.DecodeHeader(value); err == nil {
		value = text
	}
	return strings.ToValidUTF8(value[:min(len(value), maxText)], "\uFFFD")
}

// Content is a message for people to look at: as text, never rendered.
type Content struct {
	Message
	Header string `json:"header"` // as it came, the first 64 KiB
	Body   string `json:"body"`   // the first text in it, decoded; of HTML the source
	Parts  []Part `json:"parts"`  // what it consists of, as far as was looked; never null
	Cut    bool   `json:"cut"`    // there is more than was looked at
}

// maxBody is how much of a message's body is looked at, in octets.
const maxBody = 256 << 10

// Show reads a message for people.
func (f Folder) Show(id string) (t Content, err error) {
	one, err := f.find(id)
	if err != nil {
		return t, err
	}
	opened, err := os.Open(f.path(one))
	if err != nil {
		return t, gone(err, id)
	}
	defer opened.Close()
	m, top, err := f.about(one, opened)
	if err == nil {
		_, err = opened.Seek(top.length, io.SeekStart)
	}
	if err != nil {
		return t, err
	}
	text, err := io.ReadAll(io.LimitReader(opened, maxHeader+maxBody))
	if err != nil {
		return t, err
	}
	t.Message = m
	t.Cut = top.length+int64(len(text)) < m.Size
	header, body, _ := bytes.Cut(text, []byte("\r\n\r\n"))
	if len(header) > maxHeader {
		header, t.Cut = header[:maxHeader], true
	}
	if len(body) > maxBody {
		body, t.Cut = body[:maxBody], true
	}
	t.Body, t.Parts = readable(string(header), string(body))
	t.Header = strings.ToValidUTF8(string(header), "\uFFFD")
	return t, nil
}

// Open opens the file of a message, as it is.
func (f Folder) Open(id string) (*os.File, error) {
	one, err := f.find(id)
	if err != nil {
		return nil, err
	}
	opened, err := os.Open(f.path(one))
	return opened, gone(err, id)
}

func gone(err error, id string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %q", ErrNotThere, id)
	}
	return err
}
