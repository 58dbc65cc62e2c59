package script

import (
	"bufio"
	"io"
	"slices"
	"strings"
	"testing"
)

// TestServer: the upstream that proves other code is itself a mail server that
// takes a message, refuses one, and notices who breaks the rules.
func TestServer(t *testing.T) {
	var s Server
	s.On("RCPT", "550-5.1.1 a\r\n550 5.1.1 b")
	s.On(Dot, "451 later")
	conn, err := s.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	replies := make(chan string, 1)
	go func() {
		all, _ := io.ReadAll(bufio.NewReader(conn))
		replies <- string(all)
	}()
	io.WriteString(conn, "EHLO a\r\nMAIL FROM:<a@b>\r\nRCPT TO:<x>\r\nRCPT TO:<y>\r\nDATA\r\none\r\n..\r\n.\r\n"+
		"MAIL FROM:<a@b>\r\nRCPT TO:<z>\r\nDATA\r\ntwo\nlines\r\n.\r\nQUIT\r\n")
	s.Wait()
	var codes []string
	for line := range strings.Lines(<-replies) {
		if line[3] == ' ' {
			codes = append(codes, line[:3])
		}
	}
	if want := strings.Fields("220 250 250 550 250 354 451 250 250 354 250 221"); !slices.Equal(codes, want) {
		t.Errorf("replies: %v, want %v", codes, want)
	}
	messages := s.Messages()
	if len(messages) != 1 || string(messages[0].Data) != "two\nlines\r\n.\r\n" || !slices.Equal(messages[0].Rcpt, []string{"RCPT TO:<z>"}) {
		t.Errorf("messages: %+v", messages)
	}
	if got := s.Faults(); len(got) != 1 || !strings.HasPrefix(got[0], "line not ended") {
		t.Errorf("faults: %+v", got)
	}
}
