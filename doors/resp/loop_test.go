package resp

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// A client that does not read its answers keeps no other one waiting, and hears all of them in the end.
func TestClientThatDoesNotRead(t *testing.T) {
	r := newRig(t)
	address, _ := r.serve(t)
	deaf, other := dial(t, address), dial(t, address)
	const n = 2000
	command := encode("ECHO", strings.Repeat("x", 10_000))
	go deaf.Write(bytes.Repeat(command, n))
	testkit.Eventually(t, "answers to wait", func() bool { return r.server.held.Load() > 0 })
	for range 100 {
		other.wants(t, ":1\r\n", "SISMEMBER", "spam", "x@bad.example")
	}
	if held := r.server.held.Load(); held > 1<<20 {
		t.Errorf("%d octets are held for one client", held)
	}
	want := bytes.Repeat([]byte("$10000\r\n"+strings.Repeat("x", 10_000)+"\r\n"), n)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(deaf.r, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%v, or other answers", err)
	}
	testkit.Eventually(t, "nothing to be held", func() bool { return r.server.held.Load() == 0 })
}

// Long pipelines of many clients are answered beside the loop, and in order.
func TestPipelinesOfManyClients(t *testing.T) {
	r := newRig(t)
	address, _ := r.serve(t)
	input := bytes.Repeat(append(encode("SISMEMBER", "spam", "x@bad.example"), encode("SISMEMBER", "spam", "x@clear.example")...), 1000)
	want := strings.Repeat(":1\r\n:0\r\n", 1000)
	done := make(chan string)
	for range 8 {
		p := dial(t, address)
		go func() {
			for range 5 {
				go p.Write(input)
				got := make([]byte, len(want))
				if _, err := io.ReadFull(p.r, got); err != nil || string(got) != want {
					done <- fmt.Sprintf("%v, or other answers", err)
					return
				}
			}
			done <- ""
		}()
	}
	for range 8 {
		testkit.Equal(t, "a client's fault", <-done, "")
	}
	r.counts(t, 8*5*1000, "blockd_resp_answers_total", "listed")
}

// What becomes of a connection as time passes.
func TestTimeLimits(t *testing.T) {
	r := newRig(t)
	s := r.open(t)
	start := time.Now()
	for _, tt := range []struct {
		name  string
		state func(c *conn)
		after time.Duration
		want  error
	}{
		{"idle", func(*conn) {}, idleTime - time.Second, nil},
		{"idle for too long", func(*conn) {}, idleTime, io.EOF},
		{"within a command", func(c *conn) { c.in, c.began = []byte("*1"), start }, commandTime - time.Second, nil},
		{"too long within a command", func(c *conn) { c.in, c.began = []byte("*1"), start }, commandTime, errSlow},
		{"answers wait", func(c *conn) { c.out, c.blocked = []byte("+OK"), start }, writeTime - time.Second, nil},
		{"answers wait for too long", func(c *conn) { c.out, c.blocked = []byte("+OK"), start }, writeTime, errUnread},
		{"a stop, within a command", func(c *conn) { c.in, c.began = []byte("*1"), start; c.stopping.Store(true); c.grace = start }, time.Second, nil},
		{"a stop, long ago", func(c *conn) { c.in = []byte("*1"); c.stopping.Store(true); c.grace = start }, stopTimeout + time.Second, io.EOF},
		{"a stop, just now", func(c *conn) { c.stopping.Store(true) }, time.Second, nil},
		{"a stop, and its grace is not over", func(c *conn) { c.stopping.Store(true); c.grace = start.Add(2 * time.Second) }, time.Second, nil},
	} {
		c := newConn(s, nil)
		c.seen = start
		tt.state(c)
		testkit.Equal(t, tt.name, c.overdue(s.loop.desk, start.Add(tt.after)), tt.want)
	}
}

// The loop ends with its last connection, and begins anew with the next.
func TestLoopEndsWithItsConnections(t *testing.T) {
	r := newRig(t)
	address, _ := r.serve(t)
	for range 3 {
		p := dial(t, address)
		p.ask(t, "PING")
		p.Close()
		testkit.Eventually(t, "the loop to end", func() bool {
			l := r.server.loop
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.poller == nil
		})
	}
}

// After a defect in one connection's turn, the next one has its own answers.
func TestDefectLeavesNothingToOthers(t *testing.T) {
	r := newRig(t)
	address, _ := r.serve(t)
	s := r.server
	s.commands["time"].run = func(*conn, [][]byte) { panic("defect") }
	s.commands["time"].asks = true // so that the questions before it still wait
	p := dial(t, address)
	p.Write(append(encode("SISMEMBER", "spam", "x@bad.example"), encode("TIME")...))
	if got, _ := io.ReadAll(p.r); string(got) != "-TRYAGAIN blockd: internal error\r\n" {
		t.Errorf("%q", got)
	}
	other := dial(t, address)
	other.wants(t, ":0\r\n", "SISMEMBER", "spam", "x@clear.example")
	other.wants(t, "+PONG\r\n", "PING")
}

// A client whose few octets ask for megabytes is answered in turns, so that others are not kept waiting.
func TestTurnIsBounded(t *testing.T) {
	r := newRig(t)
	s := r.open(t)
	near, far := socketPair(t)
	const n = 500
	near.Write(bytes.Repeat([]byte("COMMAND\r\n"), n))
	c := newConn(s, far)
	var err error
	if c.fd, err = detach(far); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(c.fd)
	answers := make(chan error)
	p := &peer{near, bufio.NewReader(near)}
	go func() {
		var err error
		for range n {
			if _, err = readAnswer(p.r); err != nil {
				break
			}
		}
		answers <- err
	}()
	turns := 0
	for waits := true; waits; turns++ {
		testkit.Must(t, c.turn(s.loop.desk, time.Now()))
		if len(c.out) > (maxSends+1)*flushSize {
			t.Fatalf("%d octets wait", len(c.out))
		}
		waits = c.outward() || turns == 0
	}
	if turns < 4 {
		t.Errorf("%d turns", turns)
	}
	testkit.Should(t, <-answers)
}

// While one client waits for a look-up, others are answered.
func TestLookUpThatWaits(t *testing.T) {
	r := newRig(t)
	r.settings.Waits = true
	address, _ := r.serve(t)
	waiting, release := make(chan struct{}), make(chan struct{})
	r.server.commands["time"].run = func(c *conn, _ [][]byte) {
		close(waiting)
		<-release
		c.ok()
	}
	slow, other := dial(t, address), dial(t, address)
	slow.Write(encode("TIME"))
	<-waiting
	for range 10 {
		other.wants(t, ":1\r\n", "SISMEMBER", "spam", "x@bad.example")
	}
	close(release)
	testkit.Equal(t, "the answer", slow.answer(t), "+OK\r\n")
}
