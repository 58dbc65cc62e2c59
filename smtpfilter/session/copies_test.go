package session

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/internal/testkit/script"
	"blockd/mail/spool"
	"blockd/smtpfilter/upstream"
)

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
		if got := c.reply(); !strings.HasPrefix(got, "554 5.7.1 <a@x.example>") {
			t.Errorf("answer %q", got)
		}
		c.close()
	})
	upstreams.Wait()
	if store.Used() != 0 {
		t.Errorf("%d octets of copies are left", store.Used())
	}
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
