package health

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"blockd/internal/testkit"
)

// door is a health door that serves until the test ends.
type door struct {
	address string
	ready   atomic.Bool
}

func open(t *testing.T, locks func()) *door {
	t.Helper()
	l := testkit.Listen(t)
	d := &door{address: l.Addr().String()}
	s := &Server{Ready: d.ready.Load, Locks: locks, Log: slog.New(slog.DiscardHandler)}
	testkit.Running(t, func(ctx context.Context) { testkit.Should(t, s.Serve(ctx, l)) })
	return d
}

// ask returns the status and the whole body of an answer.
func (d *door) ask(t *testing.T, method, path string) (int, string) {
	t.Helper()
	conn := testkit.Value(net.Dial("tcp", d.address))(t)
	defer conn.Close()
	io.WriteString(conn, method+" "+path+" HTTP/1.1\r\nHost: 10.1.2.3:8026\r\n\r\n")
	resp := testkit.Value(http.ReadResponse(bufio.NewReader(conn), nil))(t)
	body := testkit.Value(io.ReadAll(resp.Body))(t)
	if !resp.Close {
		t.Error("the connection stays open after its answer")
	}
	return resp.StatusCode, string(body)
}

func TestAnswersHaveNoContent(t *testing.T) {
	d := open(t, func() {})
	for _, ready := range []bool{false, true, false} {
		d.ready.Store(ready)
		status, body := d.ask(t, "GET", "/readyz")
		if want := map[bool]int{true: 200, false: 503}[ready]; status != want || len(body) > len("not ok\n") {
			t.Errorf("ready %v: %d %q", ready, status, body)
		}
		testkit.Got(d.ask(t, "GET", "/livez"))(t, "/livez", 200, "ok\n")
	}
	for _, path := range []string{"/", "/metrics", "/v1/check", "/readyz/x", "/%2e%2e/readyz?x"} {
		if status, _ := d.ask(t, "GET", path); status == 200 || status == 503 {
			t.Errorf("%s: %d", path, status)
		}
	}
	testkit.Got(d.ask(t, "POST", "/readyz"))(t, "POST", http.StatusMethodNotAllowed, "…")
}

// Connections that ask nothing give way to a probe, and are never more than the bound.
func TestIdleConnectionsKeepNoProbeOut(t *testing.T) {
	d := open(t, func() {})
	d.ready.Store(true)
	var idle []net.Conn
	for range 3 * maxConnections {
		conn := testkit.Value(net.Dial("tcp", d.address))(t)
		defer conn.Close()
		io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: half")
		idle = append(idle, conn)
	}
	testkit.Got(d.ask(t, "GET", "/readyz"))(t, "behind idle connections", 200, "…")
	for i, conn := range idle[:2*maxConnections] { // each had maxConnections after it
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("connection %d is open: %v", i, err)
		}
	}
}

func TestLongHeadersAreRefused(t *testing.T) {
	d := open(t, func() {})
	conn := testkit.Value(net.Dial("tcp", d.address))(t)
	defer conn.Close()
	go io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n")
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	line, _ := bufio.NewReader(conn).ReadString('\n')
	if line != "" && !strings.Contains(line, "431") {
		t.Errorf("%q", line)
	}
}

// A daemon that hangs in a lock is not alive, and probes leave one goroutine behind, however many they are.
func TestAHeldLockIsNotAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held, entered := make(chan struct{}), atomic.Int32{}
		s := &Server{inLocks: make(chan struct{}, 1), Locks: func() { entered.Add(1); <-held }}
		for range 5 {
			if s.alive() {
				t.Error("alive while the lock is held")
			}
		}
		testkit.Equal(t, "goroutines wait for the lock", entered.Load(), 1)
		close(held)
		synctest.Wait()
		if !s.alive() {
			t.Error("not alive after the lock is free")
		}
	})
}
