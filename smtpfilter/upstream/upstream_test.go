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
	testkit.Should(t, d.Probe(t.Context()))
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
		testkit.Value(io.WriteString(conn, "NOOP\r\n"))(t)
		testkit.Equal(t, "NOOP", testkit.Value(wire.ReadReply(conn.R))(t).Code, 250)
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
	testkit.Should(t, d.Probe(t.Context()))
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
	testkit.Fails(d.Open(t.Context(), Client{}))(t, "Open for an unknown client", ErrNoAddress)
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

func TestParseCaps(t *testing.T) {
	tests := []struct {
		name  string
		reply []string
		lines []string
		size  int64
	}{
		{"greeting alone", []string{"250 SIZE"}, nil, 0},
		{"in small letters", []string{"250-x", "250 size 10"}, []string{"size 10"}, 10},
		{"SIZE without a limit", []string{"250-x", "250 SIZE"}, []string{"SIZE"}, 0},
		{"SIZE 0", []string{"250-x", "250 SIZE 0"}, []string{"SIZE 0"}, 0},
		{"SIZE of 20 digits", []string{"250-x", "250 SIZE 99999999999999999999"}, []string{"SIZE 99999999999999999999"}, 0},
		{"SIZE that is no number", []string{"250-x", "250 SIZE big"}, []string{"SIZE big"}, 0},
		{"SIZE below zero", []string{"250-x", "250 SIZE -5"}, []string{"SIZE -5"}, 0},
		{"a bare code", []string{"250-x", "250-", "250"}, nil, 0},
		{"lines without a keyword", []string{"250-x", "250- DSN", "250-=DSN", "250--DSN", "250-AUTH=LOGIN", "250-D\u00fcN", "250 DSN"}, []string{"DSN"}, 0},
		{"blanks where there should be one or none", []string{"250-x", "250-DSN ", "250-8BITMIME \t ", "250-AUTH  PLAIN", "250-HELP\ta", "250 SIZE  9 "}, []string{"DSN", "8BITMIME", "AUTH PLAIN", "HELP a", "SIZE 9"}, 9},
		{"parameters out of grammar", []string{"250-x", "250-DSN \u00fc", "250-DSN \x7f", "250 X-Y a=b c"}, []string{"X-Y a=b c"}, 0},
	}
	for _, tt := range tests {
		got := parseCaps([]byte(strings.Join(tt.reply, "\r\n") + "\r\n"))
		if !slices.Equal(got.Lines, tt.lines) || got.Size != tt.size {
			t.Errorf("%s: parseCaps(%q) = %v, want %q, Size %d", tt.name, tt.reply, got, tt.lines, tt.size)
		}
	}
}

func TestHasComparesWholeKeywords(t *testing.T) {
	c := Caps{Lines: []string{"8bitmime", "SIZE 10", "XCLIENT-FOO ADDR"}}
	for keyword, want := range map[string]bool{"8BITMIME": true, "SIZE": true, "XCLIENT": false, "10": false, "": false, "SIZE 10": false} {
		testkit.Equal(t, fmt.Sprintf("Has(%q)", keyword), c.Has(keyword), want)
	}
}

// A line that is kept can be sent on as it is, and its keyword is found.
func FuzzCaps(f *testing.F) {
	f.Add([]byte("250-x\r\n250-SIZE 10\r\n250 DSN\r\n"))
	f.Add([]byte("250-x\r\n250-SIZE 9223372036854775807\r\n250-\t\r\n250\r\n"))
	f.Add([]byte("250-x\r\n250 AUTH=LOGIN PLAIN\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		reply, err := wire.ReadReply(bufio.NewReaderSize(strings.NewReader(string(raw)), wire.MaxReplyLine))
		if err != nil {
			return
		}
		c := parseCaps(reply.Raw)
		if c.Size < 0 {
			t.Errorf("Size = %d", c.Size)
		}
		for _, line := range c.Lines {
			if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) || !slices.ContainsFunc(strings.Split(string(raw), "\r\n"), func(l string) bool {
				return len(l) > 4 && slices.Equal(strings.Fields(l[4:]), strings.Fields(line))
			}) {
				t.Errorf("line %q of %q", line, raw)
			}
			keyword, _, _ := strings.Cut(line, " ")
			if keyword == "" || !c.Has(strings.ToUpper(keyword)) {
				t.Errorf("keyword of %q is not found", line)
			}
		}
	})
}

// TestSend holds what goes out for a message of blockd's own, and what becomes of each recipient.
func TestSend(t *testing.T) {
	hello := script{"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250-SIZE 1000", "S: 250-8BITMIME", "S: 250-SMTPUTF8", "S: 250-CHUNKING", "S: 250 BINARYMIME"}
	plain := script{"S: 220 hi", "C: EHLO us.example", "S: 250 them"}
	lhlo := script{"S: 220 hi", "C: LHLO us.example", "S: 250 them"}
	quit := script{"C: QUIT", "S: 221 bye", "close"}
	text := "Subject: x\r\n\r\n.dot\r\n..\r\n"
	data := script{"C: DATA", "S: 354 go", "C: Subject: x", "C: ", "C: ..dot", "C: ...", "C: ."}
	one := []string{"a@here.example"}
	two := append(slices.Clone(one), "b@here.example")
	tests := []struct {
		name   string
		lmtp   bool
		mail   Mail
		script []script
		codes  []int
		ended  bool
		err    error
	}{
		{"taken", false, Mail{Sender: "s@there.example", Recipients: one},
			[]script{plain, {"C: MAIL FROM:<s@there.example>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok"}, data, {"S: 250 taken"}, quit}, []int{250}, true, nil},
		{"the null sender, and what was announced", false, Mail{Recipients: one, EightBit: true, UTF8: true},
			[]script{hello, {"C: MAIL FROM:<> SIZE=24 BODY=8BITMIME SMTPUTF8", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok"}, data, {"S: 250 taken"}, quit}, []int{250}, true, nil},
		{"one recipient refused", false, Mail{Recipients: two},
			[]script{plain, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 550 5.1.1 unknown", "C: RCPT TO:<b@here.example>", "S: 250 ok"}, data, {"S: 250 taken"}, quit}, []int{550, 250}, true, nil},
		{"all recipients refused", false, Mail{Recipients: two},
			[]script{plain, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 550 5.1.1 unknown", "C: RCPT TO:<b@here.example>", "S: 450 later"}, quit}, []int{550, 450}, false, nil},
		{"refused at its end", false, Mail{Recipients: two},
			[]script{plain, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok", "C: RCPT TO:<b@here.example>", "S: 250 ok"}, data, {"S: 554 spam"}, quit}, []int{554, 554}, true, nil},
		{"DATA refused", false, Mail{Recipients: two},
			[]script{plain, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok", "C: RCPT TO:<b@here.example>", "S: 550 no", "C: DATA", "S: 451 full"}, quit}, []int{451, 550}, false, nil},
		{"by LMTP each recipient by itself", true, Mail{Recipients: two},
			[]script{lhlo, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok", "C: RCPT TO:<b@here.example>", "S: 250 ok"}, data, {"S: 250 taken", "S: 452 4.2.2 full"}, quit}, []int{250, 452}, true, nil},
		{"by LMTP lost between two answers", true, Mail{Recipients: two},
			[]script{lhlo, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok", "C: RCPT TO:<b@here.example>", "S: 250 ok"}, data, {"S: 250 taken", "close"}}, nil, true, ErrUnsure},
		{"lost after its end", false, Mail{Recipients: one},
			[]script{plain, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok"}, data, {"close"}}, nil, true, ErrUnsure},
		{"lost before its end", false, Mail{Recipients: one},
			[]script{plain, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok", "C: DATA", "close"}}, nil, false, errAny},
		{"sender refused", false, Mail{Recipients: one}, []script{plain, {"C: MAIL FROM:<>", "S: 553 no", "close"}}, nil, false, errAny},
		{"it goes away", false, Mail{Recipients: one}, []script{plain, {"C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 421 bye", "close"}}, nil, false, errAny},
		{"UTF-8 is not offered", false, Mail{Recipients: one, UTF8: true}, []script{plain, {"close"}}, nil, false, ErrCannotCarry},
		{"binary is not offered", false, Mail{Recipients: one, Binary: true}, []script{plain, {"close"}}, nil, false, ErrCannotCarry},
		{"binary", false, Mail{Recipients: one, Binary: true},
			[]script{hello, {"C: MAIL FROM:<> SIZE=24 BODY=BINARYMIME", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok", "C: BDAT 24", "C: Subject: x", "C: ", "C: .dot", "C: ..", "S: 250 so far", "C: BDAT 0 LAST", "S: 250 taken"}, quit}, []int{250}, true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := Settings{Network: "tcp", Address: slices.Concat(tt.script...).listen(t), Hostname: "us.example"}
			if tt.lmtp {
				set.Protocol = LMTP
			}
			ended := false
			tt.mail.Message, tt.mail.Size = strings.NewReader(text), int64(len(text))
			tt.mail.End = func() error { ended = true; return nil }
			all, err := New(set).Send(t.Context(), tt.mail)
			switch {
			case tt.err == errAny && (err == nil || errors.Is(err, ErrUnsure)), tt.err != errAny && !errors.Is(err, tt.err):
				t.Errorf("error %v, want %v", err, tt.err)
			case ended != tt.ended:
				t.Errorf("End called: %v, want %v", ended, tt.ended)
			}
			var codes []int
			for i, o := range all {
				codes = append(codes, o.Reply.Code)
				testkit.Equal(t, fmt.Sprintf("outcome %d is of", i), o.Recipient, tt.mail.Recipients[i])
			}
			testkit.Equal(t, "codes", fmt.Sprint(codes), fmt.Sprint(tt.codes))
		})
	}
}

var errAny = errors.New("any but ErrUnsure")

// TestSendKeepsItsEnd holds that upstream does not get what would make the message its own when End fails.
func TestSendKeepsItsEnd(t *testing.T) {
	full := errors.New("no space left on device")
	s := script{"S: 220 hi", "C: EHLO us.example", "S: 250 them", "C: MAIL FROM:<>", "S: 250 ok", "C: RCPT TO:<a@here.example>", "S: 250 ok",
		"C: DATA", "S: 354 go", "C: x: y"}
	d := New(Settings{Network: "tcp", Address: s.listen(t), Hostname: "us.example"})
	_, err := d.Send(t.Context(), Mail{Recipients: []string{"a@here.example"}, Message: strings.NewReader("x: y\r\n"), Size: 6, End: func() error { return full }})
	if !errors.Is(err, full) || errors.Is(err, ErrUnsure) {
		t.Errorf("error %v, want that of the disk alone", err)
	}
}
