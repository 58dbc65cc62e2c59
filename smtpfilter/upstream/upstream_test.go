package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/pires/go-proxyproto"

	"blockd/internal/testkit"
	"blockd/smtpfilter/wire"
)

var client = Client{Addr: netip.MustParseAddrPort("192.0.2.7:4321"), Helo: "c.example", ESMTP: true}

func TestOpen(t *testing.T) {
	xclient := "C: XCLIENT NAME=[UNAVAILABLE] PORT=4321 PROTO=ESMTP HELO=c.example ADDR=192.0.2.7"
	tests := []struct {
		name     string
		settings Settings
		script   script
		caps     []string
		refused  string // stage and code
		err      error
	}{
		{name: "SMTP", script: script{"S: 220 hi", "C: EHLO us.example",
			"S: 250-them", "S: 250-PIPELINING", "S: 250 SIZE 1000"}, caps: []string{"PIPELINING", "SIZE 1000"}},
		{name: "LMTP", settings: Settings{Protocol: LMTP}, script: script{"S: 220 hi", "C: LHLO us.example",
			"S: 250-them", "S: 250 8BITMIME"}, caps: []string{"8BITMIME"}},
		{name: "a server without EHLO gets HELO", script: script{"S: 220 hi", "C: EHLO us.example",
			"S: 500 what", "C: HELO us.example", "S: 250 them"}},
		{name: "an LMTP server without LHLO is refused", settings: Settings{Protocol: LMTP},
			script: script{"S: 220 hi", "C: LHLO us.example", "S: 500 what"}, refused: "EHLO 500"},
		{name: "greeting 554", script: script{"S: 554 no"}, refused: "greeting 554"},
		{name: "greeting 421", script: script{"S: 421 later"}, refused: "greeting 421"},
		{name: "greeting of another kind", script: script{"S: 250 hi"}, err: wire.ErrReply},
		{name: "EHLO 421 is not followed by HELO", script: script{"S: 220 hi", "C: EHLO us.example", "S: 421 later"}, refused: "EHLO 421"},
		{name: "HELO refused too", script: script{"S: 220 hi", "C: EHLO us.example",
			"S: 502 what", "C: HELO us.example", "S: 504 no"}, refused: "EHLO 504"},
		{name: "words out of turn", script: script{"R: 220 hi\r\n250 them\r\n"}, err: ErrEarly},
		{name: "XCLIENT", settings: Settings{ClientInfo: "xclient"}, script: script{"S: 220 hi", "C: EHLO us.example",
			"S: 250-them", "S: 250 XCLIENT NAME ADDR PROTO HELO PORT", xclient,
			"S: 220 again", "C: EHLO c.example", "S: 250-them", "S: 250 DSN"}, caps: []string{"DSN"}},
		{name: "XCLIENT with the attributes that upstream knows", settings: Settings{ClientInfo: "xclient"}, script: script{
			"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250 xclient addr NAME",
			"C: XCLIENT NAME=[UNAVAILABLE] ADDR=192.0.2.7",
			"S: 220 again", "C: EHLO c.example", "S: 250 them"}},
		{name: "XCLIENT not announced", settings: Settings{ClientInfo: "xclient"}, script: script{
			"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250 XFORWARD ADDR"}, err: ErrNoXCLIENT},
		{name: "XCLIENT without ADDR is none", settings: Settings{ClientInfo: "xclient"}, script: script{
			"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250 XCLIENT NAME"}, err: ErrNoXCLIENT},
		{name: "XCLIENT behind HELO is none", settings: Settings{ClientInfo: "xclient"}, script: script{
			"S: 220 hi", "C: EHLO us.example", "S: 500 what", "C: HELO us.example", "S: 250 them"}, err: ErrNoXCLIENT},
		{name: "XCLIENT 550", settings: Settings{ClientInfo: "xclient"}, script: script{"S: 220 hi", "C: EHLO us.example",
			"S: 250-them", "S: 250 XCLIENT NAME ADDR PROTO HELO PORT", xclient, "S: 550 no"}, refused: "XCLIENT 550"},
		{name: "XCLIENT answered by 250", settings: Settings{ClientInfo: "xclient"}, script: script{"S: 220 hi", "C: EHLO us.example",
			"S: 250-them", "S: 250 XCLIENT NAME ADDR PROTO HELO PORT", xclient, "S: 250 ok"}, err: wire.ErrReply},
		{name: "a greeting refuses the client that XCLIENT names", settings: Settings{ClientInfo: "xclient"}, script: script{
			"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250 XCLIENT NAME ADDR PROTO HELO PORT", xclient, "S: 554 no"}, refused: "XCLIENT 554"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dial, check := tt.script.pipe(t)
			tt.settings.Hostname, tt.settings.Dial = "us.example", dial
			d := New(tt.settings)
			conn, err := d.Open(t.Context(), client)
			var refused *RefusedError
			switch {
			case tt.refused != "":
				if !errors.As(err, &refused) || fmt.Sprint(refused.Stage, " ", refused.Reply.Code) != tt.refused {
					t.Errorf("Open: %v, want refused at %s", err, tt.refused)
				}
			case !errors.Is(err, tt.err):
				t.Errorf("Open: %v, want %v", err, tt.err)
			case err == nil && !slices.Equal(conn.Caps.Lines, tt.caps):
				t.Errorf("Caps.Lines = %q, want %q", conn.Caps.Lines, tt.caps)
			}
			caps, ok := d.Caps()
			if ok != (err == nil) || ok && !slices.Equal(caps.Lines, tt.caps) {
				t.Errorf("Caps() = %q, %v after Open: %v", caps.Lines, ok, err)
			}
			if conn != nil {
				conn.Close()
			}
			check()
		})
	}
}

func TestProbeRefreshesCapsAndQuits(t *testing.T) {
	dial, check := script{"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250 SIZE 77", "C: QUIT", "S: 221 bye"}.pipe(t)
	d := New(Settings{Dial: dial, Hostname: "us.example"})
	testkit.Must(t, d.Probe(t.Context()))
	check()
	if caps, ok := d.Caps(); !ok || caps.Size != 77 {
		t.Errorf("Caps() = %v, %v, want Size 77", caps, ok)
	}
}

// A probe is no client, and must not look like one that could be trusted.
func TestProbeNamesNoClient(t *testing.T) {
	dial, check := script{"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250 XCLIENT NAME ADDR PROTO HELO PORT",
		"C: XCLIENT NAME=[UNAVAILABLE] PORT=[UNAVAILABLE] PROTO=ESMTP HELO=[UNAVAILABLE] ADDR=[UNAVAILABLE]",
		"S: 220 again", "C: EHLO us.example", "S: 250 them", "C: QUIT", "S: 221 bye"}.pipe(t)
	d := New(Settings{Dial: dial, Hostname: "us.example", ClientInfo: ClientInfoXCLIENT})
	if err := d.Probe(t.Context()); err != nil {
		t.Error(err)
	}
	check()
}

// Whatever upstream does instead of its next step, Open returns an error within
// its time and closes the connection.
func TestOpenSurvivesAnyUpstream(t *testing.T) {
	steps := script{"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250 XCLIENT ADDR",
		"C: XCLIENT ADDR=192.0.2.7", "S: 220 again", "C: EHLO c.example", "S: 250-them", "S: 250 DSN"}
	faults := map[string]script{
		"close":             {"close"},
		"hang":              {"hang"},
		"half a reply":      {"R: 22", "close"},
		"half, then hang":   {"R: 250-the", "hang"},
		"garbage":           {"R: \x00\xff\r\n", "hang"},
		"bare LF":           {"R: 250 x\n", "hang"},
		"1xx":               {"S: 120 x", "hang"},
		"other code within": {"S: 250-x", "S: 220 x", "hang"},
		"endless line":      {"R: 250-" + strings.Repeat("x", 1<<16), "hang"},
		"endless reply":     {"R: " + strings.Repeat("250-x\r\n", 1000), "hang"},
	}
	for i, step := range steps {
		if strings.HasPrefix(step, "C") {
			continue
		}
		for name, fault := range faults {
			t.Run(fmt.Sprintf("%s at step %d", name, i), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					dial, _ := slices.Concat(steps[:i], fault).pipe(t)
					d := New(Settings{Dial: dial, Hostname: "us.example", ClientInfo: ClientInfoXCLIENT})
					begin := time.Now()
					conn, err := d.Open(t.Context(), client)
					if err == nil {
						conn.Close()
						t.Error("Open: no error")
					}
					if took := time.Since(begin); took > ReplyTimeout {
						t.Errorf("Open took %s, want at most %s", took, ReplyTimeout)
					}
				}) // which fails if a goroutine is left
			})
		}
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	steps := script{"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250 DSN"}
	for i := range steps {
		synctest.Test(t, func(t *testing.T) {
			dial, _ := append(slices.Clone(steps[:i]), "hang").pipe(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begin := time.Now()
			_, err := New(Settings{Dial: dial, Hostname: "us.example"}).Open(ctx, client)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
				t.Errorf("hangs at step %d: Open: %v after %s, want DeadlineExceeded after 1s", i, err, time.Since(begin))
			}
		})
	}
}

func TestSessionOutlivesTheContextOfOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, check := script{"S: 220 hi", "C: EHLO us.example", "S: 250 them", "C: NOOP", "S: 250 ok"}.pipe(t)
		ctx, cancel := context.WithCancel(t.Context())
		conn := testkit.Value(New(Settings{Dial: dial, Hostname: "us.example"}).Open(ctx, client))(t)
		cancel()
		<-time.After(24 * time.Hour) // no deadline is left behind either
		if _, err := io.WriteString(conn, "NOOP\r\n"); err != nil {
			t.Error(err)
		}
		if reply, err := wire.ReadReply(conn.R); err != nil || reply.Code != 250 {
			t.Errorf("NOOP: %v, %v, want 250", reply, err)
		}
		conn.Close()
		check()
	})
}

func TestHangingDialEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := func(ctx context.Context) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		begin := time.Now()
		_, err := New(Settings{Dial: dial}).Open(t.Context(), client)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != DialTimeout {
			t.Errorf("Open: %v after %s, want DeadlineExceeded after %s", err, time.Since(begin), DialTimeout)
		}
	})
}

// knowsLocalhost skips a test of names where the machine knows none: a root without
// /etc/hosts and DNS. CI's machine has to know it.
func knowsLocalhost(t *testing.T) {
	t.Helper()
	if _, err := net.LookupHost("localhost"); err != nil {
		testkit.Missing(t, "this machine does not know localhost: "+err.Error())
	}
}

// "localhost" is ::1 first on most machines, where nobody listens here.
func TestEachAddressIsTried(t *testing.T) {
	knowsLocalhost(t)
	address := script{"S: 220 hi", "C: EHLO us.example", "S: 250 them", "C: QUIT", "S: 221 bye", "close"}.listen(t)
	_, port, _ := net.SplitHostPort(address)
	d := New(Settings{Network: "tcp", Address: "localhost:" + port, Hostname: "us.example"})
	if err := d.Probe(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNobodyListens(t *testing.T) {
	for _, s := range []Settings{
		{Network: "tcp", Address: testkit.Refusing(t)},
		{Network: "tcp", Address: "127.0.0.1"},
		{Network: "tcp", Address: "nowhere.invalid:25"},
		{Network: "unix", Address: filepath.Join(t.TempDir(), "none")},
	} {
		if _, err := New(s).Open(t.Context(), client); err == nil || !strings.HasPrefix(err.Error(), "upstream: ") {
			t.Errorf("Open with %q: %v, want an error", s.Address, err)
		}
	}
}

// The binary header is read back by the library's own reader, as upstream would.
func TestPROXYHeader(t *testing.T) {
	tcp4 := &net.TCPAddr{IP: net.IPv4(198, 51, 100, 2), Port: 25}
	tcp6 := &net.TCPAddr{IP: net.ParseIP("2001:db8::25"), Port: 25}
	unix := &net.UnixAddr{Name: "/run/mta", Net: "unix"}
	tests := []struct {
		name         string
		client       string // "" unknown
		upstream     net.Addr
		source, dest string
	}{
		{"IPv4 to IPv4", "192.0.2.7:4321", tcp4, "192.0.2.7:4321", "198.51.100.2:25"},
		{"IPv6 to IPv6", "[2001:db8::7]:4321", tcp6, "[2001:db8::7]:4321", "[2001:db8::25]:25"},
		{"mapped IPv4 is IPv4", "[::ffff:192.0.2.7]:4321", tcp4, "192.0.2.7:4321", "198.51.100.2:25"},
		{"IPv4 to IPv6", "192.0.2.7:4321", tcp6, "192.0.2.7:4321", "0.0.0.0:0"},
		{"IPv6 to IPv4", "[2001:db8::7]:4321", tcp4, "[2001:db8::7]:4321", "[::]:0"},
		{"with a zone", "[fe80::1%eth0]:4321", tcp6, "[fe80::1]:4321", "[2001:db8::25]:25"},
		{"to a unix socket", "192.0.2.7:4321", unix, "192.0.2.7:4321", "0.0.0.0:0"},
		{"nobody", "", tcp4, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var addr netip.AddrPort
			if tt.client != "" {
				addr = netip.MustParseAddrPort(tt.client)
			}
			raw := testkit.Value(proxyHeader(addr, tt.upstream).Format())(t)
			h := testkit.Value(proxyproto.Read(bufio.NewReader(strings.NewReader(string(raw)))))(t)
			if tt.client == "" {
				if !h.Command.IsLocal() {
					t.Errorf("command %v, want LOCAL", h.Command)
				}
				return
			}
			if !h.Command.IsProxy() || h.SourceAddr.String() != tt.source || h.DestinationAddr.String() != tt.dest {
				t.Errorf("header says %v %v to %v, want PROXY %s to %s", h.Command, h.SourceAddr, h.DestinationAddr, tt.source, tt.dest)
			}
		})
	}
}

func TestPROXYNeedsAnAddress(t *testing.T) {
	dial, _ := script{"hang"}.pipe(t)
	d := New(Settings{Dial: dial, Hostname: "us.example", ClientInfo: ClientInfoPROXY})
	if _, err := d.Open(t.Context(), Client{}); !errors.Is(err, ErrNoAddress) {
		t.Errorf("Open for an unknown client: %v, want ErrNoAddress", err)
	}
}

// An LMTP server of another make, over a unix socket.
func TestLMTPServerOnUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lmtp")
	l := testkit.Value(net.Listen("unix", path))(t)
	srv := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return silent{}, nil }))
	srv.LMTP, srv.MaxMessageBytes, srv.Domain = true, 12345, "them.example"
	go srv.Serve(l)
	defer srv.Close()
	d := New(Settings{Protocol: LMTP, Network: "unix", Address: path, Hostname: "us.example"})
	conn := testkit.Value(d.Open(t.Context(), client))(t)
	defer conn.Close()
	if conn.Caps.Size != 12345 || !conn.Caps.Has("PIPELINING") || !conn.Caps.Has("8BITMIME") {
		t.Errorf("Caps = %v", conn.Caps)
	}
}

// silent is a session of a go-smtp server that takes everything.
type silent struct{}

func (silent) Reset()                               {}
func (silent) Logout() error                        { return nil }
func (silent) Mail(string, *smtp.MailOptions) error { return nil }
func (silent) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (silent) Data(r io.Reader) error               { _, err := io.Copy(io.Discard, r); return err }
