package milter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/d--j/go-milter"
	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/listener"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/internal/testkit/race"
	"blockd/mail/spool"
	"blockd/policy"
)

// The buffer of a connection that has ended serves the next one, and shows nothing of it.
func TestBufferIsUsedAgain(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector lets pools forget")
	}
	var spare sync.Pool
	connection := func() {
		p := packets{spare: &spare}
		room := p.room()
		testkit.MustEqual(t, "the buffer shows what an earlier connection held", room[0], 0)
		room[0] = 1
		p.release()
	}
	testkit.Equal(t, "allocations of buffers a connection", testing.AllocsPerRun(1000, connection), 0)
}

// Signatures are verified over the octets that came over the wire, whatever line ends the mail
// server passes.
func TestCopyIsTheMessageOnTheWire(t *testing.T) {
	for _, exact := range []bool{true, false} {
		s := &session{Server: &Server{settings: Settings{Copies: spool.New(spool.Settings{})}.withDefaults()}, exact: exact}
		for _, f := range [][2]string{{"From", " a@x.example"}, {"Subject", " one\n\ttwo\r\n three"}, {"X-Empty", ""}, {"X-None", "no blank"}, {"X-Blank ", "  two"}} {
			name, value := f[0], f[1]
			if !exact && value != "" && value[0] == ' ' {
				value = value[1:]
			}
			s.copyField(name, value)
		}
		s.copy([]byte("\r\n"))
		s.copy([]byte("..text\r\n"))
		want := "From: a@x.example\r\nSubject: one\r\n\ttwo\r\n three\r\nX-Empty:\r\nX-None:no blank\r\nX-Blank :  two\r\n\r\n..text\r\n"
		if !exact { // one blank is the best guess
			want = "From: a@x.example\r\nSubject: one\r\n\ttwo\r\n three\r\nX-Empty: \r\nX-None: no blank\r\nX-Blank :  two\r\n\r\n..text\r\n"
		}
		testkit.Equal(t, fmt.Sprintf("exact %v", exact), string(testkit.Value(io.ReadAll(s.copied.text.Reader()))(t)), want)
		s.reset()
		testkit.Equal(t, "octets are not given back", s.settings.Copies.Used(), 0)
	}
}

// bare is a Modifier that has macros and does nothing else.
type bare struct {
	milter.Modifier
	macros map[string]string
}

func (b bare) Get(name milter.MacroName) string { return b.macros[name] }

// TestClearSenderAllocatesNothing makes every call that a clear sender's message makes to this package.
func TestClearSenderAllocatesNothing(t *testing.T) {
	ix, reg, log := indexes.Build(t, indexes.Source(t, "bad", "bad.example\n")), prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	server := New(Settings{SkipAuthenticated: true, Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
		policy.New(func() *index.Index { return ix }, policy.Settings{}, log, reg), reg, log)
	s := &recoverer{next: newSession(server, true, 0, 0), server: server}
	var m milter.Modifier = bare{macros: map[string]string{milter.MacroMailAddr: "friend@there.example"}}
	s.Connect("client.there.example", "tcp4", 25, "192.0.2.1", m)
	if n := testing.AllocsPerRun(1000, func() {
		if resp, err := s.MailFrom("friend@there.example", "SIZE=1000", m); err != nil || resp != milter.RespAccept {
			t.Fatal(resp, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a clear sender, want none", n)
	}
}

// A stop does not wait for a connection without an SMTP session in progress, such as one that
// its mail server keeps for the next client.
func TestSilent(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	settings := Settings{}.withDefaults()
	g := newConnections(settings, newMetrics(prometheus.NewRegistry()), listener.NewCalmLog(slog.New(slog.DiscardHandler)), nil)
	c := &conn{Conn: ours, connections: g, taken: make(chan struct{})}
	defer c.Close()
	if !c.silent() {
		t.Error("before the first packet: not silent")
	}
	for _, step := range []struct {
		name, packet string
		silent       bool
	}{
		{"the negotiation", "O" + string(make([]byte, 12)), false},
		{"a client", "Cclient.example\x00U", false},
		{"its sender", "M<a@there.example>\x00", false},
		{"its end, the connection is kept", "K", true},
		{"macros of the next client", "Dj\x00mail.example\x00", false},
		{"its end", "K", true},
	} {
		packet := append(binary.BigEndian.AppendUint32(nil, uint32(len(step.packet))), step.packet...)
		go theirs.Write(packet)
		if _, err := io.ReadFull(c, make([]byte, len(packet))); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		testkit.Equal(t, fmt.Sprintf("behind %s: silent", step.name), c.silent(), step.silent)
	}
}

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
		testkit.IsError(t, "Read", <-read, nil)
		written := make(chan error, 1)
		go func() {
			_, err := c.Write([]byte{0, 0, 0, 1, 'a'})
			written <- err
		}()
		synctest.Wait()
		c.Conn.SetDeadline(time.Unix(1, 0))
		synctest.Wait()
		testkit.Fails(io.ReadFull(theirs, make([]byte, 5)))(t, "the answer", nil)
		testkit.IsError(t, "Write", <-written, nil)
	})
}
