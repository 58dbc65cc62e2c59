package letter

import (
	"fmt"
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"os"
	"strings"
	"testing"
	"time"

	"blockd/internal/term"
	"blockd/internal/testkit"
)

// Whatever is in a letter, it is mail that a strict reader takes, with the fields that keep robots from answering.
func TestMessage(t *testing.T) {
	l := Letter{Host: "mx1.here.example", Version: "1.2.3", Since: since, Until: until, Mail: Mail{Decisions: 5, Refused: 2},
		Notes:    []string{"é\r\nBcc: everybody@here.example", strings.Repeat("long ", 400)},
		Requests: []OpenRequest{{Sender: "a@b.example\r\n.\r\nMAIL FROM:<x>"}}, Open: 1}
	h := Header{From: "blockd@mx1.here.example", To: []string{"postmaster@here.example", "anna@here.example"}, ID: ID(l.Host, since), Date: until}
	text := string(l.Message(h, time.UTC))
	m := testkit.Value(mail.ReadMessage(strings.NewReader(text)))(t)
	to, err := m.Header.AddressList("To")
	if err != nil || len(to) != 2 || to[1].Address != "anna@here.example" {
		t.Errorf("To %v, %v", to, err)
	}
	if date, err := m.Header.Date(); err != nil || !date.Equal(until) {
		t.Errorf("Date %v, %v", date, err)
	}
	for field, want := range map[string]string{
		"From": "blockd <blockd@mx1.here.example>", "Auto-Submitted": "auto-generated", "Precedence": "bulk", "Bcc": "",
		"X-Blockd-Report": "2026-11-17T16:00:00Z 2026-11-24T16:00:00Z", "Message-Id": "<blockd.report." + h.ID + "@mx1.here.example>",
		"Content-Type": "text/plain; charset=utf-8", "Mime-Version": "1.0",
	} {
		testkit.Equal(t, field, m.Header.Get(field), want)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	if err != nil || subject != "blockd on mx1.here.example: 2 refused, 1 open request" {
		t.Errorf("Subject %q, %v", subject, err)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil || strings.ReplaceAll(string(body), "\r\n", "\n") != l.Text(time.UTC) {
		t.Errorf("body %q, %v", body, err)
	}
	if again := ID(l.Host, since); again != h.ID || ID(l.Host, until) == h.ID || ID("mx2.here.example", since) == h.ID {
		t.Errorf("id %s, then %s", h.ID, again)
	}
	odd := string(l.Message(Header{From: "a@b\r\nX: y", To: []string{"c@d\r\nZ: w"}, ID: "1", Date: until}, time.UTC))
	if strings.Contains(odd, "\r\nX: y") || strings.Contains(odd, "\r\nZ: w") {
		t.Errorf("a field was put in:\n%s", odd)
	}
}

// FuzzMessage puts a stranger's text wherever a letter may have one: it is mail that a strict reader takes, with the fields
// that it should have and no others, and its lines are of 72 columns.
func FuzzMessage(f *testing.F) {
	for _, text := range []string{"", "a@b.example\r\n.\r\nMAIL FROM:<x>", "\u202e\x1b[31m\x00\xff", strings.Repeat("ü", 500), "=?utf-8?q?=0D=0ABcc:_x?=", "-- ", ".\n..", "From x"} {
		f.Add(text, int64(7))
	}
	f.Fuzz(func(t *testing.T, text string, n int64) {
		n = max(n, 0)
		l := Letter{Host: "mx1.here.example", Version: "1.2.3", Since: since, Until: until, Open: 1, Waiting: 1, Notes: []string{text}, Problems: []string{text},
			Mail:     Mail{Decisions: uint64(n), Refused: uint64(n)},
			Lists:    []List{{Name: text, Refused: uint64(n), Sole: 1, Senders: 1}, {Name: text, Shadow: uint64(n)}, {Name: text, Answers: 1}},
			Suspects: Suspects{Rows: []Suspect{{Sender: text, Signs: []string{Asked}, List: text, Entry: text, Ref: text}}},
			Loads:    []Load{{List: text, Loads: 1, Refused: 1, Why: text, Stale: true, Held: 1}},
			Requests: []OpenRequest{{Ref: text, Sender: text, List: text, Note: text}},
			Proposed: []Unwanted{{Entry: text, Users: 7}},
			Pending:  []Pending{{List: text, Changes: text, Against: []string{text}}},
			Changes:  []Change{{Action: text, Count: 1, By: []string{text}}}}
		whole := string(l.Message(Header{From: "blockd@mx1.here.example", To: []string{"postmaster@here.example"}, ID: ID(l.Host, since), Date: until}, time.UTC))
		for line := range strings.SplitAfterSeq(whole, "\r\n") {
			if len(line) > 998 || strings.ContainsFunc(strings.TrimSuffix(line, "\r\n"), func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }) {
				t.Fatalf("line %.80q", line)
			}
		}
		m := testkit.Value(mail.ReadMessage(strings.NewReader(whole)))(t)
		testkit.MustEqual(t, fmt.Sprintf("fields: %v", m.Header), len(m.Header), 12)
		testkit.Value(new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject")))(t)
		body := testkit.Value(io.ReadAll(quotedprintable.NewReader(m.Body)))(t)
		for line := range strings.SplitSeq(string(body), "\r\n") {
			if term.Columns(line) > columns || strings.ContainsAny(line, "\r\n\x00\x1b\u202e") {
				t.Fatalf("%d columns: %q", term.Columns(line), line)
			}
		}
	})
}

// FuzzState reads whatever is in the file of a Courier: an error, or a state that a diary goes on from and that is written and read again as it is.
func FuzzState(f *testing.F) {
	for _, text := range []string{`{"report_version":1,"since":"2026-11-24T00:00:00Z","sent":"2026-11-24T00:00:00Z","loads":{"ads":{"list":"ads","loads":2,"refused":1,"why":"shrunk"}}}`,
		`{"report_version":1,"loads":{"":{}}}`, "{", "null", `{"report_version":1,"loads":null,"trying":"2026-11-24T00:00:00Z"}`} {
		f.Add([]byte(text))
	}
	path := f.TempDir() + "/report"
	f.Fuzz(func(t *testing.T, text []byte) {
		testkit.Must(t, os.WriteFile(path, text, 0o600))
		s, err := readState(path)
		if err != nil {
			return
		}
		d := NewDiary()
		d.Restore(s.Loads)
		d.Loads([]string{"ads"}, map[string]int{"ads": 1})
		d.Told(d.State())
		if err := s.write(path); err != nil {
			return // a year that RFC 3339 has no digits for
		}
		again, err := readState(path)
		if err != nil || !again.Since.Equal(s.Since) || len(again.Loads) != len(s.Loads) {
			t.Fatalf("%q: %+v, then %+v, %v", text, s, again, err)
		}
	})
}
