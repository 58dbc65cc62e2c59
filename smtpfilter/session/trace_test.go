package session

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
	"blockd/mail/header"
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
			testkit.Equal(t, "traceHeader", head, want)
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

// FuzzFields compares with a reader that has the whole message before it and takes it
// apart in the plainest way, whatever pieces the message comes in.
func FuzzFields(f *testing.F) {
	for _, text := range []string{
		"From: a@x.example\r\n\r\nFrom: b@x.example\r\n", "FROM : a@x.example\r\n folded\r\n\tmore\r\nSubject: x\r\n y\r\nreply-to:b@x.example\r\n",
		".From: a@x.example\r\n..From: b@x.example\r\n.\r\nFrom: c@x.example\r\n", " From: a@x.example\r\n", "From\r\n: a@x.example\r\n", "no field\r\nFrom: a@x.example",
		"From: a@x.example\n\nFrom: b@x.example\n", "", "\r\n", "From:", ":\r\nFrom:\r\n\r\n",
	} {
		f.Add(text, uint8(7), true)
		f.Add(text, uint8(1), false)
	}
	wants := func(name []byte) bool {
		n := strings.ToLower(strings.TrimRight(string(name), " \t"))
		return n == "from" || n == "reply-to"
	}
	f.Fuzz(func(t *testing.T, text string, piece uint8, stuffed bool) {
		if len(text) > maxKept {
			return
		}
		r := fields{asked: wants, stuffed: stuffed}
		for rest := []byte(text); ; {
			n := min(len(rest), 1+int(piece))
			ended := r.read(rest[:n], n == len(rest))
			if rest = rest[n:]; len(rest) == 0 {
				if !ended {
					t.Error("the header has not ended with the message")
				}
				break
			}
		}
		if r.over {
			t.Fatal("over the bound")
		}
		got, _ := r.senders.Addresses()
		if want, _ := plainSenders(text, stuffed).Addresses(); !slices.Equal(got, want) {
			t.Errorf("in pieces of %d of %q: %q, want %q", int(piece)+1, text, got, want)
		}
	})
}

// plainSenders is what fields finds, slowly.
func plainSenders(text string, stuffed bool) *header.Senders {
	var unfolded []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if stuffed {
			line = strings.TrimPrefix(line, ".")
		}
		if line == "" {
			break
		}
		if (line[0] == ' ' || line[0] == '\t') && len(unfolded) > 0 {
			unfolded[len(unfolded)-1] += " " + line
		} else {
			unfolded = append(unfolded, line)
		}
	}
	var s header.Senders
	for _, line := range unfolded {
		name, value, ok := strings.Cut(line, ":")
		switch name = strings.ToLower(strings.TrimRight(name, " \t")); {
		case ok && (name == "from" || name == "reply-to"):
			s.Add(name, value)
		}
	}
	return &s
}

// An address that stands twice in a field of one name counts once, however the name is written.
func TestOneFieldHasOneName(t *testing.T) {
	f := fields{asked: func([]byte) bool { return true }}
	f.read([]byte("From: a@x.example\r\nFROM : a@x.example\r\n\r\n"), true)
	if got, _ := f.senders.Addresses(); len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

// A header without end is refused, and takes no more memory than may be.
func TestEndlessHeader(t *testing.T) {
	for name, line := range map[string]string{
		"one line": strings.Repeat("x", 4096), "lines": "Subject: x\r\n", "one field": " a@x.example,\r\n", "fields": "From: a@x.example\r\n",
	} {
		r := fields{asked: func(name []byte) bool { return string(name) == "From" }}
		r.read([]byte("From: a@x.example\r\n"), false)
		read, most := 0, 0
		for ; read <= maxHeader && !r.read([]byte(line), false); read += len(line) {
			most = max(most, cap(r.line)+cap(r.text))
		}
		if !r.over || read > maxHeader || most > 2*maxKept {
			t.Errorf("%s: over %v behind %d octets, %d of them kept", name, r.over, read, most)
		}
	}
}
