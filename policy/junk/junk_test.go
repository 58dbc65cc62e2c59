package junk

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/mail/addr"
	"blockd/records/correspondents"
)

func ann(t testing.TB) addr.Key {
	t.Helper()
	k := testkit.Value(addr.ParseOwner("ann@here.example"))(t)
	return k
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
	a := testkit.Value(addr.Parse(text))(t)
	return a
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
	if err := (Guards{}).Object(Message{Sender: address(t, "promo@bulk.example")}, ann(t)); err != nil {
		t.Errorf("without guards: %v", err)
	}
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
