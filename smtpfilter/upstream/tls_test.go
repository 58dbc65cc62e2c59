package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pires/go-proxyproto"

	"blockd/internal/testkit"
	"blockd/internal/testkit/selfsigned"
)

// secret is an upstream that plays one script in the clear and another under
// TLS, and records every octet of the client's that is neither TLS nor in them.
type secret struct {
	clear  script
	config *tls.Config
	under  script
	proxy  bool // a PROXY header goes ahead of all
}

// dial returns a Dial to s, and a check that the client kept to it. It is by real
// sockets: both ends may write at once, and a pipe would hold them up.
func (s secret) dial(t *testing.T) (dial func(context.Context) (net.Conn, error), check func()) {
	l := testkit.Listen(t)
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		done <- s.run(conn)
	}()
	dial = func(context.Context) (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
	return dial, func() {
		t.Helper()
		testkit.Should(t, <-done)
	}
}

func (s secret) run(conn net.Conn) error {
	defer conn.Close()
	r := bufio.NewReader(conn)
	if s.proxy {
		h, err := proxyproto.Read(r)
		if err != nil {
			return err
		}
		if h.SourceAddr.String() != client.Addr.String() {
			return errors.New("PROXY header names " + h.SourceAddr.String())
		}
	}
	if over, err := s.clear.play(conn, r); over || err != nil {
		return err
	}
	secured := tls.Server(behind{r, conn}, s.config)
	if err := secured.Handshake(); err != nil {
		return nil // the client's test says why
	}
	return s.under.run(secured)
}

// behind is a connection of which some octets wait in a reader.
type behind struct {
	r io.Reader
	net.Conn
}

func (b behind) Read(p []byte) (int, error) { return b.r.Read(p) }

var startTLS = script{"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250-SIZE 77", "S: 250 STARTTLS", "C: STARTTLS", "S: 220 go"}

func TestTLSWithUpstream(t *testing.T) {
	cert := selfsigned.New(t, "mail.example", "192.0.2.25")
	config := cert.Config(t)
	hello := script{"C: EHLO us.example", "S: 250-them", "S: 250 8BITMIME"}
	tests := []struct {
		name   string
		set    Settings
		server secret
		want   error // nil: a session under TLS
	}{
		{"STARTTLS, by name", Settings{TLS: TLSStart, Trust: Trust{Name: "mail.example", Roots: cert.Pool()}},
			secret{startTLS, config, hello, false}, nil},
		{"STARTTLS, by the address that is dialled", Settings{TLS: TLSStart, Address: "192.0.2.25:25", Trust: Trust{Roots: cert.Pool()}},
			secret{startTLS, config, hello, false}, nil},
		{"implicit", Settings{TLS: TLSImplicit, Trust: Trust{Name: "mail.example", Roots: cert.Pool()}},
			secret{nil, config, append(script{"S: 220 hi"}, hello...), false}, nil},
		{"a pin needs neither name nor authority", Settings{TLS: TLSStart, Trust: Trust{Name: "other.example", Pins: []Pin{{1}, PinOf(cert.Leaf)}}},
			secret{startTLS, config, hello, false}, nil},
		{"PROXY goes ahead of STARTTLS", Settings{TLS: TLSStart, ClientInfo: ClientInfoPROXY, Trust: Trust{Pins: []Pin{PinOf(cert.Leaf)}}},
			secret{startTLS, config, script{"C: EHLO c.example", "S: 250 them"}, true}, nil},
		{"PROXY goes ahead of implicit TLS", Settings{TLS: TLSImplicit, ClientInfo: ClientInfoPROXY, Trust: Trust{Pins: []Pin{PinOf(cert.Leaf)}}},
			secret{nil, config, script{"S: 220 hi", "C: EHLO c.example", "S: 250 them"}, true}, nil},
		{"XCLIENT is told inside", Settings{TLS: TLSStart, ClientInfo: ClientInfoXCLIENT, Trust: Trust{Pins: []Pin{PinOf(cert.Leaf)}}},
			secret{startTLS, config, script{"C: EHLO us.example", "S: 250-them", "S: 250 XCLIENT ADDR",
				"C: XCLIENT ADDR=" + client.Addr.Addr().String(), "S: 220 again", "C: EHLO c.example", "S: 250 them"}, false}, nil},
		{"XCLIENT that is offered in the clear only does not count", Settings{TLS: TLSStart, ClientInfo: ClientInfoXCLIENT, Trust: Trust{Pins: []Pin{PinOf(cert.Leaf)}}},
			secret{script{"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250-XCLIENT ADDR", "S: 250 STARTTLS", "C: STARTTLS", "S: 220 go"},
				config, hello, false}, ErrNoXCLIENT},
		{"another name", Settings{TLS: TLSStart, Trust: Trust{Name: "other.example", Roots: cert.Pool()}},
			secret{startTLS, config, nil, false}, errors.New("certificate is valid for mail.example, not other.example")},
		{"an authority that nobody knows", Settings{TLS: TLSStart, Trust: Trust{Name: "mail.example", Roots: selfsigned.New(t, "x").Pool()}},
			secret{startTLS, config, nil, false}, errors.New("certificate signed by unknown authority")},
		{"another key than the pinned", Settings{TLS: TLSStart, Trust: Trust{Pins: []Pin{{1}}}},
			secret{startTLS, config, nil, false}, ErrPin},
		{"STARTTLS not offered", Settings{TLS: TLSStart},
			secret{script{"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250 STARTTLSFOO", "hang"}, nil, nil, false}, ErrNoSTARTTLS},
		{"HELO only", Settings{TLS: TLSStart},
			secret{script{"S: 220 hi", "C: EHLO us.example", "S: 500 what", "C: HELO us.example", "S: 250 them", "hang"}, nil, nil, false}, ErrNoSTARTTLS},
		{"STARTTLS refused", Settings{TLS: TLSStart},
			secret{script{"S: 220 hi", "C: EHLO us.example", "S: 250-them", "S: 250 STARTTLS", "C: STARTTLS", "S: 454 not now", "hang"}, nil, nil, false},
			errors.New(`upstream refused at STARTTLS: "454 not now"`)},
		{"octets behind the 220", Settings{TLS: TLSStart, Trust: Trust{Pins: []Pin{PinOf(cert.Leaf)}}},
			secret{append(append(script{}, startTLS[:6]...), "R: 220 go\r\n250 all you want\r\n", "hang"), nil, nil, false}, ErrEarly},
		{"TLS 1.1 is the most", Settings{TLS: TLSStart, Trust: Trust{Pins: []Pin{PinOf(cert.Leaf)}}},
			secret{startTLS, &tls.Config{Certificates: config.Certificates, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, nil, false},
			errors.New("protocol version")},
		{"no TLS behind the 220", Settings{TLS: TLSStart, Trust: Trust{Pins: []Pin{PinOf(cert.Leaf)}}},
			secret{append(append(script{}, startTLS...), "S: 250 I had rather talk", "hang"), nil, nil, false},
			errors.New("upstream: ")}, // ErrEarly, or the handshake's error if it comes later
		{"implicit, and the server speaks in the clear", Settings{TLS: TLSImplicit, Trust: Trust{Pins: []Pin{PinOf(cert.Leaf)}}},
			secret{script{"S: 220 hi", "hang"}, nil, nil, false}, nil},
	}
	tests[len(tests)-1].want = errors.New("upstream: TLS: ")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var check func()
			tt.set.Dial, check = tt.server.dial(t)
			tt.set.Hostname = "us.example"
			d := New(tt.set)
			conn, err := d.Open(t.Context(), client)
			switch {
			case tt.want == nil && err != nil:
				t.Fatalf("Open: %v", err)
			case tt.want == nil:
				caps, _ := d.Caps()
				if !conn.TLS() || !conn.Caps.TLS || !caps.TLS || conn.Caps.Has("STARTTLS") || conn.Caps.Has("SIZE") {
					t.Errorf("session: TLS %v, capabilities %+v, in the cache %+v", conn.TLS(), conn.Caps, caps)
				}
				conn.Close()
			case err == nil || !errors.Is(err, tt.want) && !strings.Contains(err.Error(), tt.want.Error()):
				t.Errorf("Open: %v, want %v", err, tt.want)
			}
			check()
		})
	}
}

// Probe and SelfTest go the same way: neither says a word in the clear.
func TestProbeAndSelfTestUseTLS(t *testing.T) {
	cert := selfsigned.New(t, "127.0.0.1")
	set := Settings{Hostname: "us.example", TLS: TLSStart, Trust: Trust{Roots: cert.Pool()}, Network: "tcp"}
	for name, tt := range map[string]struct {
		under script
		call  func(d *Dialer) error
	}{
		"probe": {script{"C: EHLO us.example", "S: 250 them", "C: QUIT", "S: 221 bye", "close"},
			func(d *Dialer) error { return d.Probe(t.Context()) }},
		"self-test": {script{"C: EHLO us.example", "S: 250 them", "C: " + selfTestSender, "S: 250 ok", "C: RCPT TO:<" + selfTestRecipient + ">",
			"S: 550 5.7.1 no", "C: RSET", "S: 250 ok", "C: QUIT", "S: 221 bye", "close"},
			func(d *Dialer) error { return d.SelfTest(t.Context()) }},
	} {
		t.Run(name, func(t *testing.T) {
			l := testkit.Listen(t)
			defer l.Close()
			done := make(chan error, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					done <- err
					return
				}
				done <- secret{startTLS, cert.Config(t), tt.under, false}.run(conn)
			}()
			s := set
			s.Address = l.Addr().String()
			testkit.Should(t, tt.call(New(s)))
			testkit.Should(t, <-done)
		})
	}
}

func TestTLSHandshakeHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, check := append(append(script{}, startTLS...), "hang").pipe(t)
		d := New(Settings{Hostname: "us.example", TLS: TLSStart, Trust: Trust{Name: "mail.example"}, Dial: dial})
		began := time.Now()
		_, err := d.Open(t.Context(), client)
		if took := time.Since(began); err == nil || took != TLSTimeout {
			t.Errorf("Open: %v after %s, want an error after %s", err, took, TLSTimeout)
		}
		check()
	})
}

func TestParseRoots(t *testing.T) {
	a, b := selfsigned.New(t, "a"), selfsigned.New(t, "b")
	tests := []struct {
		name string
		text string
		want string // "" = two certificates
	}{
		{"two, a key and words", "words\n" + string(a.CertPEM) + string(a.KeyPEM) + string(b.CertPEM), ""},
		{"none", "words\n", "no certificate in PEM"},
		{"a key alone", string(a.KeyPEM), "no certificate in PEM"},
		{"the second is no certificate", string(a.CertPEM) + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "certificate 2: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pool, err := ParseRoots([]byte(tt.text))
			if tt.want == "" {
				want := a.Pool()
				want.AddCert(b.Leaf)
				if err != nil || !pool.Equal(want) {
					t.Errorf("ParseRoots: %v, %v", pool, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("ParseRoots: %v, want %q", err, tt.want)
			}
		})
	}
}
