package junk

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/netip"
	"net/textproto"
	"strings"
	"time"

	"blockd/mail/addr"
	"blockd/records/history"
)

// The bounds of a complaint: what is said stands in its first parts, and the message that it is about has its header first.
const (
	MaxComplaint = 1 << 20 // octets that are read
	mostParts    = 10
	mostUsers    = 100 // whom one complaint speaks for
)

// ErrForged is wrapped by the error of a complaint that the history does not bear out.
var ErrForged = errors.New("nothing is counted")

// Report is what a complaint says, of which nothing is known to be true: see Prove.
type Report struct {
	Type   string      // feedback-type, in lower case
	Sender Message     // by Original-Mail-From, or the Return-Path of the message that it is about
	Users  []addr.Addr // by Original-Rcpt-To, each once
	Client netip.Addr  // by Source-IP; the zero value = none is named
}

// Takes reports whether the complaint takes one back: its type is not-spam.
func (r Report) Takes() bool { return r.Type == "not-spam" }

// ReadReport reads a complaint in the Abuse Reporting Format (RFC 5965): a multipart/report with a message/feedback-report, and the
// message that it is about or its header. The error wraps ErrRefused.
func ReadReport(complaint io.Reader) (r Report, err error) {
	refuse := func(format string, args ...any) (Report, error) {
		return r, fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
	}
	whole, err := mail.ReadMessage(bufio.NewReader(io.LimitReader(complaint, MaxComplaint)))
	if err != nil {
		return refuse("this is no message, or its header is over %d octets", MaxComplaint)
	}
	kind, params, err := mime.ParseMediaType(whole.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/report" || !strings.EqualFold(params["report-type"], "feedback-report") || params["boundary"] == "" {
		return refuse("this is no complaint of RFC 5965: want multipart/report with report-type=feedback-report")
	}
	var said textproto.MIMEHeader
	var path string // Return-Path of the message
	parts := multipart.NewReader(whole.Body, params["boundary"])
	for n := 0; n < mostParts; n++ {
		part, err := parts.NextRawPart()
		if err != nil {
			break // the end, or what was cut off
		}
		kind, _, _ := mime.ParseMediaType(part.Header.Get("Content-Type"))
		switch kind {
		case "message/feedback-report":
			if said == nil {
				said = fields(part)
			}
		case "message/rfc822", "text/rfc822-headers", "message/rfc822-headers":
			if path == "" {
				path = fields(part).Get("Return-Path")
			}
		}
	}
	if said == nil {
		return refuse("it has no part message/feedback-report")
	}
	r.Type = strings.ToLower(strings.TrimSpace(said.Get("Feedback-Type")))
	switch r.Type {
	case "abuse", "fraud", "virus", "not-spam":
	default:
		return refuse("it is of the type %.40q; want abuse, fraud, virus or not-spam", r.Type)
	}
	sender := strings.TrimSpace(said.Get("Original-Mail-From"))
	if sender == "" {
		sender = path
	}
	if sender == "" {
		return refuse("it names no Original-Mail-From, and the message in it has no Return-Path")
	}
	if r.Sender, err = Read(strings.NewReader("Return-Path: " + oneLine(sender) + "\n\n")); err != nil {
		return r, err
	}
	users := map[addr.Addr]bool{}
	for _, text := range said["Original-Rcpt-To"] {
		if user, err := addr.Parse(strings.TrimSpace(text)); err == nil && user.Domain() != "" && !users[user] && len(users) < mostUsers {
			users[user] = true
			r.Users = append(r.Users, user)
		}
	}
	if len(r.Users) == 0 {
		return refuse("it names no Original-Rcpt-To, so that it is nobody's complaint")
	}
	if client, err := netip.ParseAddr(strings.Trim(strings.TrimSpace(said.Get("Source-Ip")), "[]")); err == nil {
		r.Client = client.Unmap().WithZone("")
	}
	if !r.Client.IsValid() {
		return refuse("it names no Source-IP, by which it could be found in the history")
	}
	return r, nil
}

// fields are those of a part that is nothing but header fields, or begins with them.
func fields(part io.Reader) textproto.MIMEHeader {
	h, _ := textproto.NewReader(bufio.NewReader(io.LimitReader(part, MaxHeader))).ReadMIMEHeader()
	if h == nil {
		h = textproto.MIMEHeader{}
	}
	return h
}

// oneLine is a text without line ends.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return -1
		}
		return r
	}, text)
}

// Search looks into the history.
type Search func(ctx context.Context, q history.Query) (history.Found, error)

// Complainer is a user whose complaint it is.
type Complainer struct {
	User addr.Addr
	At   time.Time // of the last such message to the user
}

// Prove returns those users to whom the history has a message from that very sender and that very client since a time, which
// was accepted, and was not sent by a user of this server. Who has not seen the message does not know all three; its sender does. The error wraps
// ErrForged if there is none, or is that of the search.
func (r Report) Prove(ctx context.Context, search Search, since time.Time) (all []Complainer, err error) {
	wanted := map[addr.Addr]bool{}
	for _, user := range r.Users {
		if user.Domain() != r.Sender.Sender.Domain() {
			wanted[user] = true
		}
	}
	q := history.Query{Sender: r.Sender.Sender.String(), Client: netip.PrefixFrom(r.Client, r.Client.BitLen()), Outcome: history.Mail, Since: since}
	for n := 0; n < mostParts && len(wanted) > 0; n++ { // one walk for all users
		found, err := search(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range found.Records {
			f := &found.Records[i]
			if f.Authenticated || f.Outcome != "accept" && f.Outcome != "tag" {
				continue
			}
			if user, err := addr.Parse(f.Recipient); err == nil && wanted[user] {
				delete(wanted, user)
				all = append(all, Complainer{user, f.Time})
			}
		}
		if q.Cursor = found.Next; q.Cursor == "" {
			break
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: the history has no accepted message from %s by %s to %s", ErrForged, r.Sender.Key.Text, r.Client, r.Users[0])
	}
	return all, nil
}
