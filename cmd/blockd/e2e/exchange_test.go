package e2e

import (
	"bufio"
	"net"
	"strings"
	"time"
)

// exchange is one connection of the matrix: it says anything at all to a server,
// hears what there is to hear, and fails no test by itself.
type exchange struct {
	id      string // in each Subject and local-part it sends, to know what arrives again
	conn    net.Conn
	r       *bufio.Reader
	replies []string // all that was heard, greeting and EHLO included
	dots    int      // 250s to a message
	meant   []string // messages as the client means them, for those that must arrive untouched
}

// open connects and says EHLO.
func (x *exchange) open(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	x.conn, x.r = conn, bufio.NewReader(conn)
	x.hear()
	x.say("EHLO client.there.example")
	return nil
}

// write sends octets as they are. A server may have gone: its replies tell.
func (x *exchange) write(text string) {
	x.conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
	x.conn.Write([]byte(text))
}

// hear reads one reply, "" if none comes.
func (x *exchange) hear() string { return x.hearFor(10 * time.Second) }

func (x *exchange) hearFor(limit time.Duration) string {
	x.conn.SetReadDeadline(time.Now().Add(limit))
	var reply strings.Builder
	for {
		line, err := x.r.ReadString('\n')
		if err != nil {
			return ""
		}
		reply.WriteString(line)
		if len(line) < 4 || line[3] != '-' {
			text := strings.TrimRight(reply.String(), "\r\n")
			x.replies = append(x.replies, text)
			return text
		}
	}
}

// say sends a command line and returns its reply.
func (x *exchange) say(line string) string {
	x.write(line + "\r\n")
	return x.hear()
}

// envelope opens a transaction and reports whether the message may be sent.
func (x *exchange) envelope() bool {
	return strings.HasPrefix(x.say("MAIL FROM:<"+x.id+"@friend.example>"), "250") && x.recipient()
}

// recipient is envelope behind MAIL.
func (x *exchange) recipient() bool {
	return strings.HasPrefix(x.say("RCPT TO:<you@here.example>"), "250") && strings.HasPrefix(x.say("DATA"), "354")
}

// end reads until the server closes. One that waits for octets that were never
// sent, as a BDAT of 4 GiB is answered, is told that there are none.
func (x *exchange) end() {
	for x.hearFor(time.Second) != "" {
	}
	x.conn.(*net.TCPConn).CloseWrite()
	for x.hear() != "" {
	}
	x.conn.Close()
	for _, reply := range x.replies {
		// Every server here says something of its own in the 250 to a message.
		for _, sign := range []string{"queued as", "OK id=", "Message accepted for delivery"} {
			if strings.HasPrefix(reply, "250") && strings.Contains(reply, sign) {
				x.dots++
			}
		}
	}
}

// refusal is the first reply that says no, "" if there was none.
func (x *exchange) refusal() string {
	for _, reply := range x.replies {
		if reply[0] == '4' || reply[0] == '5' {
			return reply[:min(3, len(reply))]
		}
	}
	return ""
}

// header is the top of a message: all fields that a server might miss.
func (x *exchange) header() string {
	return "From: <a@friend.example>\r\nTo: <you@here.example>\r\nDate: Sat, 1 Aug 2026 10:00:00 +0000\r\n" +
		"Message-ID: <" + x.id + "@friend.example>\r\nSubject: " + x.id + "\r\n\r\n"
}

// smuggled is a second transaction, of a listed sender, that a client hides
// behind something, and the end of everything.
func (x *exchange) smuggled() string {
	return "MAIL FROM:<" + x.id + "-smuggled@bulk.example>\r\nRCPT TO:<you@here.example>\r\nDATA\r\n" +
		x.header() + "smuggled\r\n.\r\nQUIT\r\n"
}
