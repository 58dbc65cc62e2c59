package session

import (
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"blockd/internal/testkit"
	"blockd/internal/testkit/race"
	"blockd/internal/testkit/script"
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
	if _, err := io.WriteString(conn, line); err != nil {
		b.Fatal(err)
	}
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
