package milter

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/listener"
)

// looked returns a connection whose waits are watched, and its peer's end.
func looked(t *testing.T) (c *conn, theirs net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	g := newConnections(Settings{}.withDefaults(), newMetrics(prometheus.NewRegistry()), listener.NewCalmLog(slog.New(slog.DiscardHandler)), nil)
	c = &conn{Conn: ours, connections: g, taken: make(chan struct{})}
	g.open[c] = struct{}{}
	done := make(chan struct{})
	go g.watch(done)
	t.Cleanup(func() {
		close(done)
		theirs.Close()
		c.Close()
	})
	return c, theirs
}

// A wait ends when its time is over, at most a second late.
func TestWaits(t *testing.T) {
	negotiation := append([]byte{0, 0, 0, 13, 'O'}, make([]byte, 12)...)
	for _, tt := range []struct {
		name string
		say  []byte
		wait func(c *conn) error
		want time.Duration
	}{
		{"for the first packet", nil, func(c *conn) error { _, err := c.Read(make([]byte, 9)); return err }, 10 * time.Second},
		{"for the rest of one", negotiation[:9], func(c *conn) error { _, err := c.Read(make([]byte, 9)); return err }, 30 * time.Second},
		{"for the next one", negotiation, func(c *conn) error { _, err := io.ReadFull(c, make([]byte, 18)); return err }, 2 * time.Hour},
		{"until an answer is read", nil, func(c *conn) error { _, err := c.Write([]byte{0, 0, 0, 1, 'a'}); return err }, 10 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, theirs := looked(t)
				go theirs.Write(tt.say)
				begun := time.Now()
				err := tt.wait(c)
				if took := time.Since(begun); !errors.Is(err, os.ErrDeadlineExceeded) || took < tt.want || took > tt.want+time.Second {
					t.Errorf("%v after %v, want the end after %v", err, took, tt.want)
				}
			})
		})
	}
}

// A deadline may be set just as the next wait begins. That next wait goes on.
func TestNextWaitGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, theirs := looked(t)
		theirs.SetDeadline(time.Now().Add(time.Minute))
		read := make(chan error, 1)
		go func() {
			_, err := c.Read(make([]byte, 64))
			read <- err
		}()
		for range 3 {
			synctest.Wait()
			c.Conn.SetDeadline(time.Unix(1, 0))
		}
		synctest.Wait()
		go theirs.Write(append([]byte{0, 0, 0, 13, 'O'}, make([]byte, 12)...))
		if err := <-read; err != nil {
			t.Errorf("Read: %v", err)
		}
		written := make(chan error, 1)
		go func() {
			_, err := c.Write([]byte{0, 0, 0, 1, 'a'})
			written <- err
		}()
		synctest.Wait()
		c.Conn.SetDeadline(time.Unix(1, 0))
		synctest.Wait()
		if _, err := io.ReadFull(theirs, make([]byte, 5)); err != nil {
			t.Errorf("the answer: %v", err)
		}
		if err := <-written; err != nil {
			t.Errorf("Write: %v", err)
		}
	})
}
