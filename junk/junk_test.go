package junk

import (
	"errors"
	"strings"
	"testing"

	"blockd/addr"
)

func ann(t testing.TB) addr.Key {
	t.Helper()
	k, err := addr.ParseOwner("ann@here.example")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSender(t *testing.T) {
	for _, tt := range []struct{ name, message, want, refused string }{
		{"plain", "Return-Path: <Promo@Bulk.example>\r\nFrom: x@y.example\r\n\r\nhello", "promo@bulk.example", ""},
		{"a forged From blocks nobody else", "Return-Path: <promo@bulk.example>\nFrom: My Bank <info@bank.example>\n\n", "promo@bulk.example", ""},
		{"the uppermost counts", "Return-Path: <promo@bulk.example>\nReturn-Path: <info@bank.example>\n\n", "promo@bulk.example", ""},
		{"a bounce", "Return-Path: <>\nFrom: x@y.example\n\n", "", "is a bounce"},
		{"none", "From: info@bank.example\n\n", "", "has no Return-Path"},
		{"own domain", "Return-Path: <bob@here.example>\n\n", "", "of your own domain"},
		{"below the own domain", "Return-Path: <bob@lists.here.example>\n\n", "", "of your own domain"},
		{"nonsense", "Return-Path: a b c\n\n", "", "is no address"},
		{"in the body", "From: a@b.example\n\nReturn-Path: <x@y.example>\n", "", "has no Return-Path"},
		{"no message", "hello", "", "is no message"},
		{"endless header", "X: " + strings.Repeat("x", MaxHeader) + "\nReturn-Path: <x@y.example>\n\n", "", "is no message"},
	} {
		got, err := Sender(strings.NewReader(tt.message), ann(t))
		if got.Text != tt.want || (err != nil) != (tt.refused != "") || err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), tt.refused)) {
			t.Errorf("%s: %q, %v", tt.name, got.Text, err)
		}
	}
}

// Whatever the message, an address comes of it that a list can have and that is not the user's own domain, or one sentence.
func FuzzSender(f *testing.F) {
	f.Add("Return-Path: <promo@bulk.example>\n\n")
	f.Add("Return-Path:\t<@relay:\"a b\"@[192.0.2.1]>\r\n folded\r\n\r\nx")
	f.Fuzz(func(t *testing.T, message string) {
		key, err := Sender(strings.NewReader(message), ann(t))
		if err != nil {
			if !errors.Is(err, ErrRefused) || strings.ContainsAny(err.Error(), "\r\n") {
				t.Fatalf("%q: %v", message, err)
			}
			return
		}
		again, err := addr.ParseOwner(key.Text)
		if err != nil || again != key || key.Kind != addr.Address || strings.HasSuffix(key.Text, "@here.example") {
			t.Fatalf("%q gives %q, %v", message, key.Text, err)
		}
	})
}
