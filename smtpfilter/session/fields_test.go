package session

import (
	"slices"
	"strings"
	"testing"

	"blockd/mail/header"
)

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
