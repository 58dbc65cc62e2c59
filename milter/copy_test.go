package milter

import (
	"io"
	"testing"

	"blockd/mail/spool"
)

// Signatures are verified over the octets that came over the wire, whatever line ends the mail
// server passes.
func TestCopyIsTheMessageOnTheWire(t *testing.T) {
	for _, exact := range []bool{true, false} {
		s := &session{Server: &Server{settings: Settings{Copies: spool.New(spool.Settings{})}.withDefaults()}, exact: exact}
		for _, f := range [][2]string{{"From", " a@x.example"}, {"Subject", " one\n\ttwo\r\n three"}, {"X-Empty", ""}, {"X-None", "no blank"}, {"X-Blank ", "  two"}} {
			name, value := f[0], f[1]
			if !exact && value != "" && value[0] == ' ' {
				value = value[1:]
			}
			s.copyField(name, value)
		}
		s.copy([]byte("\r\n"))
		s.copy([]byte("..text\r\n"))
		want := "From: a@x.example\r\nSubject: one\r\n\ttwo\r\n three\r\nX-Empty:\r\nX-None:no blank\r\nX-Blank :  two\r\n\r\n..text\r\n"
		if !exact { // one blank is the best guess
			want = "From: a@x.example\r\nSubject: one\r\n\ttwo\r\n three\r\nX-Empty: \r\nX-None: no blank\r\nX-Blank :  two\r\n\r\n..text\r\n"
		}
		got, err := io.ReadAll(s.copied.text.Reader())
		if err != nil || string(got) != want {
			t.Errorf("exact %v: %q, %v, want %q", exact, got, err, want)
		}
		s.reset()
		if n := s.settings.Copies.Used(); n != 0 {
			t.Errorf("%d octets are not given back", n)
		}
	}
}
