package server

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/internal/testkit/race"
	"blockd/mail/mailbox"
	"blockd/policy"
	"blockd/smtpfilter/session"
	"blockd/smtpfilter/upstream"
)

var soak = flag.Bool("soak", false, "hold as many slow and idle clients as an attacker would")

// crowd is how many clients a test holds: few in a quick run, most with -soak.
func crowd(t *testing.T, few, most int) int {
	t.Helper()
	n := few
	if *soak {
		n = most
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < uint64(2*n+200) {
		t.Skipf("%d descriptors are too few for %d connections: ulimit -n", limit.Cur, n)
	}
	return n
}

// hold opens n connections that have read their greeting.
func hold(t *testing.T, address string, n int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatalf("connection %d: %v", i+1, err)
		}
		t.Cleanup(func() { conn.Close() })
		conns[i] = conn
	}
	var line [64]byte
	for i, conn := range conns {
		conn.SetReadDeadline(time.Now().Add(60 * time.Second))
		if k, err := conn.Read(line[:]); err != nil || string(line[:4]) != "220 " {
			t.Fatalf("greeting %d: %q, %v", i+1, line[:k], err)
		}
	}
	return conns
}

// deliveries sends n messages, one after the other, each on a connection of its
// own, and returns how long the one in the middle has taken.
func deliveries(t *testing.T, address string, n int) time.Duration {
	t.Helper()
	took := make([]time.Duration, n)
	for i := range took {
		began := time.Now()
		c := testkit.Value(smtp.Dial(address))(t)
		if err := c.SendMail("a@b.example", []string{"bob@here.example"}, strings.NewReader("Subject: hi\r\n\r\nhello\r\n")); err != nil {
			t.Fatalf("message %d: %v", i+1, err)
		}
		c.Close()
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[n/2]
}

// Thousands of clients that send an octet now and then, in commands and in
// messages, do not keep one that means mail from its turn.
func TestSlowClientsDoNotDelayOthers(t *testing.T) {
	n := crowd(t, 400, 5000)
	every := time.Second
	if *soak {
		every = 10 * time.Second
	}
	r, _ := filterWith(t, Settings{MaxConnections: 2 * n, MaxPerClient: 2 * n}, session.Limits{})
	alone := deliveries(t, r.address, 40)
	slow := hold(t, r.address, n)
	for i, conn := range slow {
		if i%10 == 0 { // these are within a message
			io.WriteString(conn, "HELO c\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<bob@here.example>\r\nDATA\r\n")
		}
	}
	stop := make(chan struct{})
	var dripping sync.WaitGroup
	dripping.Go(func() {
		for {
			for _, conn := range slow {
				conn.Write([]byte("N"))
				select {
				case <-time.After(every / time.Duration(n)):
				case <-stop:
					return
				}
			}
		}
	})
	beside := deliveries(t, r.address, 40)
	close(stop)
	dripping.Wait()
	t.Logf("a message takes %s alone, and %s beside %d slow clients", alone, beside, n)
	// A queue behind all of them would be as long as the test waits. Where other tests
	// have the cores, a message may take a second that does not lie at its neighbours.
	limit := 5*alone + 2*time.Second
	if *soak {
		limit = 5*alone + 100*time.Millisecond
	}
	if beside > limit {
		t.Errorf("a message takes %s beside %d slow clients, alone %s", beside, n, alone)
	}
	if got := r.clients.open(); got < n {
		t.Errorf("%d of %d slow clients are there: the test has not tested", got, n)
	}
}

// TestIdleConnectionIsSmall holds clients that say nothing behind EHLO, over real
// sockets, and counts both ends' memory of this process. The kernel's own is not
// in it.
func TestIdleConnectionIsSmall(t *testing.T) {
	if !testkit.Alone(t) {
		return
	}
	n := crowd(t, 1000, 9900)
	r, _ := filterWith(t, Settings{MaxConnections: 2 * n, MaxPerClient: 2 * n}, session.Limits{})
	deliveries(t, r.address, 10)
	memory := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	before := memory()
	conns := hold(t, r.address, n)
	buf := make([]byte, 1024)
	for _, conn := range conns {
		fmt.Fprint(conn, "EHLO client.example\r\n")
		testkit.Value(conn.Read(buf))(t)
	}
	each := (memory() - before) / n
	t.Logf("%d idle connections, %d octets each, the client's end included", n, each)
	if each <= 0 || each > 16<<10 && !race.Enabled {
		t.Errorf("an idle connection takes %d octets, want at most 16 KiB", each)
	}
	deliveries(t, r.address, 10)
}

// filter is the whole SMTP filter with a list that holds bad.example, in front
// of a Maildir.
func filter(t *testing.T) (r *running, maildir string) {
	t.Helper()
	return filterWith(t, Settings{}, session.Limits{})
}

// filterWith is filter with other settings than the usual ones.
func filterWith(t *testing.T, set Settings, limits session.Limits) (r *running, maildir string) {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	ix := indexes.Build(t, indexes.Source(t, "bad", "bad.example\n"))

	maildir = filepath.Join(dir, "mail")
	box := testkit.Value(mailbox.New(mailbox.Settings{Dir: maildir, Hostname: "us.example"}, log))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		testkit.IsError(t, "the mailbox outlives the filter", box.Shutdown(ctx), nil)
	})
	up := upstream.New(upstream.Settings{Dial: box.Dial, Hostname: "us.example"})
	r = prepare(set, up)
	reg := prometheus.NewRegistry()
	checker := policy.New(func() *index.Index { return ix }, policy.Settings{RecipientsExempt: []string{"postmaster"}}, log, reg)
	settings := session.Settings{Hostname: "us.example", ClientInfo: upstream.ClientInfoXCLIENT, Limits: limits, Crowded: r.Crowded}
	if set.TLS != nil {
		settings.StartTLS = r.StartTLS
	}
	r.serve(t, session.New(settings, up, checker, session.NewMetrics(reg), log).Run)
	return r, maildir
}

// mails returns the files of a Maildir, each without what delivery puts on top.
func mails(t *testing.T, maildir string) (texts []string) {
	t.Helper()
	paths := testkit.Value(filepath.Glob(filepath.Join(maildir, "new", "*")))(t)
	for _, path := range paths {
		text := testkit.Read(t, path)
		for bytes.HasPrefix(text, []byte("Return-Path: ")) || bytes.HasPrefix(text, []byte("Delivered-To: ")) {
			_, text, _ = bytes.Cut(text, []byte("\r\n"))
		}
		texts = append(texts, string(text))
	}
	return texts
}

// The connections of all clients are counted down to zero, however they end.
func TestCountsAreExactAfterAStorm(t *testing.T) {
	r, maildir := filter(t)
	var wg sync.WaitGroup
	const clients = 40 // below the limit of one client, 50
	for i := range clients {
		wg.Go(func() {
			conn, err := net.Dial("tcp", r.address)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(time.Minute))
			switch i % 4 {
			case 0: // says nothing
			case 1: // leaves in mid-message
				io.WriteString(conn, "EHLO c\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\nhalf")
				io.CopyN(io.Discard, conn, 50)
			case 2: // resets
				io.WriteString(conn, "EHLO c\r\n")
				conn.(*net.TCPConn).SetLinger(0)
			case 3: // sends a message
				if err := smtp.NewClient(conn).SendMail("a@b.example", []string{"c@d.example"}, strings.NewReader("x\r\n")); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
			}
		})
	}
	wg.Wait()
	testkit.Eventually(t, "all places are free", func() bool { return r.clients.open() == 0 })
	r.clients.mu.Lock()
	testkit.Equal(t, "clients are still known", len(r.clients.each), 0)
	r.clients.mu.Unlock()
	testkit.Equal(t, "messages", len(mails(t, maildir)), clients/4)
}
