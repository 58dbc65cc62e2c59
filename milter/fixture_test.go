package milter_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/index"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/lists"
	"blockd/milter"
	"blockd/policy"
	"blockd/policy/rule"
)

// setup configures a test's door. Lists are plain text by name; a list whose name begins with
// "allow" allows.
type setup struct {
	lists    map[string]string
	rules    map[string]rule.List
	policies []rule.Recipients
	policy   policy.Settings // of it OnError and Accepted
	settings milter.Settings
	listener net.Listener // nil: one of its own
	unix     bool
	broken   bool // the index cannot be read
}

// door is a Server that serves until the test ends.
type door struct {
	t       testing.TB
	network string
	address string
	server  *milter.Server
	reg     *prometheus.Registry
	log     *testkit.Log
	stop    context.CancelFunc
	ended   chan error
	checker *policy.Checker
	swap    func(*index.Index)
}

func open(t testing.TB, s setup) *door {
	t.Helper()
	ix := build(t, s.lists)
	var mu sync.Mutex
	d := &door{t: t, network: "tcp", reg: prometheus.NewRegistry(), log: &testkit.Log{}, ended: make(chan error, 1)}
	d.swap = func(next *index.Index) {
		mu.Lock()
		defer mu.Unlock()
		ix = next
	}
	live := func() *index.Index {
		mu.Lock()
		defer mu.Unlock()
		return ix
	}
	if s.broken {
		live = func() *index.Index { panic("no index") }
	}
	log := d.log.Logger()
	set := s.policy
	set.RecipientsExempt, set.Lists, set.Policies = []string{"postmaster", "abuse"}, s.rules, s.policies
	d.checker = policy.New(live, set, log, d.reg)
	d.server = milter.New(s.settings, d.checker, d.reg, log)
	where := "127.0.0.1:0"
	if s.unix {
		d.network, where = "unix", filepath.Join(t.TempDir(), "s")
	}
	l := s.listener
	if l == nil {
		var err error
		if l, err = net.Listen(d.network, where); err != nil {
			t.Fatal(err)
		}
		if s.unix {
			testkit.Must(t, os.Chmod(where, 0o660))
		}
	}
	d.address = l.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	go func() { d.ended <- d.server.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		testkit.IsError(t, "Serve", <-d.ended, nil)
		d.ended <- nil
		if t.Failed() {
			t.Logf("log:\n%s", d.log)
		}
	})
	return d
}

// constant returns a generation that never changes.
func constant(ix *index.Index) func() *index.Index { return func() *index.Index { return ix } }

// build compiles lists as the daemon does.
func build(t testing.TB, texts map[string]string) *index.Index {
	t.Helper()
	var sources []index.Source
	for name, text := range texts {
		s := indexes.Source(t, name, text)
		if s.Settings.Format == "spamassassin" {
			s.Exceptions = index.AllExceptions
		}
		switch {
		case strings.HasPrefix(name, "allow"):
			s.Settings.Action = lists.Allow
		case strings.HasPrefix(name, "shadow"):
			s.Mode = index.Shadow
		}
		sources = append(sources, s)
	}
	return indexes.Build(t, sources...)
}

// metric is the value of a counter, of all its labels together or of one.
func (d *door) metric(name string, label ...string) (sum float64) {
	d.t.Helper()
	for _, v := range testkit.Samples(d.t, d.reg, name, label...) {
		sum += v
	}
	return sum
}

// mta speaks the protocol in octets, so that a test controls exactly what is sent.
type mta struct {
	t        testing.TB
	conn     net.Conn
	version  uint32
	actions  uint32 // agreed
	protocol uint32
	macros   string // the list that the filter has asked for
	events   int    // that were answered
}

// What Postfix 3.7 offers.
const (
	offeredActions  = 0x1ff
	offeredProtocol = 0x1fffff
)

// dial connects and says nothing.
func (d *door) dial() *mta {
	d.t.Helper()
	conn := testkit.Value(net.DialTimeout(d.network, d.address, time.Minute))(d.t)
	d.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(2 * time.Minute))
	return &mta{t: d.t, conn: conn}
}

// greet connects, negotiates as Postfix does and says who the client is.
func (d *door) greet(client string) *mta {
	d.t.Helper()
	m := d.dial()
	m.negotiate(6, offeredActions, offeredProtocol)
	m.connect(client)
	m.event('H', "client.there.example\x00")
	return m
}

func packet(command byte, data string) []byte {
	p := binary.BigEndian.AppendUint32(nil, uint32(1+len(data)))
	return append(append(p, command), data...)
}

func (m *mta) send(command byte, data string) {
	m.t.Helper()
	if _, err := m.conn.Write(packet(command, data)); err != nil {
		m.t.Fatalf("send %q: %v", command, err)
	}
}

// receive reads one packet; ok is false when the filter has closed.
func (m *mta) receive() (command byte, data string, ok bool) {
	m.t.Helper()
	var head [5]byte
	if _, err := io.ReadFull(m.conn, head[:]); err != nil {
		return 0, "", false
	}
	rest := make([]byte, binary.BigEndian.Uint32(head[:])-1)
	if _, err := io.ReadFull(m.conn, rest); err != nil {
		m.t.Fatalf("half a packet: %v", err)
	}
	return head[4], string(rest), true
}

func (m *mta) negotiate(version, actions, protocol uint32) {
	m.t.Helper()
	var data []byte
	for _, n := range []uint32{version, actions, protocol} {
		data = binary.BigEndian.AppendUint32(data, n)
	}
	m.send('O', string(data))
	command, answer, ok := m.receive()
	if !ok || command != 'O' || len(answer) < 12 {
		m.t.Fatalf("negotiation answered by %q %q", command, answer)
	}
	m.version = binary.BigEndian.Uint32([]byte(answer))
	m.actions = binary.BigEndian.Uint32([]byte(answer[4:]))
	m.protocol = binary.BigEndian.Uint32([]byte(answer[8:]))
	m.macros = answer[12:]
}

func (m *mta) connect(client string) string {
	m.t.Helper()
	m.macro('C', "j", "mail.here.example", "{client_addr}", client)
	family := "4"
	if strings.Contains(client, ":") {
		family = "6"
	}
	if client == "" {
		return m.event('C', "localhost\x00U")
	}
	return m.event('C', "client.there.example\x00"+family+"\x12\x34"+client+"\x00")
}

func (m *mta) macro(stage byte, pairs ...string) {
	m.t.Helper()
	m.send('D', string(stage)+strings.Join(pairs, "\x00")+"\x00")
}

// silent reports whether the filter has agreed not to answer an event.
func (m *mta) silent(command byte) bool {
	bit := map[byte]uint32{'C': 12, 'H': 13, 'M': 14, 'R': 15, 'T': 16, 'U': 17, 'N': 18, 'L': 7, 'B': 19}
	return m.protocol>>bit[command]&1 != 0 && strings.ContainsRune("CHMRTUNLB", rune(command))
}

// event sends an event if the filter wants it, and returns the answer: a letter, or the text
// of a reply, or "" if the event has no answer.
func (m *mta) event(command byte, data string) string {
	m.t.Helper()
	unwanted := map[byte]uint32{'L': 5, 'N': 6, 'B': 4, 'T': 9, 'U': 8}
	if bit, ok := unwanted[command]; ok && m.protocol>>bit&1 != 0 {
		return ""
	}
	m.send(command, data)
	if m.silent(command) {
		return ""
	}
	answer, text, ok := m.receive()
	if !ok {
		m.t.Fatalf("no answer to %q %q", command, data)
	}
	m.events++
	if answer == 'y' {
		return strings.TrimSuffix(text, "\x00")
	}
	return string(answer)
}

// mail and rcpt send a command as Postfix does. macro is the server's form of the address; "-"
// sends no macro.
func (m *mta) mail(argument, macro string, more ...string) string {
	m.t.Helper()
	if macro != "-" {
		m.macro('M', append([]string{"{mail_addr}", macro}, more...)...)
	}
	return m.event('M', "<"+argument+">\x00SIZE=100\x00")
}

func (m *mta) rcpt(address string) string {
	m.t.Helper()
	m.macro('R', "{rcpt_addr}", address, "{rcpt_mailer}", "local")
	return m.event('R', "<"+address+">\x00")
}

// end sends the header, the body and the end of a message. It returns the modifications and
// the answer.
func (m *mta) end(header ...string) (changes []string, answer string) {
	m.t.Helper()
	data := slices.Clone(header)
	for i, field := range header {
		data[i] = strings.Replace(field, ": ", "\x00", 1) + "\x00"
	}
	return m.message(data, "text\r\n")
}

// message sends the fields of a header, as they are on the wire, a body, and the end.
func (m *mta) message(header []string, body string) (changes []string, answer string) {
	m.t.Helper()
	m.event('T', "")
	for _, field := range header {
		if got := m.event('L', field); got != "" && got != "c" {
			return nil, got
		}
	}
	if got := m.event('N', ""); got != "" && got != "c" {
		return nil, got
	}
	for len(body) > 0 {
		n := min(len(body), 65535)
		m.event('B', body[:n])
		body = body[n:]
	}
	m.send('E', "")
	for {
		command, text, ok := m.receive()
		switch {
		case !ok:
			m.t.Fatal("no answer to the end of the message")
		case command == 'y':
			return changes, strings.TrimSuffix(text, "\x00")
		case strings.ContainsRune("acdrt", rune(command)):
			return changes, string(command)
		}
		changes = append(changes, string(command)+text)
	}
}

// closed reports whether the filter closes the connection without a word.
func (m *mta) closed() bool {
	m.t.Helper()
	n, err := m.conn.Read(make([]byte, 1))
	return n == 0 && err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}
