package script

import (
	"bufio"
	"io"
	"net"
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

// TestServerKeepsConnectionsApart: a recipient belongs to the MAIL of its own
// connection, whatever is said on others in between.
func TestServerKeepsConnectionsApart(t *testing.T) {
	var s Server
	s.On("MAIL", "451 no")
	reply := func(in *bufio.Reader) {
		t.Helper()
		if _, err := in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	var conns [2]net.Conn
	var ins [2]*bufio.Reader
	for i := range conns {
		var err error
		if conns[i], err = s.Dial(t.Context()); err != nil {
			t.Fatal(err)
		}
		ins[i] = bufio.NewReader(conns[i])
		reply(ins[i]) // the greeting
	}
	for _, step := range []struct {
		conn int
		line string
	}{
		{0, "MAIL FROM:<a@b>"}, {1, "AUTH PLAIN AAAA"}, {1, "MAIL FROM:<c@d>"}, {0, "RCPT TO:<x>"}, {1, "RCPT TO:<y>"},
		{1, "RSET"}, {1, "RCPT TO:<z>"},
	} {
		if _, err := io.WriteString(conns[step.conn], step.line+"\r\n"); err != nil {
			t.Fatal(err)
		}
		reply(ins[step.conn])
	}
	conns[0].Close()
	conns[1].Close()
	s.Wait()
	want := []Recipient{
		{Mail: "MAIL FROM:<a@b>", Rcpt: "RCPT TO:<x>"}, // refused, and still its transaction's
		{Mail: "MAIL FROM:<c@d>", Rcpt: "RCPT TO:<y>", Authenticated: true},
		{Rcpt: "RCPT TO:<z>", Authenticated: true},
	}
	if got := s.Recipients(); !slices.Equal(got, want) {
		t.Errorf("recipients: %+v, want %+v", got, want)
	}
	if want := []string{"MAIL FROM:<a@b>", "RCPT TO:<x>", "AUTH PLAIN AAAA", "MAIL FROM:<c@d>", "RCPT TO:<y>", "RSET", "RCPT TO:<z>"}; !slices.Equal(s.Log(), want) {
		t.Errorf("log: %q, want %q", s.Log(), want)
	}
	if got, want := s.Faults(), []string{"RCPT without MAIL"}; !slices.Equal(got, want) {
		t.Errorf("faults: %q, want %q", got, want)
	}
}
