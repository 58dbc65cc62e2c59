package junk

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/records/correspondents"
	"blockd/records/history"
)

func ann(t testing.TB) addr.Key {
	t.Helper()
	return testkit.Value(addr.ParseOwner("ann@here.example"))(t)
}

func TestRead(t *testing.T) {
	for _, tt := range []struct{ name, message, want, refused string }{
		{"plain", "Return-Path: <Promo@Bulk.example>\r\nFrom: x@y.example\r\n\r\nhello", "promo@bulk.example", ""},
		{"a forged From blocks nobody else", "Return-Path: <promo@bulk.example>\nFrom: My Bank <info@bank.example>\n\n", "promo@bulk.example", ""},
		{"the uppermost counts", "Return-Path: <promo@bulk.example>\nReturn-Path: <info@bank.example>\n\n", "promo@bulk.example", ""},
		{"a bounce", "Return-Path: <>\nFrom: x@y.example\n\n", "", "is a bounce"},
		{"none", "From: info@bank.example\n\n", "", "has no Return-Path"},
		{"nonsense", "Return-Path: a b c\n\n", "", "is no address"},
		{"in the body", "From: a@b.example\n\nReturn-Path: <x@y.example>\n", "", "has no Return-Path"},
		{"no message", "hello", "", "is no message"},
		{"endless header", "X: " + strings.Repeat("x", MaxHeader) + "\nReturn-Path: <x@y.example>\n\n", "", "is no message"},
	} {
		got, err := Read(strings.NewReader(tt.message))
		if err == nil && got.Key.Text != tt.want || (err != nil) != (tt.refused != "") || err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tt.refused)) {
			t.Errorf("%s: %q, %v", tt.name, got.Key.Text, err)
		}
	}
}

func address(t testing.TB, text string) addr.Addr {
	t.Helper()
	return testkit.Value(addr.Parse(text))(t)
}

func TestObject(t *testing.T) {
	known, _, err := correspondents.Open(correspondents.Settings{Path: filepath.Join(t.TempDir(), "known"), Keep: 365 * 24 * time.Hour})
	testkit.Must(t, err)
	defer known.Close()
	for _, to := range []string{"friend@there.example", "talk@lists.example"} {
		known.Learn(address(t, "bob@here.example"), address(t, to), time.Now())
	}
	g := Guards{Correspondents: known, Protected: func(domain string) bool { return domain == "big.example" }}
	for _, tt := range []struct{ name, message, asked string }{
		{"a stranger", "Return-Path: <promo@bulk.example>\n\n", ""},
		{"own domain", "Return-Path: <bob@here.example>\n\n", "of your own domain"},
		{"below the own domain", "Return-Path: <bob@lists.here.example>\n\n", "of your own domain"},
		{"a correspondent", "Return-Path: <Friend@there.example>\n\n", "users of this server write to friend@there.example"},
		{"somebody else there", "Return-Path: <promo@there.example>\n\n", ""},
		{"many people", "Return-Path: <someone@big.example>\n\n", "at a protected domain"},
		{"a list that users post to", "Return-Path: <talk-bounces@lists.example>\nList-Post: <mailto:talk@lists.example>\n\n", "write to talk@lists.example, the mailing list"},
		{"a list that nobody posts to", "Return-Path: <news-bounces@lists.example>\nList-Post: <mailto:news@lists.example>\n\n", ""},
		{"a list of another domain is only said", "Return-Path: <promo@bulk.example>\nList-Post: <mailto:talk@lists.example>\n\n", ""},
	} {
		m := testkit.Value(Read(strings.NewReader(tt.message)))(t)
		err = g.Object(m, ann(t))
		if (err != nil) != (tt.asked != "") || err != nil && (!errors.Is(err, ErrAsk) || !strings.Contains(err.Error(), tt.asked)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.asked)
		}
	}
	testkit.IsError(t, "without guards", (Guards{}).Object(Message{Sender: address(t, "promo@bulk.example")}, ann(t)), nil)
}

// Whatever the message, an address comes of it that a list can have, or one sentence.
func FuzzSender(f *testing.F) {
	f.Add("Return-Path: <promo@bulk.example>\nList-Post: <mailto:talk@bulk.example?subject=x>\n\n")
	f.Add("Return-Path:\t<@relay:\"a b\"@[192.0.2.1]>\r\n folded\r\n\r\nx")
	f.Fuzz(func(t *testing.T, message string) {
		m, err := Read(strings.NewReader(message))
		if err != nil {
			if !errors.Is(err, ErrRefused) || strings.ContainsAny(err.Error(), "\r\n") {
				t.Fatalf("%q: %v", message, err)
			}
			return
		}
		again, err := addr.ParseOwner(m.Key.Text)
		if err != nil || again != m.Key || m.Key.Kind != addr.Address || m.List.Domain() != "" && m.List.Domain() != m.Sender.Domain() {
			t.Fatalf("%q gives %+v, %v", message, m, err)
		}
		if err := (Guards{}).Object(m, ann(t)); (err == nil) == strings.HasSuffix(m.Key.Text, "@here.example") {
			t.Fatalf("%q of the own domain: %v", message, err)
		}
	})
}

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
