package letter

import (
	"io"
	"mime"
	"mime/quotedprintable"
	"net/mail"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// Whatever is in a letter, it is mail that a strict reader takes, with the fields that keep robots from answering.
func TestMessage(t *testing.T) {
	l := Letter{Host: "mx1.here.example", Version: "1.2.3", Since: since, Until: until, Mail: Mail{Decisions: 5, Refused: 2},
		Notes:    []string{"é\r\nBcc: everybody@here.example", strings.Repeat("long ", 400)},
		Requests: []OpenRequest{{Sender: "a@b.example\r\n.\r\nMAIL FROM:<x>"}}, Open: 1}
	h := Header{From: "blockd@mx1.here.example", To: []string{"postmaster@here.example", "anna@here.example"}, ID: ID(l.Host, since), Date: until}
	text := string(l.Message(h, time.UTC))
	for line := range strings.SplitAfterSeq(text, "\r\n") {
		if len(line) > 998 || strings.ContainsAny(strings.TrimSuffix(line, "\r\n"), "\r\n") {
			t.Errorf("line %.80q", line)
		}
	}
	for i := range len(text) {
		if text[i] > '~' {
			t.Fatalf("octet %#x", text[i])
		}
	}
	m, err := mail.ReadMessage(strings.NewReader(text))
	testkit.Must(t, err)
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
		if got := m.Header.Get(field); got != want {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
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
