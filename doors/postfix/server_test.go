package postfix

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// serve runs a server on a loopback listener until the test ends.
func serve(t testing.TB, s *Server) (address string, stop func()) {
	t.Helper()
	l := testkit.Listen(t)
	return l.Addr().String(), testkit.Running(t, func(ctx context.Context) { testkit.Should(t, s.Serve(ctx, l)) })
}

func dial(t *testing.T, address string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c := testkit.Value(net.Dial("tcp", address))(t)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c, bufio.NewReader(c)
}

func exchange(t *testing.T, c net.Conn, r *bufio.Reader, request string) string {
	t.Helper()
	testkit.Value(io.WriteString(c, request))(t)
	got, err := readAction(r)
	if err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	return got
}

func TestServerTakesSoManyConnections(t *testing.T) {
	r := newRig(t, badList())
	r.settings.MaxConnections = 2
	address, _ := serve(t, r.service(Policy))
	c1, r1 := dial(t, address)
	exchange(t, c1, r1, request())
	c2, r2 := dial(t, address)
	exchange(t, c2, r2, request())
	_, r3 := dial(t, address)
	if b, err := r3.ReadByte(); err == nil {
		t.Errorf("a third connection reads %q, want its end", b)
	}
	r.counts(1, "blockd_postfix_connections_refused_total", "policy", "total")
	c1.Close()
	testkit.Eventually(t, "a place", func() bool {
		c, answers := dial(t, address)
		io.WriteString(c, request())
		got, err := readAction(answers)
		return err == nil && got == "action=DUNNO"
	})
	exchange(t, c2, r2, request()) // the others have felt nothing
}

func TestServerTakesPeersOfItsNetworks(t *testing.T) {
	for _, tt := range []struct {
		name, network string
		taken         bool
	}{
		{"loopback by itself", "", true},
		{"the peer's network", "127.0.0.1/32", true},
		{"another network", "192.0.2.0/24", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, badList())
			if tt.network != "" {
				r.settings.AllowFrom = []netip.Prefix{netip.MustParsePrefix(tt.network)}
			}
			address, _ := serve(t, r.service(Policy))
			c, answers := dial(t, address)
			io.WriteString(c, request())
			if got, err := readAction(answers); (err == nil) != tt.taken {
				t.Errorf("%q, %v", got, err)
			}
			refused := r.count("blockd_postfix_connections_refused_total", "policy", "peer")
			testkit.Equal(t, "nobody is refused", refused == 0, tt.taken)
		})
	}
}

// A Unix socket has no address to judge: a program that may open it may ask.
func TestServerOnAUnixSocket(t *testing.T) {
	r := newRig(t, badList())
	r.settings.AllowFrom = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	s := r.service(Socketmap)
	path := filepath.Join(t.TempDir(), "s")
	l := testkit.Value(net.Listen("unix", path))(t)
	stop := testkit.Running(t, func(ctx context.Context) { testkit.Should(t, s.Serve(ctx, l)) })
	c := testkit.Value(net.Dial("unix", path))(t)
	defer c.Close()
	io.WriteString(c, netstring("senders a@there.example"))
	got := make([]byte, len("9:NOTFOUND ,"))
	_, err := io.ReadFull(c, got)
	testkit.Got(err, string(got))(t, "ReadFull", nil, "9:NOTFOUND ,")
	stop()
}

// What was asked before the end is answered; then all is closed.
func TestServerStops(t *testing.T) {
	r := newRig(t, badList())
	address, stop := serve(t, r.service(Policy))
	idle, idleAnswers := dial(t, address)
	exchange(t, idle, idleAnswers, request())
	busy, busyAnswers := dial(t, address)
	half := request("sender=a@bulk.example")
	io.WriteString(busy, half[:100])
	testkit.Eventually(t, "both connections", func() bool { return len(connections(t, r)) > 0 && connections(t, r)[0] == 2 })
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	testkit.Got(idleAnswers.ReadByte())(t, "the idle connection", "…", io.EOF)
	testkit.Begins(t, "the busy one", exchange(t, busy, busyAnswers, half[100:]), "action=550 ")
	testkit.Got(busyAnswers.ReadByte())(t, "behind its answer", "…", io.EOF)
	<-stopped
	testkit.Fails(net.Dial("tcp", address))(t, "behind the end", syscall.ECONNREFUSED)
}

// connections are the values of the gauge.
func connections(t *testing.T, r *rig) (values []float64) {
	t.Helper()
	return testkit.Samples(t, r.registry, "blockd_postfix_connections")
}

// brokenListener fails for a while and then for good.
type brokenListener struct {
	net.Listener
	errs chan error
}

func (l brokenListener) Accept() (net.Conn, error) { return nil, <-l.errs }

func TestServerOutlivesErrorsOfAccept(t *testing.T) {
	r := newRig(t, badList())
	s := r.service(Policy)
	l := testkit.Listen(t)
	errs := make(chan error, 3)
	errs <- errors.New("too many open files")
	errs <- errors.New("too many open files")
	errs <- net.ErrClosed
	testkit.IsError(t, "Serve", s.Serve(t.Context(), brokenListener{l, errs}), net.ErrClosed)
	r.counts(2, "blockd_postfix_accept_errors_total", "policy")
}
