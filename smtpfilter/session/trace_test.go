package session

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"blockd/smtpfilter/parse"
)

func TestTraceHeader(t *testing.T) {
	tests := []struct {
		name, helo, client string
		esmtp, utf8        bool
		want               string // of the first line and the words after "with"
	}{
		{"ESMTP", "mail.client.example", "192.0.2.7:25", true, false, "from mail.client.example ([192.0.2.7]) ESMTP"},
		{"HELO", "client", "192.0.2.7:25", false, false, "from client ([192.0.2.7]) SMTP"},
		{"IPv6", "[IPv6:2001:db8::1]", "[2001:db8::1]:25", true, true, "from [IPv6:2001:db8::1] ([IPv6:2001:db8::1]) UTF8SMTP"},
		{"IPv4 in IPv6", "a", "[::ffff:192.0.2.7]:25", true, false, "from a ([192.0.2.7]) ESMTP"},
		{"name that would be a comment", "a (b) by c", "192.0.2.7:25", true, false, "from unknown ([192.0.2.7]) ESMTP"},
		{"name in UTF-8", "bücher.example", "192.0.2.7:25", true, false, "from unknown ([192.0.2.7]) ESMTP"},
		{"endless name", strings.Repeat("a", 256), "192.0.2.7:25", true, false, "from unknown ([192.0.2.7]) ESMTP"},
		{"no name", "", "192.0.2.7:25", true, false, "from unknown ([192.0.2.7]) ESMTP"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &session{
				Relay: &Relay{settings: Settings{Hostname: hostname}}, esmtp: tt.esmtp,
				client: netip.MustParseAddrPort(tt.client), tx: transaction{id: "ref-1"},
			}
			s.rules.Client.Helo = tt.helo
			if tt.utf8 {
				s.tx.params = parse.ParamSMTPUTF8
			}
			head := string(s.traceHeader(time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))))
			from, with, _ := strings.Cut(tt.want, ") ")
			want := "Received: " + from + ")\r\n\tby filter.example (blockd) with " + with + " id ref-1;\r\n\tFri, 02 Jan 2026 03:04:05 +0100\r\n"
			if head != want {
				t.Errorf("traceHeader = %q, want %q", head, want)
			}
			h := newHops("FILTER.example")
			h.tooMany([]byte(strings.Repeat(head, 3) + "\r\n" + head))
			if h.all != 3 || h.ours != 3 {
				t.Errorf("own header counted as %d fields, %d of ours; want 3, 3", h.all, h.ours)
			}
		})
	}
}

func TestHops(t *testing.T) {
	ours := "Received: from a ([192.0.2.1])\r\n\tby filter.example (blockd) with ESMTP id x;\r\n\tdate\r\n"
	theirs := "Received: from b\r\n by other.example\r\n"
	tests := []struct {
		name, message string
		want          bool
	}{
		{"five of ours", strings.Repeat(ours, 5) + "\r\n.\r\n", false},
		{"six of ours", strings.Repeat(ours, 6) + "\r\n.\r\n", true},
		{"fifty of others", strings.Repeat(theirs, 50) + "\r\n.\r\n", false},
		{"fifty-one of others", strings.Repeat(theirs, 51) + "\r\n.\r\n", true},
		{"in the body", "Subject: x\r\n\r\n" + strings.Repeat(ours, 60) + ".\r\n", false},
		{"in an endless field", "Subject: x\r\n" + strings.Repeat(" by filter.example (blockd)\r\n", 100) + "\r\n", false},
		{"our name in another field", strings.Repeat("X-Received: by filter.example (blockd)\r\n", 60) + "\r\n", false},
		{"in capitals", strings.ToUpper(strings.Repeat(ours, 6)) + "\r\n", true},
		{"behind endless lines", strings.Repeat("X: "+strings.Repeat("x", 5000)+"\r\n", 3) + strings.Repeat(ours, 6) + "\r\n", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(20) {
				rng := rand.New(rand.NewPCG(seed, 0))
				h, got := newHops(hostname), false
				for rest := tt.message; rest != ""; {
					n := 1 + rng.IntN(min(len(rest), 1+rng.IntN(500)))
					got = h.tooMany([]byte(rest[:n]))
					rest = rest[n:]
				}
				if got != tt.want {
					t.Fatalf("seed %d: %v, want %v (%d fields, %d ours)", seed, got, tt.want, h.all, h.ours)
				}
				if len(h.line) > maxField || len(h.field) > maxField {
					t.Fatalf("keeps %d and %d octets", len(h.line), len(h.field))
				}
			}
		})
	}
}
