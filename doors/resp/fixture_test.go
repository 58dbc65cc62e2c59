package resp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/lists"
	"blockd/policy"
	stores "blockd/policy/ask"
)

// rig is a server over four lists: spam, access, which has a reason, friends, whose exceptions reach all lists, and
// trial, which is in shadow mode.
type rig struct {
	settings Settings
	live     atomic.Pointer[index.Index] // nil: a defect of ours
	log      testkit.Log
	registry *prometheus.Registry
	stores   *stores.Sets
	server   *Server
}

func newRig(t testing.TB) *rig {
	spam := indexes.Source(t, "spam", "bad.example\npromo@bulk.example\noffers@\n192.0.2.0/24\n203.0.113.9\n2001:db8::/32\n")
	access := indexes.Source(t, "access", "new.example REJECT seen today\n")
	friends := indexes.Source(t, "friends", "good@bad.example\n192.0.2.7\n")
	friends.Settings.Action, friends.Exceptions = lists.Allow, index.AllExceptions
	trial := indexes.Source(t, "trial", "trial.example\n")
	trial.Mode = index.Shadow
	r := &rig{registry: prometheus.NewRegistry(), settings: Settings{Lists: []string{"spam", "access", "friends", "trial"},
		Required: []string{"spam", "access", "friends", "trial"}}}
	r.live.Store(indexes.Build(t, spam, access, friends, trial))
	r.settings.Serving = r.live.Load
	return r
}

// open makes the server.
func (r *rig) open(t testing.TB) *Server {
	t.Helper()
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	checker := policy.New(func() *index.Index {
		ix := r.live.Load()
		if ix == nil {
			panic("no generation")
		}
		return ix
	}, policy.Settings{Stores: r.stores}, log, r.registry)
	s := testkit.Value(New(r.settings, checker, NewMetrics(r.registry), log))(t)
	s.id = strings.Repeat("0", 40)
	r.server = s
	return s
}

// serve runs the server on a loopback listener until the test ends.
func (r *rig) serve(t testing.TB) (address string, stop func()) {
	t.Helper()
	if r.server == nil {
		r.open(t)
	}
	l := testkit.Listen(t)
	return l.Addr().String(), testkit.Running(t, func(ctx context.Context) { testkit.Should(t, r.server.Serve(ctx, l)) })
}

// count is the value of a metric, by the values of its labels.
func (r *rig) count(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	sum := 0.0
	for _, v := range testkit.Samples(t, r.registry, name, labels...) {
		sum += v
	}
	return sum
}

// counts wants a value of a metric.
func (r *rig) counts(t testing.TB, want float64, name string, labels ...string) {
	t.Helper()
	testkit.Equal(t, fmt.Sprintf("%s %q", name, labels), r.count(t, name, labels...), want)
}

// peer is a client of a test.
type peer struct {
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, address string) *peer {
	t.Helper()
	c := testkit.Value(net.Dial("tcp", address))(t)
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	return &peer{c, bufio.NewReader(c)}
}

// encode is a command as clients send it.
func encode(words ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.Bytes()
}

// ask sends a command and returns the whole answer, octet for octet.
func (p *peer) ask(t testing.TB, words ...string) string {
	t.Helper()
	testkit.Value(p.Write(encode(words...)))(t)
	return p.answer(t)
}

// wants sends a command, and wants an answer.
func (p *peer) wants(t testing.TB, want string, words ...string) {
	t.Helper()
	testkit.Equal(t, fmt.Sprintf("%q is answered", words), p.ask(t, words...), want)
}

func (p *peer) answer(t testing.TB) string {
	t.Helper()
	text, err := readAnswer(p.r)
	if err != nil {
		t.Fatalf("%q, %v", text, err)
	}
	return text
}

// readAnswer reads one answer of RESP 2 or 3.
func readAnswer(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil || len(line) < 3 {
		return line, err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch line[0] {
	case '$', '=':
		if n < 0 {
			return line, nil
		}
		text := make([]byte, n+2)
		_, err = io.ReadFull(r, text)
		return line + string(text), err
	case '%':
		n *= 2
		fallthrough
	case '*', '~':
		for range n {
			part, err := readAnswer(r)
			line += part
			if err != nil {
				return line, err
			}
		}
	}
	return line, nil
}

// session runs a session without a listener, which change may change first. done is closed at its end.
func (r *rig) session(t testing.TB, change func(*conn)) (p *peer, c *conn, done <-chan struct{}) {
	t.Helper()
	near, far := socketPair(t)
	c = newConn(r.server, far)
	if change != nil {
		change(c)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run()
	}()
	return &peer{near, bufio.NewReader(near)}, c, ended
}

// socketPair is a connection without a listener.
func socketPair(t testing.TB) (near, far net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	testkit.Must(t, err)
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
		t.Cleanup(func() { ends[i].Close() })
	}
	ends[0].SetDeadline(time.Now().Add(2 * time.Minute))
	return ends[0], ends[1]
}
