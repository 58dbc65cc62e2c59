package junk

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/records/history"
)

// sample is the example of RFC 5965, appendix B.2, with other names.
func sample(t testing.TB) string {
	t.Helper()
	text := testkit.Value(os.ReadFile("testdata/rfc5965.eml"))(t)
	return string(text)
}

func TestReadReport(t *testing.T) {
	whole := sample(t)
	for _, tt := range []struct{ name, old, new, want, refused string }{
		{"the RFC's example", "", "", "abuse somespammer@example.net user@example.com 192.0.2.1", ""},
		{"not spam", "Feedback-Type: abuse", "Feedback-Type: Not-Spam", "not-spam somespammer@example.net user@example.com 192.0.2.1", ""},
		{"an IPv6 client", "Source-IP: 192.0.2.1", "Source-IP: [2001:db8::1]", "abuse somespammer@example.net user@example.com 2001:db8::1", ""},
		{"by the message's Return-Path", "Original-Mail-From: <somespammer@example.net>\n", "", "abuse somespammer@example.net user@example.com 192.0.2.1", ""},
		{"two users, one of them twice", "Original-Rcpt-To: <user@example.com>\n", "Original-Rcpt-To: <user@example.com>\nOriginal-Rcpt-To: <User@Example.com>\nOriginal-Rcpt-To: bob@example.com\n",
			"abuse somespammer@example.net User@example.com,bob@example.com,user@example.com 192.0.2.1", ""},
		{"another type", "Feedback-Type: abuse", "Feedback-Type: opt-out", "", `of the type "opt-out"`},
		{"no user", "Original-Rcpt-To: <user@example.com>\n", "", "", "names no Original-Rcpt-To"},
		{"no client", "Source-IP: 192.0.2.1\n", "", "", "names no Source-IP"},
		{"a bounce", "<somespammer@example.net>\nOriginal-Rcpt", "<>\nOriginal-Rcpt", "", "is a bounce"},
		{"no report", "message/feedback-report", "text/plain", "", "no part message/feedback-report"},
		{"a plain message", "report-type=feedback-report", "report-type=delivery-status", "", "this is no complaint of RFC 5965"},
		{"no message", whole, "hello", "", "this is no message"},
		{"cut off before the report", whole[strings.Index(whole, "Content-Type: message/feedback-report"):], "", "", "no part message/feedback-report"},
		{"too long", "Feedback-Type", strings.Repeat("X: y\n", MaxComplaint/5+1) + "Feedback-Type", "", "of the type"},
	} {
		got, err := ReadReport(strings.NewReader(strings.ReplaceAll(strings.Replace(whole, tt.old, tt.new, 1), "\n", "\r\n")))
		var users []string
		for _, u := range got.Users {
			users = append(users, u.String())
		}
		text := strings.Join([]string{got.Type, got.Sender.Key.Text, strings.Join(users, ","), got.Client.String()}, " ")
		switch {
		case tt.refused != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tt.refused)):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.refused)
		case tt.refused == "" && (err != nil || !strings.EqualFold(sorted(text), sorted(tt.want))):
			t.Errorf("%s: %q, %v, want %q", tt.name, text, err, tt.want)
		}
	}
}

// sorted is text with the users in one order.
func sorted(text string) string {
	parts := strings.Fields(strings.ToLower(text))
	if len(parts) == 4 {
		users := map[string]bool{}
		for u := range strings.SplitSeq(parts[2], ",") {
			users[u] = true
		}
		parts[2] = ""
		for _, u := range []string{"user@example.com", "bob@example.com"} {
			if users[u] {
				parts[2] += u + ","
			}
		}
	}
	return strings.Join(parts, " ")
}

func TestProve(t *testing.T) {
	now := time.Now()
	seen := func(change func(*history.Record)) history.Record {
		r := history.Record{Time: now, Outcome: "accept", Client: netip.MustParseAddr("192.0.2.1"), Sender: "somespammer@example.net", Recipient: "User@example.com"}
		change(&r)
		return r
	}
	folder := t.TempDir()
	for _, tt := range []struct {
		name   string
		change func(*history.Record)
		proven bool
	}{
		{"as it was", func(*history.Record) {}, true},
		{"another recipient", func(r *history.Record) { r.Recipient = "bob@example.com" }, false},
		{"another client", func(r *history.Record) { r.Client = netip.MustParseAddr("192.0.2.2") }, false},
		{"another sender", func(r *history.Record) { r.Sender = "info@bank.example" }, false},
		{"refused", func(r *history.Record) { r.Outcome = "refuse" }, false},
		{"an answer to a program", func(r *history.Record) { r.Outcome = history.Listed }, false},
		{"by a user of this server", func(r *history.Record) { r.Authenticated = true }, false},
		{"too old", func(r *history.Record) { r.Time = now.Add(-31 * day) }, false},
	} {
		log := testkit.Value(history.Open(history.Settings{Folder: folder + "/" + tt.name, Max: history.MinMax, Keep: 365 * day}))(t)
		log.Add(seen(tt.change))
		report := testkit.Value(ReadReport(strings.NewReader(sample(t))))(t)
		users, err := report.Prove(context.Background(), log.Search, now.Add(-30*day))
		if (err == nil) != tt.proven || (len(users) == 1) != tt.proven || err != nil && !errors.Is(err, ErrForged) {
			t.Errorf("%s: %v, %v", tt.name, users, err)
		}
		log.Close()
	}
}

// Whatever is handed in, a report has all that is proven by, or one sentence says what it lacks.
func FuzzReadReport(f *testing.F) {
	f.Add(sample(f))
	f.Add(strings.ReplaceAll(sample(f), "\n", "\r\n"))
	f.Add("Content-Type: multipart/report; report-type=feedback-report; boundary=b\n\n--b\nContent-Type: message/feedback-report\n\nFeedback-Type: abuse\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ReadReport(strings.NewReader(text))
		if err != nil {
			if !errors.Is(err, ErrRefused) || strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 400 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if len(r.Users) == 0 || len(r.Users) > mostUsers || !r.Client.IsValid() || r.Sender.Key.Text == "" || r.Type == "" {
			t.Fatalf("%q: %+v", text, r)
		}
	})
}
