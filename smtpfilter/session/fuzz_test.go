package session

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit/script"
)

// tape is a client that says what is written down, in pieces, and then ends.
type tape struct {
	net.Conn // nil: what a session should not call panics
	in       *bytes.Reader
	piece    func() int
	out      bytes.Buffer
}

func (c *tape) Read(p []byte) (int, error)       { return c.in.Read(p[:min(len(p), max(1, c.piece()))]) }
func (c *tape) Write(p []byte) (int, error)      { return c.out.Write(p) }
func (c *tape) Close() error                     { return nil }
func (c *tape) SetDeadline(time.Time) error      { return nil }
func (c *tape) SetReadDeadline(time.Time) error  { return nil }
func (c *tape) SetWriteDeadline(time.Time) error { return nil }

// FuzzSession plays any octets at all to a session. Whatever they are: no panic;
// upstream reads only lines that stand in the input as lines; it accepts only
// messages that stand there, dot and all; no listed sender passes, by a parser
// that shares nothing with the one under test; and every reply is well formed.
func FuzzSession(f *testing.F) {
	for _, seed := range []string{
		"EHLO a.example\r\nMAIL FROM:<a@good.example>\r\nRCPT TO:<bob@here.example>\r\nDATA\r\nhello\r\n.\r\nQUIT\r\n",
		"EHLO a.example\r\nMAIL FROM:<a@bad.example>\r\nRCPT TO:<bob@here.example>\r\nRCPT TO:<postmaster>\r\nDATA\r\n.\r\n",
		"EHLO a.example\r\nMAIL FROM:<\"a@bad.example> ENVID=a\"@good.example>\r\nRCPT TO:<\"x>\"@here.example>\r\n",
		"HELO a\r\nMAIL FROM:<@x.example:a@bad.example>\r\nRCPT TO:<bob@here.example>\r\nMAIL FROM:<b@good.example>\r\nRSET\r\nNOOP\r\n",
		"EHLO a\r\nMAIL FROM:<>\r\nRCPT TO:<b@c.example>\r\nDATA\r\na\n.\nMAIL FROM:<a@bad.example>\r\n.\r\n",
		"EHLO a\r\nMAIL FROM:<>\r\nRCPT TO:<b@c.example>\r\nBDAT 10\r\nRSET\r\nNOOP",
		"EHLO a\r\nMAIL FROM:<> BODY=BINARYMIME\r\nRCPT TO:<b@c.example>\r\nBDAT 3\r\na\n.BDAT 0\r\nBDAT 6 LAST\r\nRSET\r\nNOOP\r\n",
		"EHLO a\r\nMAIL FROM:<a@bad.example>\r\nRCPT TO:<b@c.example>\r\nBDAT 6\r\nRSET\r\nBDAT 99999 LAST\r\nx",
		"EHLO a\r\nMAIL FROM:<>\r\nRCPT TO:<b@c.example>\r\nBDAT 2\r\nhiDATA\r\nRCPT TO:<d@c.example>\r\nRSET\r\nBDAT 9223372036854775808\r\n",
		"EHLO a\r\nSTARTTLS\r\n",
		"EHLO a\r\nAUTH PLAIN AGEAYg==\r\nAUTH LOGIN\r\n*\r\nMAIL FROM:<a@good.example> AUTH=<>\r\nAUTH PLAIN\r\n",
		"EHLO a\r\nVRFY a\r\nEXPN a\r\nHELP\r\nSTARTTLS\r\nAUTH PLAIN\r\nGET / HTTP/1.1\r\n",
		"EHLO a\r\nMAIL FROM:<\xc3\xa4@good.example> SMTPUTF8 BODY=8BITMIME SIZE=10 RET=HDRS ENVID=x\r\nRCPT TO:<b@c.example> NOTIFY=NEVER ORCPT=rfc822;b@c.example\r\nDATA\r\n..\r\n.\r\n",
	} {
		f.Add([]byte(seed), uint64(1))
		f.Add([]byte(seed+seed), uint64(77))
	}
	checker := listChecker(f)
	f.Fuzz(func(t *testing.T, input []byte, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 3))
		server := &script.Server{LMTP: seed%7 == 0, Caps: strings.Split(fullCaps, ", ")}
		for range seed % 4 { // refusals, but nothing that takes time
			point := []string{"MAIL", "RCPT", "DATA", script.Dot, "RSET", "BDAT", "AUTH"}[rng.IntN(7)]
			server.On(point, []string{"451 no", "550-5.1.1 a\r\n550 5.1.1 b", "421 bye", script.Close, "354 what", "2", "334 "}[rng.IntN(7)])
		}
		r := newRig(server, checker, Settings{Limits: Limits{ErrorDelay: time.Nanosecond}, Chunking: true, Auth: "forward", SkipAuthenticated: false,
			StartTLS: func(_ context.Context, conn net.Conn) (net.Conn, error) { return conn, nil }})
		conn := &tape{in: bytes.NewReader(input), piece: func() int { return 1 + rng.IntN(1+rng.IntN(200)) }}
		r.relay.Run(context.Background(), conn, testClient)
		server.Wait()

		if strings.Contains(r.log.String(), "panicked") {
			t.Fatalf("log:\n%s", r.log)
		}
		stream := "\r\n" + string(input)
		for _, line := range server.Log() {
			if chunk, err := strconv.Unquote(line); err == nil && strings.HasPrefix(line, `"`) {
				if !strings.Contains(stream, "\n"+chunk) {
					t.Fatalf("upstream read the chunk %q, which the client has not sent", chunk)
				}
				continue
			}
			if strings.HasPrefix(line, "BDAT ") { // rendered from its number
				continue
			}
			// RSET may be the session's own, for EHLO.
			before := "\n"
			if strings.Contains(strings.ToUpper(stream), "\nBDAT ") {
				before = "" // a chunk may end anywhere
			}
			if line != "RSET" && !strings.Contains(stream, before+line+"\r\n") {
				t.Fatalf("upstream read %q, which the client has not sent", line)
			}
		}
		if faults := server.Faults(); len(faults) > 0 && !strings.HasPrefix(faults[0], "unfinished") {
			t.Fatalf("upstream's view: %q", faults)
		}
		for _, m := range server.Messages() {
			if !m.BDAT && !strings.Contains(stream, string(m.Data)) {
				t.Fatalf("upstream accepted what the client has not sent: %q", m.Data)
			}
			checkSecondParser(t, m.Mail, m.Rcpt)
		}
		checkReplies(t, conn.out.String())
	})
}

// checkSecondParser is the other opinion on the sender: everything between the
// first "<" after the colon and the ">" that is not within quotes.
func checkSecondParser(t *testing.T, mail string, rcpt []string) {
	t.Helper()
	if !strings.EqualFold(domainOf(mail), "bad.example") && !strings.HasSuffix(strings.ToLower(domainOf(mail)), ".bad.example") {
		return
	}
	for _, line := range rcpt {
		_, path, _ := strings.Cut(strings.ToLower(line), "<")
		if i := strings.LastIndex(path, ":"); path[0] == '@' && i >= 0 {
			path = path[i+1:]
		}
		local := strings.Trim(path[:strings.LastIndexAny(path, "@>")], `"`)
		if i := strings.LastIndex(local, "@"); i > 0 {
			local = strings.Trim(local[:i], `"`)
		}
		if local = strings.ReplaceAll(local, `\`, ""); local != "postmaster" && local != "abuse" {
			t.Fatalf("listed sender %q reached %q", mail, line)
		}
	}
}

// domainOf finds the domain of a path's address.
func domainOf(line string) string {
	quoted, escaped, at := false, false, -1
	for i := strings.IndexByte(line, '<') + 1; i > 0 && i < len(line); i++ {
		switch c := line[i]; {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '@' || c == ':' && at >= 0: // after a route's colon it begins anew
			at = i
		case c == '>':
			if at < 0 {
				return ""
			}
			return line[at+1 : i]
		}
	}
	return ""
}

// checkReplies reads what the client was told.
func checkReplies(t *testing.T, out string) {
	t.Helper()
	for out != "" {
		line, rest, ok := strings.Cut(out, "\r\n")
		if !ok || len(line) < 3 || line[0] < '2' || line[0] > '5' || strings.ContainsAny(line, "\r\n\x00") {
			t.Fatalf("reply %q", line)
		}
		out = rest
	}
}
