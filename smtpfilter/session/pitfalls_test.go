package session

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/script"
	"blockd/policy"
	"blockd/policy/rule"
	"blockd/smtpfilter/upstream"
)

// The pitfalls of docs/smtp.md that a dialogue cannot show. The others are
// testdata/dialogues/p*.txt.

// TestP2DataIsForwardedByteForByte sends messages of all sizes in all pieces.
func TestP2DataIsForwardedByteForByte(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var body bytes.Buffer
		for size := rng.IntN(1 + rng.IntN(300_000)); body.Len() < size; {
			line := make([]byte, rng.IntN(1+rng.IntN(20_000)))
			for i := range line {
				for line[i] = byte(rng.Uint32()); bytes.IndexByte([]byte("\r\n\x00."), line[i]) >= 0; {
					line[i]++
				}
			}
			if rng.IntN(5) == 0 {
				body.WriteString("..")
			}
			body.Write(line)
			body.WriteString("\r\n")
		}
		body.WriteString(".\r\n")
		talk(t, &script.Server{}, Settings{}, func(t *testing.T, r *rig, c *client) {
			c.envelope()
			for text := body.String() + "NOOP\r\n"; text != ""; {
				n := min(len(text), 1+rng.IntN(1+rng.IntN(40_000)))
				c.send(text[:n])
				text = text[n:]
			}
			c.want("", "250 2.0.0 Ok: queued")
			c.want("", "250") // NOOP after the dot, in the same piece
			c.quit()
			r.server.Wait()
			if got := r.server.Messages(); len(got) != 1 || !bytes.Equal(got[0].Data, body.Bytes()) {
				t.Fatalf("seed %d: upstream got %d messages, want one of %d octets", seed, len(got), body.Len())
			}
		})
	}
}

// TestP3ClientGoneBeforeOur250 leaves a message accepted that upstream accepted.
func TestP3ClientGoneBeforeOur250(t *testing.T) {
	talk(t, &script.Server{}, Settings{}, func(t *testing.T, r *rig, c *client) {
		c.envelope()
		c.send("hello\r\n.\r\n")
		c.close()
		r.server.Wait()
		testkit.Equal(t, "messages accepted upstream", len(r.server.Messages()), 1)
	})
}

// TestP4NoXCLIENTNoMail: an upstream that cannot be told who the client is would
// take its mail for ours.
func TestP4NoXCLIENTNoMail(t *testing.T) {
	checker := listChecker(t)
	synctest.Test(t, func(t *testing.T) {
		server := &script.Server{}
		r := newRig(server, checker, Settings{})
		r.relay.upstream = upstream.New(upstream.Settings{Dial: server.Dial, Hostname: hostname, ClientInfo: upstream.ClientInfoXCLIENT})
		c := connect(t, r, t.Context())
		c.want("", "220 ")
		c.want("EHLO client.example", "421 4.4.1")
		c.want("", "")
		<-c.ended
		server.Wait()
		testkit.EqualSlices(t, "upstream read", server.Log(), nil)
		testkit.Equal(t, "upstream_errors{probe}", r.count(t, "blockd_smtp_upstream_errors_total", "probe"), 1)
	})
}

// isLimit reports whether a wait has taken its limit and, at most, lateShare part of the last
// deadline of it: that of a whole message is 10 min.
func isLimit(took, limit time.Duration) bool {
	return limit <= took && took <= limit+limit/lateShare
}

// TestP10StalledUpstream meets an upstream that stops at each point: the client
// always hears of it, in the time that the limits give.
func TestP10StalledUpstream(t *testing.T) {
	tests := []struct {
		point, answer string
		within        time.Duration
		reply         string
	}{
		{"MAIL", script.Hang, 5 * time.Minute, "451 4.4.2"},
		{"MAIL", script.Stall, 5 * time.Minute, "451 4.4.2"},
		{"RCPT", script.Hang, 5 * time.Minute, "451 4.4.2"},
		{"DATA", script.Hang, 5 * time.Minute, "451 4.4.2"},
		{script.Body, script.Hang, 10 * time.Minute, "451 4.4.2"},
		{script.Body, script.Stall, 3*time.Minute + time.Second, "451 4.4.2"},
		{script.Dot, script.Hang, 10 * time.Minute, "451 4.4.2"},
		{"RSET", script.Hang, 5 * time.Minute, "250 2.0.0"},
	}
	for _, tt := range tests {
		t.Run(tt.point+tt.answer, func(t *testing.T) {
			talk(t, &script.Server{}, Settings{}, func(t *testing.T, r *rig, c *client) {
				r.server.On(tt.point, tt.answer)
				started := time.Now()
				reply := ""
				for _, line := range []string{"MAIL FROM:<a@good.example>", "RCPT TO:<bob@here.example>", "DATA",
					"Subject: x\r\n" + strings.Repeat("data\r\n", 40_000) + ".", "RSET"} {
					c.send(line + "\r\n")
					if reply = c.reply(); strings.HasPrefix(reply, "451") {
						break
					}
				}
				if took := time.Since(started); !strings.HasPrefix(reply, tt.reply) || !isLimit(took, tt.within) {
					t.Errorf("after %v: %q; want %q after %v", took, reply, tt.reply, tt.within)
				}
				c.want("RSET", "250")
				c.want("MAIL FROM:<b@good.example>", "250")
				c.close()
				r.server.HangUp()
				if n := len(r.server.Messages()); n > 0 && tt.point != "RSET" {
					t.Errorf("%d messages accepted upstream", n)
				}
			})
		})
	}
}

// TestP10SlowClient sends data slower than the minimum rate, but never pauses
// long enough for the block deadline.
func TestP10SlowClient(t *testing.T) {
	talk(t, &script.Server{}, Settings{}, func(t *testing.T, r *rig, c *client) {
		c.envelope()
		started := time.Now()
		var writer sync.WaitGroup
		defer writer.Wait()
		writer.Go(func() {
			for {
				if _, err := c.conn.Write([]byte("x")); err != nil {
					return
				}
				<-time.After(10 * time.Second)
			}
		})
		c.want("", "421 4.4.2")
		if took := time.Since(started); took < 2*time.Minute || took > 2*time.Minute+10*time.Second {
			t.Errorf("slow client was cut after %v, want 2 min", took)
		}
		<-c.ended
		r.server.Wait()
		if got := r.count(t, "blockd_smtp_messages_total", "timeout"); got != 1 || len(r.server.Messages()) > 0 {
			t.Errorf("messages{timeout} = %v, want 1; %d accepted", got, len(r.server.Messages()))
		}
	})
}

// TestP10SessionLimit ends a session that goes on for ever, politely and not
// without reason.
func TestP10SessionLimit(t *testing.T) {
	talk(t, &script.Server{}, Settings{Limits: Limits{JunkCommands: 1000}}, func(t *testing.T, _ *rig, c *client) {
		started := time.Now()
		for {
			c.send("NOOP\r\n")
			if reply := c.reply(); strings.HasPrefix(reply, "421 4.4.2") {
				break
			} else if !strings.HasPrefix(reply, "250") {
				t.Fatalf("after %v: %q", time.Since(started), reply)
			}
			select {
			case <-time.After(4 * time.Minute):
			case <-c.ended:
			}
		}
	})
}

// TestP11NothingIsCutBetweenDotAndReply: the filter stops, or the hour is over,
// while upstream still thinks about the message.
func TestP11NothingIsCutBetweenDotAndReply(t *testing.T) {
	for _, cause := range []string{"drain", "session limit"} {
		t.Run(cause, func(t *testing.T) {
			checker := listChecker(t)
			synctest.Test(t, func(t *testing.T) {
				server := &script.Server{}
				slow := make(chan net.Conn, 1)
				dial := func(ctx context.Context) (net.Conn, error) {
					near, far := net.Pipe()
					slow <- far
					return near, nil
				}
				r := newRig(server, checker, Settings{})
				r.relay.upstream = upstream.New(upstream.Settings{Dial: dial, Hostname: hostname})
				go func() {
					server.Serve(<-slow) // the probe of EHLO
					conn := <-slow
					server.On(script.Dot, script.Hang)
					server.Serve(conn)
				}()
				ctx, drain := context.WithCancel(t.Context())
				defer drain()
				c := connect(t, r, ctx)
				c.hello()
				if cause == "session limit" {
					for range 14 { // 56 min
						<-time.After(4 * time.Minute)
						c.want("NOOP", "250")
					}
				}
				c.envelope()
				c.send("hello\r\n.\r\n")
				synctest.Wait()
				started := time.Now()
				if cause == "drain" {
					drain()
				}
				c.want("", "451 4.4.2")
				if took := time.Since(started); !isLimit(took, 10*time.Minute) {
					t.Errorf("final reply was waited for %v, want 10 min", took)
				}
				c.want("", "421")
				<-c.ended
			})
		})
	}
}

// TestP11StopEndsSessions: what a stop waits for. A session says the reply of its
// transaction's end, and then at once that it is over.
func TestP11StopEndsSessions(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before        func(*client)
		after, answer string // once the stop is known
		took          time.Duration
		messages      int
	}{
		{"half a command is none", func(c *client) { c.envelope(); c.want("hello\r\n.", "250"); c.send("NO") }, "", "", 0, 1},
		{"a transaction ends", (*client).envelope, "hello\r\n.\r\nMAIL FROM:<b@good.example>", "250", 0, 1},
		{"upstream owes a reply for the minute", func(c *client) { c.mail("a@good.example") }, "NOOP", "451 4.4.2", time.Minute, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checker := listChecker(t)
			synctest.Test(t, func(t *testing.T) {
				server := &script.Server{}
				server.On("NOOP", script.Hang)
				r := newRig(server, checker, Settings{})
				ctx, drain := context.WithCancel(t.Context())
				c := connect(t, r, ctx)
				c.hello()
				tt.before(c)
				synctest.Wait()
				started := time.Now()
				drain()
				synctest.Wait() // the session learns of it by a goroutine of its own
				if tt.after != "" {
					c.want(tt.after, tt.answer)
				}
				c.want("", "421 4.3.2")
				<-c.ended
				if took := time.Since(started); took != tt.took || len(server.Messages()) != tt.messages {
					t.Errorf("ended after %v with %d messages, want %v, %d", took, len(server.Messages()), tt.took, tt.messages)
				}
				server.HangUp()
				server.Wait()
			})
		})
	}
}

// TestP10DataDeadlines: two minutes to the first octet, three between two.
func TestP10DataDeadlines(t *testing.T) {
	for data, within := range map[string]time.Duration{"": 2 * time.Minute, strings.Repeat("data\r\n", 160_000): 3 * time.Minute} {
		talk(t, &script.Server{}, Settings{}, func(t *testing.T, r *rig, c *client) {
			c.envelope()
			started := time.Now()
			c.send(data)
			c.want("", "421 4.4.2")
			<-c.ended
			if took := time.Since(started); !isLimit(took, within) || len(r.server.Messages()) > 0 {
				t.Errorf("behind %d octets ended after %v with %d messages, want %v, none", len(data), took, len(r.server.Messages()), within)
			}
		})
	}
}

// TestP14Floods: input without end is not read without end.
func TestP14Floods(t *testing.T) {
	tests := []struct {
		name  string
		data  bool
		piece string
		reply string
	}{
		{"command line", false, "x", "500 5.5.2"},
		{"message that was too big", true, "x\r\n", "552 5.3.4"},
		{"message with a bare LF", true, "x\n", "550 5.5.2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			talk(t, &script.Server{}, Settings{Limits: Limits{MessageSize: 10_000}}, func(t *testing.T, r *rig, c *client) {
				if tt.data {
					c.envelope()
				}
				c.send(strings.Repeat(tt.piece, 2<<20))
				c.want("", tt.reply)
				c.want("", "")
				<-c.ended
				r.server.Wait()
				if len(r.server.Messages()) > 0 {
					t.Error("upstream accepted it")
				}
			})
		})
	}
}

// writes is an upstream connection that notes how much is written at a time.
type writes struct {
	net.Conn
	octets, commands int // the most of them
}

func (w *writes) Write(p []byte) (int, error) {
	w.octets = max(w.octets, len(p))
	w.commands = max(w.commands, bytes.Count(p, []byte("\n")))
	return w.Conn.Write(p)
}

// TestP14PipelineIsBounded: however many commands a client sends at once, few are
// in flight, and each has its reply.
func TestP14PipelineIsBounded(t *testing.T) {
	for _, length := range []int{1, 50} {
		talk(t, &script.Server{}, Settings{}, func(t *testing.T, r *rig, c *client) {
			var noted *writes
			r.relay.upstream = upstream.New(upstream.Settings{Hostname: hostname, Dial: func(ctx context.Context) (net.Conn, error) {
				conn, err := r.server.Dial(ctx)
				noted = &writes{Conn: conn}
				return noted, err
			}})
			c.want("EHLO client.example", "250")
			c.want("MAIL FROM:<a@good.example>", "250")
			c.send(strings.Repeat("RCPT TO:<"+strings.Repeat("b", length)+"@here.example>\r\n", 300))
			for range 300 {
				c.want("", "250 2.1.5")
			}
			if noted.octets > 4096 || noted.commands > 64 || noted.commands < 10 {
				t.Errorf("%d octets, %d commands at a time, want at most 4,096 and 64", noted.octets, noted.commands)
			}
		})
	}
}

// TestP2ClientLostInData counts a message that broke off.
func TestP2ClientLostInData(t *testing.T) {
	talk(t, &script.Server{}, Settings{}, func(t *testing.T, r *rig, c *client) {
		c.envelope()
		c.send("half\r\n.\r")
		c.close()
		r.server.Wait()
		testkit.Equal(t, "messages{client-lost}", r.count(t, "blockd_smtp_messages_total", "client-lost"), 1)
		if len(r.server.Messages()) > 0 || slices.Contains(r.server.Log(), "QUIT") {
			t.Errorf("upstream read %q", r.server.Log())
		}
	})
}

// TestLastReplyArrivesThoughTheClientIsStillSending: over real sockets, where to
// close with unread input sends a reset.
func TestLastReplyArrivesThoughTheClientIsStillSending(t *testing.T) {
	r := newRig(&script.Server{}, listChecker(t), Settings{})
	l := testkit.Listen(t)
	defer l.Close()
	for range 20 {
		conn := testkit.Value(net.Dial("tcp", l.Addr().String()))(t)
		far := testkit.Value(l.Accept())(t)
		var session sync.WaitGroup
		session.Go(func() { r.relay.Run(t.Context(), far, testClient) })
		io.WriteString(conn, "EHLO client.example\r\nBDAT 50000\r\n")
		io.WriteString(conn, strings.Repeat("x", 50_000))
		conn.(*net.TCPConn).CloseWrite()
		said, err := io.ReadAll(conn)
		if err != nil || !strings.Contains(string(said), "502 5.5.1") {
			t.Fatalf("client read %q, %v", said, err)
		}
		conn.Close()
		session.Wait()
	}
}

// TestP12StoreError: with an unreadable store no sender is refused, unless it is told to defer.
func TestP12StoreError(t *testing.T) {
	for onError, want := range map[rule.OnError]string{rule.AcceptOnError: "250", rule.TempfailOnError: "451 4.3.0"} {
		r, c := begin(t, &script.Server{}, brokenChecker(t, onError), Settings{})
		c.want("MAIL FROM:<a@bad.example>", "250")
		c.want("RCPT TO:<bob@here.example>", want)
		c.close()
		testkit.Has(t, r.log.String(), "ref=")
	}
}

// brokenChecker looks up in an index whose store has been destroyed on disk
// after it was opened.
func brokenChecker(t *testing.T, onError rule.OnError) *policy.Checker {
	t.Helper()
	folder := t.TempDir()
	list := testkit.Write(t, filepath.Join(folder, "bad.txt"), "bad.example\n")
	path := filepath.Join(folder, "index.bdx")
	draft := testkit.Value(index.Build(t.Context(), path, []index.Source{{List: "bad", Path: list}}, index.Options{}))(t)
	defer draft.Discard()
	testkit.Must(t, draft.Publish())
	ix := testkit.Value(index.Open(path))(t)
	text := testkit.Read(t, path)
	// The store is the last place where the entry's key stands.
	at := bytes.LastIndex(text, []byte("bad.example"))
	f := testkit.Value(os.OpenFile(path, os.O_WRONLY, 0))(t)
	defer f.Close()
	testkit.Value(f.WriteAt([]byte("XXX"), int64(at)))(t)
	return policy.New(func() *index.Index { return ix }, policy.Settings{OnError: onError}, discardLog(), prometheus.NewRegistry())
}

// TestP15PanicEndsOneSession: a defect costs a session, not the daemon, and data
// in flight is not ended with a dot.
func TestP15PanicEndsOneSession(t *testing.T) {
	talk(t, &script.Server{}, Settings{}, func(t *testing.T, r *rig, c *client) {
		usual := r.relay.upstream
		r.relay.upstream = upstream.New(upstream.Settings{Hostname: hostname, Dial: func(context.Context) (net.Conn, error) { panic("defect") }})
		c.want("MAIL FROM:<a@good.example>", "250")
		c.want("RCPT TO:<bob@here.example>", "421 4.3.0")
		c.want("", "")
		<-c.ended
		r.relay.upstream = usual
		again := connect(t, r, t.Context())
		again.hello()
		again.want("MAIL FROM:<a@good.example>", "250")
		again.close()
		testkit.Equal(t, "panics_total", r.count(t, "blockd_smtp_panics_total", ""), 1)
		testkit.Has(t, r.log.String(), "session panicked", "sendMail")
	})
}

// TestChaosUpstream has upstream close, hang or stall at each protocol point, and
// then sends a second message: it must arrive, the first must not be lost
// silently.
func TestChaosUpstream(t *testing.T) {
	points := []string{script.Connect, script.Greeting, "EHLO", "MAIL", "RCPT", "DATA", script.Body, script.Dot, "QUIT"}
	for _, point := range points {
		for _, answer := range []string{script.Close, script.Hang, script.Stall} {
			if point == script.Connect && answer == script.Stall {
				continue
			}
			t.Run(point+answer, func(t *testing.T) {
				talk(t, &script.Server{}, Settings{}, func(t *testing.T, r *rig, c *client) { // the probe is past
					r.server.On(point, answer)
					first := c.transaction("x\r\nhello\r\n.")
					if want := 250 + 201*bit(point != "QUIT"); !strings.HasPrefix(first, fmt.Sprint(want)) {
						t.Errorf("first message: %q, want %d", first, want)
					}
					c.want("RSET", "250")
					testkit.Begins(t, "second message", c.transaction("x\r\nhello\r\n."), "250")
					c.quit()
					r.server.HangUp()
					r.server.Wait()
					if n, want := len(r.server.Messages()), 1+bit(point == "QUIT"); n != want {
						t.Errorf("%d messages arrived, want %d", n, want)
					}
				})
			})
		}
	}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestGreetWait: a client that talks before the greeting is refused, and upstream is not asked.
func TestGreetWait(t *testing.T) {
	checker := listChecker(t)
	synctest.Test(t, func(t *testing.T) {
		server := &script.Server{}
		r := newRig(server, checker, Settings{Limits: Limits{GreetWait: 2 * time.Second}})
		early := connect(t, r, t.Context())
		early.want("EHLO eager.example", "521 5.5.1")
		early.want("", "")
		<-early.ended
		patient := connect(t, r, t.Context())
		patient.hello()
		patient.close()
		server.Wait()
		testkit.Equal(t, "upstream sessions", server.Sessions(), 1)
	})
}

// TestErrorsAreSlowedDown: of what a client is refused, commands as recipients, 10 are free,
// each further one costs a second, and the 20th ends the session.
func TestErrorsAreSlowedDown(t *testing.T) {
	for _, tt := range []struct {
		name, text, before string
		reply              string
		replies            int // before the last
		took               time.Duration
	}{
		{"commands", "FOO\r\n", "", "500", 19, 9 * time.Second},
		{"recipients, all at once", "RCPT TO:<you@here.example>\r\n", "MAIL FROM:<x@bad.example>", "550 5.7.1", 20, 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			talk(t, &script.Server{}, Settings{}, func(t *testing.T, r *rig, c *client) {
				if tt.before != "" {
					c.want(tt.before, "250")
				}
				started := time.Now()
				go c.send(strings.Repeat(tt.text, 100))
				for range tt.replies {
					c.want("", tt.reply)
				}
				c.want("", "421 4.7.0 Too many errors")
				if took := time.Since(started); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				c.want("", "")
				<-c.ended
				if !slices.Contains(strings.Fields(r.log.String()), "reason=errors") {
					t.Errorf("log:\n%s", r.log)
				}
			})
		})
	}
}

// TestJunkIsLimited ends a session that moves no mail; mail makes good.
func TestJunkIsLimited(t *testing.T) {
	talk(t, &script.Server{}, Settings{Limits: Limits{JunkCommands: 5}}, func(t *testing.T, _ *rig, c *client) {
		for range 4 {
			c.want("NOOP", "250")
		}
		c.envelope()
		c.want("hello\r\n.", "250")
		for range 5 {
			c.want("NOOP", "250")
		}
		c.want("NOOP", "421 4.7.0")
		c.want("", "")
	})
}
