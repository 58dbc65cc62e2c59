package session

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"math"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/internal/testkit/script"
	"blockd/mail/spool"
	"blockd/policy"
	"blockd/smtpfilter/upstream"
	"blockd/smtpfilter/wire"
)

// TestIdleSessionIsSmall holds the memory of a session that waits for a command,
// with its stack and without a connection to upstream: the goal is 16 KiB.
func TestIdleSessionIsSmall(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's own memory would be measured")
	}
	if !testkit.Alone(t) {
		return
	}
	checker := listChecker(t)
	r := newRig(&script.Server{}, checker, Settings{})
	const sessions = 1000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	clients := make([]net.Conn, sessions)
	ended := make([]<-chan struct{}, sessions)
	hello := make([]byte, 512)
	for i := range clients {
		clients[i], ended[i] = r.start(t.Context())
		clients[i].Read(hello)
		io.WriteString(clients[i], "EHLO client.example\r\n")
		clients[i].Read(hello)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	heap := (int(after.HeapAlloc) - int(before.HeapAlloc)) / sessions
	stack := (int(after.StackInuse) - int(before.StackInuse)) / sessions
	t.Logf("idle session: %d octets of heap, %d of stack", heap, stack)
	if total := heap + stack; total <= 0 || total > 16<<10 {
		t.Errorf("idle session takes %d octets, want at most 16 KiB", total)
	}
	for i := range clients {
		clients[i].Close()
		<-ended[i]
	}
}

// loopback is a session with a rig over real sockets, past EHLO.
func loopback(b *testing.B, serve func(net.Conn), checker *policy.Checker) (client net.Conn, in *bufio.Reader) {
	b.Helper()
	client, err := net.Dial("tcp", front(b, serve, checker))
	testkit.Must(b, err)
	b.Cleanup(func() { client.Close() })
	in = bufio.NewReader(client)
	exchange(b, client, in, "")
	exchange(b, client, in, "EHLO client.example\r\n")
	return client, in
}

// front is where a rig over real sockets listens.
func front(b *testing.B, serve func(net.Conn), checker *policy.Checker) (address string) {
	b.Helper()
	listen := func(serve func(net.Conn)) string {
		l := testkit.Listen(b)
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go serve(conn)
			}
		}()
		return l.Addr().String()
	}
	next := listen(serve)
	r := newRig(&script.Server{}, checker, Settings{})
	r.logTo(discardLog())
	r.relay.upstream = upstream.New(upstream.Settings{Network: "tcp", Address: next, Hostname: hostname})
	r.relay.settings.Limits.Session = 24 * time.Hour
	limits := &r.relay.settings.Limits
	limits.JunkCommands, limits.SoftErrors, limits.HardErrors = math.MaxInt, math.MaxInt, math.MaxInt
	return listen(func(conn net.Conn) { r.relay.Run(context.Background(), conn, testClient) })
}

// exchange sends a command and reads its reply.
func exchange(b *testing.B, conn net.Conn, in *bufio.Reader, line string) {
	testkit.Value(io.WriteString(conn, line))(b)
	for {
		reply, err := in.ReadString('\n')
		if err != nil || reply[0] > '3' {
			b.Fatalf("%q: %q, %v", line, reply, err)
		}
		if reply[3] == ' ' {
			return
		}
	}
}

// BenchmarkSession is a message of 1 KB on a connection of its own. What it allocates
// is that of client and upstream too.
func BenchmarkSession(b *testing.B) {
	address := front(b, sink, listChecker(b))
	body := "Subject: x\r\n\r\n" + strings.Repeat(strings.Repeat("x", 70)+"\r\n", 14) + ".\r\n"
	lines := []string{"", "EHLO client.example\r\n", "MAIL FROM:<a@good.example>\r\n", "RCPT TO:<bob@here.example>\r\n", "DATA\r\n", body, "QUIT\r\n"}
	in := bufio.NewReaderSize(nil, 512)
	b.ReportAllocs()
	for b.Loop() {
		client := testkit.Value(net.Dial("tcp", address))(b)
		in.Reset(client)
		for _, line := range lines {
			exchange(b, client, in, line)
		}
		client.Close()
	}
}

// BenchmarkData is a message of 10 MB; its upstream does next to nothing.
func BenchmarkData(b *testing.B) {
	client, in := loopback(b, sink, listChecker(b))
	body := []byte("Subject: x\r\n\r\n" + strings.Repeat(strings.Repeat("x", 70)+"\r\n", 10<<20/72) + ".\r\n")
	b.SetBytes(int64(len(body)))
	var before, after unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &before)
	for b.Loop() {
		exchange(b, client, in, "MAIL FROM:<a@good.example>\r\n")
		exchange(b, client, in, "RCPT TO:<bob@here.example>\r\n")
		exchange(b, client, in, "DATA\r\n")
		if _, err := client.Write(body); err != nil {
			b.Fatal(err)
		}
		exchange(b, client, in, "")
	}
	unix.Getrusage(unix.RUSAGE_SELF, &after)
	// Client and upstream live in this process too, so this is an upper bound.
	cpu := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	b.ReportMetric(float64(cpu.Microseconds())/1000/(float64(b.N)*float64(len(body))/(1<<20)), "cpu-ms/MB")
}

// sink is an upstream that accepts everything and keeps nothing.
func sink(conn net.Conn) {
	defer conn.Close()
	r := wire.NewReader(conn)
	io.WriteString(conn, "220 sink\r\n")
	for {
		line, err := r.Line()
		if err != nil {
			return
		}
		if string(line) != "DATA" {
			io.WriteString(conn, "250 ok\r\n")
			continue
		}
		io.WriteString(conn, "354 go\r\n")
		r.Widen(make([]byte, 256<<10))
		var data wire.Data
		for done := false; !done; {
			if r.Fill() != nil {
				return
			}
			var n int
			n, done, _ = data.Scan(r.Buffered())
			r.Discard(n)
		}
		r.Narrow()
		io.WriteString(conn, "250 ok\r\n")
	}
}

// TestLargeMessagesTakeLittleMemory keeps many large messages waiting for their dot at
// the same time: a thousand of 10 MiB with -soak. Their copies are on the disk.
func TestLargeMessagesTakeLittleMemory(t *testing.T) {
	clients, size := 100, 2<<20
	switch {
	case *soak:
		clients, size = 1000, 10<<20
	case testing.Short():
		clients = 20
	}
	p := newPost(t, "x.example", "x.example", "dkim")
	dir := t.TempDir()
	store := spool.New(spool.Settings{Dir: dir})
	r := newRig(&script.Server{}, p.checker, Settings{Copies: store, MaxCopy: 20 << 20, Limits: Limits{DataBlock: time.Hour, DataStart: time.Hour}})
	r.logTo(discardLog())
	var upstreams sync.WaitGroup
	r.relay.upstream = upstream.New(upstream.Settings{Hostname: hostname, Dial: func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		upstreams.Go(func() { swallow(far) })
		return near, nil
	}})
	piece := bytes.Repeat([]byte(strings.Repeat("x", 70)+"\r\n"), 455) // 32,760 octets
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	all := make([]*client, clients)
	each := func(do func(*client)) {
		var wg sync.WaitGroup
		turns := make(chan struct{}, 32)
		for _, c := range all {
			turns <- struct{}{}
			wg.Go(func() { do(c); <-turns })
		}
		wg.Wait()
	}
	for i := range all {
		all[i] = connect(t, r, context.Background())
		all[i].hello()
		all[i].mail("a@x.example")
		all[i].want("DATA", "354")
		all[i].send("From: a@x.example\r\n\r\n") // the session has the buffer that every DATA has
	}
	before := heap()
	each(func(c *client) {
		for sent := 0; sent < size; sent += len(piece) {
			c.conn.Write(piece)
		}
	})
	grown, used := heap()-before, store.Used()
	t.Logf("%d messages of %d MiB: %.1f MiB of heap, %.1f MiB of them lent to copies", clients, size>>20, float64(grown)/(1<<20), float64(used)/(1<<20))
	if grown > 64<<20 || used > 32<<20 {
		t.Errorf("%d octets of heap for copies, want at most 64 MiB", grown)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) > 0 {
		t.Errorf("files with names: %q", names)
	}
	each(func(c *client) {
		c.send(".\r\n")
		testkit.Begins(t, "answer", c.reply(), "554 5.7.1 <a@x.example>")
		c.close()
	})
	upstreams.Wait()
	testkit.Equal(t, "octets of copies are left", store.Used(), 0)
}

// swallow is an upstream that keeps nothing of a message, and takes none.
func swallow(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 4096)
	io.WriteString(conn, "220 ready\r\n")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if strings.HasPrefix(line, "DATA") {
			io.WriteString(conn, "354 go\r\n")
			io.Copy(io.Discard, r)
			return
		}
		io.WriteString(conn, "250 ok\r\n")
	}
}

// TestBuffersOfASessionAreEmptyForTheNext: neither what a session has left unread and
// unwritten, nor what was done with it, is found by the one that gets its buffers.
func TestBuffersOfASessionAreEmptyForTheNext(t *testing.T) {
	r := newRig(&script.Server{}, listChecker(t), Settings{}).relay
	for _, secret := range []string{"secret\r\n", strings.Repeat("secret", 500)} { // with the own buffer and with a larger one
		near, far := net.Pipe()
		go func() {
			io.WriteString(far, secret)
			far.Close()
		}()
		e := r.takeBuffers(near)
		for e.in.Fill() == nil {
		}
		e.out.WriteString("secret")
		r.returnBuffers(e)
		for i := range 2 {
			next := e
			if i > 0 {
				next = r.takeBuffers(near) // the pool may give another
			}
			if n := len(next.in.Buffered()); n > 0 || next.out.Buffered() > 0 {
				t.Errorf("%d octets to be read and %d to be written of the session before", n, next.out.Buffered())
			}
			if bytes.Contains(next.out.AvailableBuffer()[:replyBuffer], []byte("secret")) {
				t.Error("the writer still holds what was not written")
			}
		}
	}

	near, far := net.Pipe()
	defer far.Close()
	l := r.takeUpstream(&upstream.Conn{Conn: near, R: bufio.NewReader(near)})
	l.out, l.tx, l.quit = append(l.out, "MAIL FROM:<secret@good.example>\r\n"...), true, true
	r.returnUpstream(l)
	for _, next := range []*upstreamConn{l, r.takeUpstream(nil)} {
		if len(next.out) > 0 || next.tx || next.quit || next.Conn != nil {
			t.Errorf("connection of the session before: %+v", next)
		}
		if bytes.Contains(next.out[:cap(next.out)], []byte("secret")) {
			t.Error("the connection still holds a command")
		}
	}
	if _, err := near.Write(nil); err == nil {
		t.Error("a connection that was left is open")
	}
}

// TestOctetsBehindTheEndReachNoOtherSession: what a client sends after QUIT, and
// upstream after its last reply, is gone with the session.
func TestOctetsBehindTheEndReachNoOtherSession(t *testing.T) {
	server := &script.Server{}
	server.On("QUIT", "221 bye\r\n250 not asked for\r\n250 nor that")
	r := newRig(server, listChecker(t), Settings{})
	for range 20 {
		c := connect(t, r, t.Context())
		c.hello()
		c.envelope()
		c.want("hello\r\n.", "250")
		c.send("QUIT\r\nMAIL FROM:<stray@good.example>\r\n")
		c.want("", "221")
		c.close()
	}
	testkit.Equal(t, "messages", len(server.Messages()), 20)
	if strings.Contains(strings.Join(server.Log(), "\n"), "stray") {
		t.Error("a command behind QUIT was run")
	}
}
