package servers

import (
	"bufio"
	"bytes"
	"cmp"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// arrival is one message as a mail server has handed it on: the envelope and the
// octets between DATA's 354 and the final dot, dots of transparency taken out.
type arrival struct {
	from string   // within the brackets of MAIL FROM
	to   []string // within those of each RCPT TO
	text string
}

// inbox is where the servers of a test deliver to: an LMTP (RFC 2033) and SMTP
// server that keeps what it gets, so that a test reads envelopes and octets
// instead of a mailbox format. The message ends at CRLF . CRLF and nowhere else.
type inbox struct {
	address string // HOST:PORT

	mu       sync.Mutex
	arrivals []arrival
	answer   func() string // to the dot, "" for 250: a message is kept before. nil: 250 at once
}

func startInbox(t *testing.T) *inbox {
	t.Helper()
	l := testkit.Listen(t)
	in := &inbox{address: l.Addr().String()}
	var sessions sync.WaitGroup
	sessions.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			context := t.Context()
			sessions.Go(func() {
				defer conn.Close()
				go func() { <-context.Done(); conn.Close() }()
				in.serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		sessions.Wait() // t.Context has ended before any Cleanup runs
	})
	return in
}

func (in *inbox) serve(conn net.Conn) {
	conn.SetDeadline(time.Now().Add(10 * time.Minute))
	r := bufio.NewReader(conn)
	say := func(line string) { conn.Write([]byte(line + "\r\n")) }
	var a arrival
	lmtp := false
	say("220 inbox")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		switch verb := strings.ToUpper(strings.TrimRight(line, "\r\n")); {
		case strings.HasPrefix(verb, "LHLO"), strings.HasPrefix(verb, "EHLO"):
			lmtp = verb[0] == 'L'
			say("250-inbox\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-ENHANCEDSTATUSCODES\r\n250 PIPELINING")
		case strings.HasPrefix(verb, "MAIL FROM:"):
			a = arrival{from: bracketed(line)}
			say("250 2.1.0 Ok")
		case strings.HasPrefix(verb, "RCPT TO:"):
			a.to = append(a.to, bracketed(line))
			say("250 2.1.5 Ok")
		case verb == "DATA":
			say("354 go")
			if a.text, err = readData(r); err != nil {
				return
			}
			in.mu.Lock()
			in.arrivals = append(in.arrivals, a)
			answer := in.answer
			in.mu.Unlock()
			said := ""
			if answer != nil {
				said = answer()
			}
			for i := range a.to {
				if lmtp || i == 0 {
					say(cmp.Or(said, "250 2.0.0 Ok"))
				}
			}
			a = arrival{}
		case verb == "RSET", strings.HasPrefix(verb, "NOOP"):
			a = arrival{}
			say("250 2.0.0 Ok")
		case verb == "QUIT":
			say("221 2.0.0 Bye")
			return
		default:
			say("500 5.5.2 What?")
		}
	}
}

// bracketed returns what stands between the first < and the last > of a line.
func bracketed(line string) string {
	_, line, _ = strings.Cut(line, "<")
	if end := strings.LastIndexByte(line, '>'); end >= 0 {
		line = line[:end]
	}
	return line
}

// readData reads up to CRLF . CRLF and undoes the doubling of dots.
func readData(r *bufio.Reader) (string, error) {
	text := []byte("\r\n") // the dot may come at once
	for !bytes.HasSuffix(text, []byte("\r\n.\r\n")) {
		piece, err := r.ReadSlice('\n')
		if err != nil && err != bufio.ErrBufferFull {
			return "", err
		}
		text = append(text, piece...)
	}
	text = bytes.TrimSuffix(text, []byte(".\r\n"))
	text = bytes.ReplaceAll(text, []byte("\r\n."), []byte("\r\n"))
	return string(text[2:]), nil
}

// answers makes f what says the answer to the dot of messages from now on.
func (in *inbox) answers(f func() string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.answer = f
}

// all returns what has arrived so far.
func (in *inbox) all() []arrival {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]arrival(nil), in.arrivals...)
}
