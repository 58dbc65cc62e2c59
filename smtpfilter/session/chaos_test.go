package session

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
	"blockd/internal/testkit/dialogue"
	"blockd/internal/testkit/script"
	"blockd/mail/mailbox"
	"blockd/smtpfilter/upstream"
)

// TestChaosBehindChunksAndQuarantine has upstream close, hang, stall and refuse at
// each point of a message that goes by BDAT, of one that goes into quarantine too,
// and of one that does both. The client hears of it, the second message arrives,
// and the quarantine holds what was answered 250 and nothing else.
func TestChaosBehindChunksAndQuarantine(t *testing.T) {
	d := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{{Name: "junk", Kind: "quarantine", Entries: []string{"junk.example"}}}}
	checker := d.Checker(t)
	data := []string{"DATA", "x\r\nhello\r\n."}
	chunks := []string{"BDAT 5\r\nhello", "BDAT 2\r\n\r\n", "BDAT 0 LAST"}
	ways := []struct {
		name, sender string
		points       []string
		message      []string
	}{
		{"chunks", "a@good.example", []string{"MAIL", "RCPT", "BDAT", script.Body, script.Dot}, chunks},
		{"quarantine", "a@junk.example", []string{"MAIL", "RCPT", "DATA", script.Body, script.Dot}, data},
		{"chunks and quarantine", "a@junk.example", []string{"MAIL", "RCPT", "BDAT", script.Body, script.Dot}, chunks},
	}
	for _, way := range ways {
		for _, point := range way.points {
			for _, answer := range []string{script.Close, script.Hang, script.Stall, "451 4.3.0 not now", "554 5.0.0 never", "421 4.3.2 bye"} {
				if point == script.Body && way.name == "quarantine" && answer[0] != '!' {
					continue // the script would take the message all the same, which no server does
				}
				t.Run(way.name+" "+point+" "+answer, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						aside := t.TempDir()
						held := testkit.Value(mailbox.OpenQuarantine(aside, hostname, mailbox.Use{Octets: 1 << 20, Messages: 1000}, discardLog()))(t)
						server := &script.Server{Caps: []string{"PIPELINING", "CHUNKING"}}
						r := newRig(server, checker, Settings{Chunking: true, Quarantine: held})
						send := func(c *client) (reply string) {
							lines := append([]string{"MAIL FROM:<" + way.sender + ">", "RCPT TO:<bob@here.example>", "RCPT TO:<postmaster@here.example>"}, way.message...)
							for _, line := range lines {
								text := line + "\r\n"
								if strings.HasPrefix(line, "BDAT") && !strings.HasSuffix(line, "LAST") {
									text = line // its octets are in it
								}
								c.send(text)
								if reply = c.reply(); reply == "" || reply[0] >= '4' {
									return reply
								}
							}
							return reply
						}
						c := connect(t, r, t.Context())
						c.hello() // the probe is past
						server.On(point, answer)
						first := send(c)
						if first == "" || first[0] == '2' && !(way.name == "chunks" && point == "RCPT") {
							t.Errorf("first message: %q", first)
						}
						if strings.HasPrefix(first, "421") {
							<-c.ended
							c = connect(t, r, t.Context())
							c.hello()
						} else {
							c.want("RSET", "250")
						}
						second := send(c)
						testkit.Begins(t, "second message", second, "250")
						c.quit()
						server.HangUp()
						server.Wait()

						accepted := bit(first[0] == '2') + bit(second[0] == '2')
						if n := len(server.Messages()); n != accepted {
							t.Errorf("%d messages arrived, %d were answered 250", n, accepted)
						}
						files, err := os.ReadDir(filepath.Join(aside, "new"))
						left, err2 := os.ReadDir(filepath.Join(aside, "tmp"))
						if err != nil || err2 != nil || len(left) > 0 || len(files) != accepted*bit(way.sender == "a@junk.example") {
							t.Errorf("quarantine holds %d messages and %d halves (%v, %v), %d were answered 250", len(files), len(left), err, err2, accepted)
						}
					})
				})
			}
		}
	}
}

// TestQuarantineFaults has the disk fail at each step: the mail is 451, upstream gets
// no end of it, and the session goes on.
func TestQuarantineFaults(t *testing.T) {
	tests := []struct {
		name  string
		most  int64
		spoil func(dir string) error
		at    string // the command that hears of it
	}{
		{"full from the start", 1, nil, "DATA"},
		{"full in the message", 400, nil, "dot"},
		{"no folder to write into", 1 << 20, func(dir string) error { return os.Remove(filepath.Join(dir, "tmp")) }, "DATA"},
		{"no folder to commit into", 1 << 20, func(dir string) error { return os.Remove(filepath.Join(dir, "new")) }, "dot"},
	}
	d := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{{Name: "junk", Kind: "quarantine", Entries: []string{"junk.example"}}}}
	checker := d.Checker(t)
	for _, tt := range tests {
		for _, mixed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, mixed %v", tt.name, mixed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					dir := t.TempDir()
					held := testkit.Value(mailbox.OpenQuarantine(dir, hostname, mailbox.Use{Octets: tt.most, Messages: 1000}, discardLog()))(t)
					if tt.spoil != nil {
						testkit.Must(t, tt.spoil(dir))
					}
					server := &script.Server{}
					r, c := begin(t, server, checker, Settings{Quarantine: held})
					c.mail("a@junk.example")
					if mixed {
						c.want("RCPT TO:<postmaster@here.example>", "250")
					}
					if tt.at == "DATA" {
						c.want("DATA", "451 4.3.0")
						c.want("DATA", "451 4.3.0") // nothing is left of the first
					} else {
						c.want("DATA", "354")
						c.want(strings.Repeat("0123456789\r\n", 40)+".", "451 4.3.0")
					}
					c.want("RSET", "250")
					c.envelope()
					c.want("x\r\n.", "250")
					c.quit()
					server.Wait()
					testkit.Equal(t, "messages arrived", len(server.Messages()), 1)
					if n := r.count(t, "blockd_smtp_quarantine_errors_total", ""); n == 0 {
						t.Error("no error was counted")
					}
				})
			})
		}
	}
}

// TestTarpitIsBounded: beyond the limit no client waits, and a stop ends the wait.
func TestTarpitIsBounded(t *testing.T) {
	d := dialogue.Dialogue{Name: t.Name(), Lists: []dialogue.List{{Name: "bad", Entries: []string{"bad.example"}}},
		Settings: map[string]string{"tarpit": "90s"}}
	checker := d.Checker(t)
	synctest.Test(t, func(t *testing.T) {
		server := &script.Server{}
		r := newRig(server, checker, Settings{Limits: Limits{Tarpits: 2}})
		var clients []*client
		for range 3 {
			c := connect(t, r, t.Context())
			c.hello()
			c.want("MAIL FROM:<a@bad.example>", "250")
			c.send("RCPT TO:<bob@here.example>\r\n")
			synctest.Wait()
			clients = append(clients, c)
		}
		for i, c := range clients {
			if held := len(c.lines) == 0; held != (i < 2) {
				t.Errorf("client %d is held back: %v", i, held)
			}
		}
		for _, c := range clients {
			c.want("", "550")
			c.quit()
		}
	})
}

// resetConn ends with a reset instead of the end of the stream, as a server does
// that was killed, or a firewall that has lost its state.
type resetConn struct{ *net.TCPConn }

func (c resetConn) Close() error {
	c.SetLinger(0)
	return c.TCPConn.Close()
}

// TestResetUpstream has upstream end the connection at each protocol point by the
// end of the stream and by a reset, over real sockets and through XCLIENT. The
// first message is not answered 250 unless it has arrived, and the second, sent
// after it, arrives.
func TestResetUpstream(t *testing.T) {
	const again = "220 upstream.example ready again"
	const hello = "250-upstream.example\r\n250-PIPELINING\r\n250 XCLIENT NAME ADDR PORT PROTO HELO"
	tests := []struct {
		name, point string
		again       bool // at the second time
		end         string
		arrives     int // of the first message: 1 if upstream has taken it
	}{
		{"connect", script.Greeting, false, script.Close, 0},
		{"in the greeting", script.Greeting, false, "220-upstream" + script.Close, 0},
		{"EHLO", "EHLO", false, script.Close, 0},
		{"XCLIENT", "XCLIENT", false, script.Close, 0},
		{"second EHLO", "EHLO", true, script.Close, 0},
		{"MAIL", "MAIL", false, script.Close, 0},
		{"RCPT", "RCPT", false, script.Close, 0},
		{"DATA", "DATA", false, script.Close, 0},
		{"354", "DATA", false, "354 go" + script.Close, 0},
		{"in the message", script.Body, false, script.Close, 0},
		{"behind the dot", script.Dot, false, script.Close, 0},
		{"behind the dot, the message taken", script.Dot, false, script.Accept, 1},
		{"QUIT", "QUIT", false, script.Close, 1},
	}
	checker := listChecker(t)
	for _, tt := range tests {
		for _, reset := range []bool{false, true} {
			name := tt.name + " closed"
			if reset {
				name = tt.name + " reset"
			}
			t.Run(name, func(t *testing.T) {
				l := testkit.Listen(t)
				defer l.Close()
				server := &script.Server{Caps: []string{"PIPELINING", "XCLIENT NAME ADDR PORT PROTO HELO"}}
				go func() {
					for {
						conn, err := l.Accept()
						if err != nil {
							return
						}
						if reset {
							conn = resetConn{conn.(*net.TCPConn)}
						}
						go server.Serve(conn)
					}
				}()
				dialer := upstream.New(upstream.Settings{Network: "tcp", Address: l.Addr().String(), ClientInfo: "xclient",
					Hostname: hostname, ReplyTimeout: 30 * time.Second})
				r := newRig(server, checker, Settings{})
				r.relay.upstream = dialer
				send := func() (reply string) {
					c := connect(t, r, context.Background())
					c.hello()
					reply = c.transaction("x\r\n" + strings.Repeat("hello\r\n", 20_000) + ".")
					c.send("QUIT\r\n")
					<-c.ended
					return reply
				}
				server.On("XCLIENT", again)
				c := connect(t, r, context.Background())
				c.hello() // the probe is past
				c.close()

				if tt.again {
					server.On(tt.point, hello)
				}
				server.On(tt.point, tt.end)
				if tt.point != "XCLIENT" {
					server.On("XCLIENT", again)
				}
				first := send()
				if taken := strings.HasPrefix(first, "250"); taken != (tt.point == "QUIT") || !taken && !strings.HasPrefix(first, "451 4.4.") {
					t.Errorf("first message: %q", first)
				}
				testkit.Equal(t, "of the first message: have arrived", len(server.Messages()), tt.arrives)
				server.On("XCLIENT", again)
				server.On("XCLIENT", again)
				if second := send(); !strings.HasPrefix(second, "250") {
					t.Errorf("second message: %q\n%s", second, r.log)
				}
				testkit.Equal(t, "messages have arrived", len(server.Messages()), tt.arrives+1)
			})
		}
	}
}
