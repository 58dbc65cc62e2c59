package program

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
)

// TestSlowClientsOfTheDNSDoor has clients hold connections with one octet of a query. Others are
// answered meanwhile, by UDP and by TCP. The clients are closed in time, and at the stop.
func TestSlowClientsOfTheDNSDoor(t *testing.T) {
	n, address := crowd(t), e2e.FreeAddress(t)
	s := e2e.DNSDoor(address)
	s.Raced = true
	s.Lists = strings.Replace(s.Lists, "[dns]\n", fmt.Sprintf("[dns]\nmax_connections = %d\n", 2*n+100), 1)
	d := e2e.Serve(t, s)
	others := func() {
		for range 20 {
			for _, network := range []string{"udp", "tcp"} {
				testkit.MustEqual(t, "by "+network, e2e.Resolve(t, network, address, "bulk.example.dbl.here.example.", dns.TypeA), "127.0.0.2")
			}
		}
	}
	others() // what answers cost is there before the crowd comes
	before := e2e.ResidentKiB(t, d)
	held := hold(t, address, n, "\x00")
	others()
	t.Logf("%s of %d are held", d.Metric("blockd_dnsbl_connections"), n)
	testkit.Eventually(t, "the slow to be closed", func() bool { return d.Metric("blockd_dnsbl_connections") == "0" })
	testkit.Equal(t, "closed as slow", d.Metric(`blockd_dnsbl_connections_closed_total{why="slow"}`), fmt.Sprint(n))
	gone(t, held)
	held = hold(t, address, n, "\x00")
	others()
	stopWithCrowd(t, d, held, before)
}

// TestSlowClientsOfTheRESPDoor has clients wait after HELLO. Half of them send half a command,
// an octet at a time. Others are answered meanwhile. All are gone after the stop.
func TestSlowClientsOfTheRESPDoor(t *testing.T) {
	n, address := crowd(t), e2e.FreeAddress(t)
	d := e2e.Serve(t, e2e.Setup{Raced: true, Files: map[string]string{"spam.txt": "bad.example\n"}, Lists: fmt.Sprintf(
		"[resp]\nlisten = %q\nmax_connections = %d\n[[list]]\nname = \"spam\"\npath = \"spam.txt\"\n", address, 2*n)})
	others := func() {
		for range 20 {
			conn := hold(t, address, 1, "")[0]
			respAnswers(t, conn, "SISMEMBER senders x@bad.example", ":1\r\n")
			conn.Close()
		}
	}
	others()
	before := e2e.ResidentKiB(t, d)
	held := hold(t, address, n, "HELLO 3\r\n")
	for _, conn := range held {
		respAnswers(t, conn, "PING", "+PONG\r\n")
	}
	others()
	t.Logf("%d idle clients hold %.1f KiB each", n, float64(e2e.ResidentKiB(t, d)-before)/float64(n))
	for _, octet := range []byte("*2\r\n$9\r\nSISM") {
		for _, conn := range held[:n/2] {
			conn.Write([]byte{octet}) // on a slow machine the first may have been closed
		}
	}
	others()
	for _, conn := range []net.Conn{held[n/2], held[n-1]} { // the others are served yet
		respAnswers(t, conn, "SISMEMBER spam x@bad.example", ":1\r\n")
	}
	stopWithCrowd(t, d, held, before)
}

// hold opens n connections that have sent a text.
func hold(t *testing.T, address string, n int, text string) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatalf("connection %d: %v", i+1, err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatalf("connection %d: %v", i+1, err)
		}
		conns[i] = conn
	}
	return conns
}

// respAnswers sends a line and reads until its answer, the last of those that are due.
func respAnswers(t *testing.T, conn net.Conn, line, want string) {
	t.Helper()
	fmt.Fprintf(conn, "%s\r\n", line)
	conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	var got []byte
	for buf := make([]byte, 512); !bytes.HasSuffix(got, []byte(want)); {
		k, err := conn.Read(buf)
		if got = append(got, buf[:k]...); err != nil {
			t.Fatalf("%s: %q, %v, want %q", line, got, err, want)
		}
	}
}

// gone waits until the daemon has closed every connection, and closes them here.
func gone(t *testing.T, conns []net.Conn) {
	t.Helper()
	end, buf := time.Now().Add(2*time.Minute), make([]byte, 512)
	for i, conn := range conns {
		conn.SetReadDeadline(end)
		var err error
		for err == nil {
			_, err = conn.Read(buf)
		}
		if os.IsTimeout(err) {
			t.Fatalf("connection %d of %d is open yet", i+1, len(conns))
		}
		conn.Close()
	}
}

// stopWithCrowd stops a daemon while its clients hold their connections, and says what they have
// taken at most of its memory.
func stopWithCrowd(t *testing.T, d *e2e.Daemon, held []net.Conn, before int) {
	t.Helper()
	d.Stop(t)
	gone(t, held)
	usage, ok := d.Cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		t.Fatalf("%T", d.Cmd.ProcessState.SysUsage())
	}
	each := float64(int(usage.Maxrss)-before) / float64(len(held))
	t.Logf("%d slow and idle clients took %.1f KiB each at most, until after the stop", len(held), each)
	if *e2e.Figures && each > 32 {
		t.Errorf("a client takes %.1f KiB, want at most 32", each)
	}
}
