package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Envelopes of mail that nobody lists.
const (
	clearSender = "friend@there.bench.test"
	anyReceiver = "you@here.bench.test"
)

// source runs smtp-source and returns the seconds from its start to its end.
func source(ctx context.Context, address string, sessions, mails, octets int, options ...string) (float64, error) {
	args := append([]string{"-s", strconv.Itoa(sessions), "-m", strconv.Itoa(mails), "-l", strconv.Itoa(octets),
		"-f", clearSender, "-t", anyReceiver}, options...)
	c, err := program{args: append(append([]string{"smtp-source"}, args...), address)}.run(ctx)
	return c.seconds, err
}

// refusalsASession is how many senders are refused on a connection that is used
// again: fewer than the commands without mail that an SMTP server takes.
const refusalsASession = 40

// refusals lets 20 clients name listed senders, each with a recipient, and returns
// the seconds that the total took. After each of them comes RSET, or after as many
// as one session has, QUIT.
func refusals(ctx context.Context, address string, total, each int, senders []string) (float64, error) {
	var left atomic.Int64
	left.Store(int64(total))
	var clients sync.WaitGroup
	faults := make([]error, smtpSessions)
	begun := time.Now()
	for i := range smtpSessions {
		clients.Go(func() {
			for left.Load() > 0 && faults[i] == nil {
				faults[i] = refusedSession(ctx, address, &left, each, senders)
			}
		})
	}
	clients.Wait()
	return time.Since(begun).Seconds(), errors.Join(faults...)
}

func refusedSession(ctx context.Context, address string, left *atomic.Int64, each int, senders []string) error {
	t, err := dialTalk(ctx, address)
	if err != nil {
		return err
	}
	defer t.close()
	for i := range each {
		n := left.Add(-1)
		if n < 0 {
			break
		}
		if i > 0 {
			if err := t.say("RSET", "250"); err != nil {
				return err
			}
		}
		if err := t.say("MAIL FROM:<"+senders[int(n)%len(senders)]+">", "250"); err != nil {
			return err
		}
		if err := t.say("RCPT TO:<"+anyReceiver+">", "550", "554"); err != nil {
			return err
		}
	}
	return t.say("QUIT", "221")
}

// talk is one SMTP session of a client of ours. smtp-source ends at the first
// refusal and times nothing.
type talk struct {
	conn net.Conn
	in   *bufio.Reader
	took time.Duration // by the last command
}

// dialTalk connects, from any address of this machine's own network, and says EHLO.
func dialTalk(ctx context.Context, address string) (*talk, error) {
	return dialTalkFrom(ctx, net.Dialer{}, address)
}

func dialTalkFrom(ctx context.Context, d net.Dialer, address string) (*talk, error) {
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	t := &talk{conn: conn, in: bufio.NewReaderSize(conn, 512)}
	if err := conn.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		return nil, err
	}
	if err = t.reply("220"); err == nil {
		err = t.say("EHLO client.bench.test", "250")
	}
	if err != nil {
		conn.Close()
	}
	return t, err
}

// say sends a command, or a whole message, and reads the reply, whose code must be
// one of want.
func (t *talk) say(text string, want ...string) error {
	begun := time.Now()
	_, err := io.WriteString(t.conn, text+"\r\n")
	if err == nil {
		err = t.reply(want...)
	}
	t.took = time.Since(begun)
	if err != nil {
		return fmt.Errorf("%.30q: %w", text, err)
	}
	return nil
}

func (t *talk) reply(want ...string) error {
	for {
		line, err := t.in.ReadString('\n')
		if err != nil {
			return err
		}
		if len(line) < 4 || !slices.Contains(want, line[:3]) {
			return fmt.Errorf("answer %q, want %s", line, strings.Join(want, " or "))
		}
		if line[3] != '-' {
			return nil
		}
	}
}

// oneKilobyte is a message with its end.
var oneKilobyte = "Subject: bench\r\n\r\n" + strings.Repeat(strings.Repeat("x", 70)+"\r\n", smallMessage/72) + "."

// mail sends one message and times its commands, in microseconds, as "passed".
func (t *talk) mail(times map[string]series) error {
	for _, step := range []struct{ text, want string }{
		{"MAIL FROM:<" + clearSender + ">", "250"}, {"RCPT TO:<" + anyReceiver + ">", "250"},
		{"DATA", "354"}, {oneKilobyte, "250"},
	} {
		if err := t.say(step.text, step.want); err != nil {
			return err
		}
		times["passed"] = append(times["passed"], float64(t.took.Nanoseconds())/1e3)
	}
	return nil
}

// refused names a listed sender and times the two commands.
func (t *talk) refused(sender string, times map[string]series) error {
	if err := t.say("MAIL FROM:<"+sender+">", "250"); err != nil {
		return err
	}
	times["MAIL"] = append(times["MAIL"], float64(t.took.Nanoseconds())/1e3)
	if err := t.say("RCPT TO:<"+anyReceiver+">", "550"); err != nil {
		return err
	}
	times["RCPT"] = append(times["RCPT"], float64(t.took.Nanoseconds())/1e3)
	return t.say("RSET", "250")
}

func (t *talk) close() { t.conn.Close() }

// holdSessions opens n sessions behind EHLO, from addresses of their own so that no
// port runs out, and waits until the end of input. It prints a line when they stand.
func holdSessions(ctx context.Context, address string, n int, stdin io.Reader, stdout io.Writer) error {
	var held []*talk
	for i := range n {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(i/5000), 1)}, KeepAlive: -1}
		t, err := dialTalkFrom(ctx, d, address)
		if err != nil {
			return fmt.Errorf("session %d: %w", i+1, err)
		}
		held = append(held, t)
	}
	fmt.Fprintln(stdout, len(held))
	_, err := io.Copy(io.Discard, stdin)
	for _, t := range held {
		t.close()
	}
	return err
}

// listens waits until somebody accepts connections at address.
func listens(ctx context.Context, address string, ended <-chan struct{}) error {
	return becomes(ctx, dials(address), ended)
}

// dials reports whether a server accepts connections at address.
func dials(address string) func() bool {
	return func() bool {
		conn, err := net.Dial("tcp", address)
		return err == nil && conn.Close() == nil
	}
}

// becomes waits until a server is ready.
func becomes(ctx context.Context, ready func() bool, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ready() {
			return nil
		}
		select {
		case <-ended:
			return errors.New("has ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// freeAddress is one of this machine that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// lookPath finds a peer, or says which package has it.
func lookPath(name string) (why string) {
	if _, err := exec.LookPath(name); err != nil {
		return "wants Debian's package " + name
	}
	return ""
}
