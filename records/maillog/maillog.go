// Package maillog finds in the log of a mail server to whom its users have written: the recipients of messages that came by an authenticated client, or by one of a trusted network, and
// that were delivered to another server. It reads Postfix (with the time of RFC 3164, RFC 5424 or ISO 8601) and the main log of Exim. It streams: a log may be larger than memory, and
// lines may be hostile.
package maillog

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"time"
)

// Sent is a message that a user has sent to one recipient.
type Sent struct {
	Sender    string // "" is the null sender
	Recipient string
	Time      time.Time
}

// Report is what was read.
type Report struct {
	Lines    int // of a mail server
	Skipped  int // other lines, and ones that are longer than maxLine
	Messages int // that users have sent
	Dropped  int // messages that were forgotten before their end, since too many were open
}

// Settings of Read.
type Settings struct {
	Trusted []netip.Prefix // networks of clients that are users
	Now     time.Time      // times without a year are before it
}

const (
	maxLine  = 16 << 10 // octets; the rest of a longer line is passed over
	maxOpen  = 100_000  // messages at a time: some 30 MB
	maxField = 512      // octets of an address
)

// message is one that has not been removed from the queue.
type message struct {
	user   bool
	sender string
	number int // in the order in which they came
}

type reader struct {
	Settings
	Report
	open  map[string]*message
	order []string // queue IDs, the oldest first; those that have gone are passed over
	count int
	sent  func(Sent) error
	err   error // of sent
}

// Read reads a log to its end, and calls sent with each delivery of a user's message, in the order of the log. It
// returns the error of the log, or of sent.
func Read(log io.Reader, s Settings, sent func(Sent) error) (Report, error) {
	r := reader{Settings: s, open: map[string]*message{}, sent: sent}
	in := bufio.NewReaderSize(log, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if len(line) > 0 {
			if long || !r.known(bytes.TrimRight(line, "\r\n")) {
				r.Skipped++
			} else {
				r.Lines++
			}
		}
		if r.err != nil {
			return r.Report, r.err
		}
		if errors.Is(err, io.EOF) {
			return r.Report, nil
		}
		if err != nil {
			return r.Report, err
		}
	}
}

// known reads one line, and reports whether it is a mail server's.
func (r *reader) known(line []byte) bool {
	at, rest, ok := r.stamp(string(line))
	if !ok {
		return false
	}
	if tag, text, found := postfixTag(rest); found {
		r.postfix(at, tag, text)
		return true
	}
	return r.exim(at, rest)
}

// stamp cuts the time off. Of an older syslog it has no year: the last one that is not after Now by more than a day.
func (r *reader) stamp(line string) (at time.Time, rest string, ok bool) {
	if strings.HasPrefix(line, "<") { // the priority of RFC 5424, and its version
		if _, after, found := strings.Cut(line, ">1 "); found {
			line = after
		}
	}
	first, rest, _ := strings.Cut(line, " ")
	if len(first) >= len("2006-01-02T15:04:05") && first[4] == '-' {
		at, err := time.Parse("2006-01-02T15:04:05", first[:19])
		return at, rest, err == nil
	}
	if len(first) == 10 && first[4] == '-' && len(line) >= 19 { // Exim
		at, err := time.Parse("2006-01-02 15:04:05", line[:19])
		return at, strings.TrimSpace(line[19:]), err == nil
	}
	if len(line) < 16 {
		return at, "", false
	}
	at, err := time.Parse("Jan _2 15:04:05", line[:15])
	if err != nil {
		return at, "", false
	}
	at = at.AddDate(r.Now.Year(), 0, 0)
	if at.After(r.Now.Add(24 * time.Hour)) {
		at = at.AddDate(-1, 0, 0)
	}
	return at, line[16:], true
}

// postfixTag returns the service of a line of Postfix, such as "smtpd", and the text after it.
func postfixTag(rest string) (service, text string, ok bool) {
	i := strings.Index(rest, "postfix")
	if i < 0 || i > 256 {
		return "", "", false
	}
	tag := rest[i:]
	if end := strings.Index(tag, "]: "); end > 0 && end < 128 { // program[PID]:
		text = tag[end+3:]
		tag, _, _ = strings.Cut(tag[:end], "[")
	} else if name, more, found := strings.Cut(tag, " "); found && len(name) < 64 { // RFC 5424: program PID MSGID DATA text
		tag = name
		for range 2 {
			_, more, _ = strings.Cut(more, " ")
		}
		if _, text, found = strings.Cut(more, " "); !found {
			return "", "", false
		}
	}
	return tag[strings.LastIndexByte(tag, '/')+1:], strings.TrimPrefix(text, "\ufeff"), text != ""
}

func (r *reader) postfix(at time.Time, service, text string) {
	id, rest, found := strings.Cut(text, ": ")
	if !found || !queueID(id) {
		return
	}
	switch {
	case service == "smtpd" && strings.HasPrefix(rest, "client="):
		r.begin(id, strings.Contains(rest, ", sasl_username=") || r.trusts(rest))
	case strings.HasPrefix(rest, "from=<"):
		if m := r.open[id]; m != nil {
			m.sender = inBrackets(rest[len("from="):])
		}
	case (service == "smtp" || service == "lmtp" || service == "relay") && strings.HasPrefix(rest, "to=<") && strings.Contains(rest, ", status=sent ("):
		// Deliveries by lmtp, local, virtual and pipe are to users of this server; by smtp they are to other servers, or to a filter.
		if m := r.open[id]; m != nil && m.user && service != "lmtp" {
			r.tell(at, m, inBrackets(rest[len("to="):]))
		}
	case rest == "removed":
		delete(r.open, id)
	}
}

// exim reads the rest of a line of its main log, after the time.
func (r *reader) exim(at time.Time, rest string) bool {
	if strings.HasPrefix(rest, "[") { // the number of the process
		_, rest, _ = strings.Cut(rest, "] ")
	}
	words := strings.Fields(rest)
	if len(words) < 2 || len(words[0]) < 16 || strings.Count(words[0], "-") != 2 || !queueID(strings.ReplaceAll(words[0], "-", "")) {
		return false
	}
	id := words[0]
	switch words[1] {
	case "<=":
		if len(words) < 3 {
			return true
		}
		user := false
		for _, w := range words[3:] {
			user = user || strings.HasPrefix(w, "A=") || strings.HasPrefix(w, "[") && r.trustsAddress(w)
		}
		r.begin(id, user)
		if m := r.open[id]; m != nil && words[2] != "<>" {
			m.sender = words[2]
		}
	case "=>", "->":
		m := r.open[id]
		if m == nil || !m.user || len(words) < 3 {
			return true
		}
		remote := false
		for _, w := range words[3:] {
			remote = remote || strings.HasPrefix(w, "H=") // deliveries to mailboxes name no host
		}
		if remote {
			to := words[2]
			if len(words) > 3 && strings.HasPrefix(words[3], "<") { // "=> local <address>"
				to = inBrackets(words[3])
			}
			r.tell(at, m, to)
		}
	case "Completed":
		delete(r.open, id)
	}
	return true
}

// begin notes a message. Only users' messages are kept.
func (r *reader) begin(id string, user bool) {
	delete(r.open, id) // a short ID comes again
	if !user {
		return
	}
	r.Messages++
	r.count++
	r.open[strings.Clone(id)] = &message{user: true, number: r.count}
	r.order = append(r.order, strings.Clone(id))
	for len(r.open) > maxOpen || len(r.order) > 2*maxOpen {
		oldest := r.order[0]
		r.order = r.order[1:]
		if m := r.open[oldest]; m != nil && m.number <= r.count-len(r.order) {
			delete(r.open, oldest)
			r.Dropped++
		}
	}
}

func (r *reader) tell(at time.Time, m *message, recipient string) {
	if recipient == "" || len(recipient) > maxField || r.err != nil {
		return
	}
	r.err = r.sent(Sent{m.sender, recipient, at})
}

// trusts reads the client of "client=name[address]".
func (r *reader) trusts(rest string) bool {
	rest, _, _ = strings.Cut(rest, ",")
	_, text, found := strings.Cut(rest, "[")
	text, _, closed := strings.Cut(text, "]")
	return found && closed && r.within(text)
}

// trustsAddress reads Exim's "[address]" or "[address]:port".
func (r *reader) trustsAddress(word string) bool {
	text, _, closed := strings.Cut(strings.TrimPrefix(word, "["), "]")
	return closed && r.within(text)
}

func (r *reader) within(text string) bool {
	a, err := netip.ParseAddr(strings.TrimPrefix(text, "IPv6:"))
	if err != nil {
		return false
	}
	for _, p := range r.Trusted {
		if p.Contains(a.Unmap().WithZone("")) {
			return true
		}
	}
	return false
}

func inBrackets(text string) string {
	text, closed := strings.CutPrefix(text, "<")
	if !closed {
		return ""
	}
	text, _, closed = strings.Cut(text, ">")
	if !closed || len(text) > maxField {
		return ""
	}
	return strings.Clone(text)
}

func queueID(id string) bool {
	if len(id) < 5 || len(id) > 40 {
		return false
	}
	for _, c := range []byte(id) {
		if c < '0' || c > '9' && c < 'A' || c > 'Z' && c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}
