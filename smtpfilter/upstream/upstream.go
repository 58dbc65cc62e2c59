// Package upstream opens sessions with the next mail server: dial, TLS, greeting,
// EHLO or LHLO, the client's identity (XCLIENT, PROXY v2), and the server's extensions.
//
// A session from this package is ready for the client's first MAIL. MAIL and
// everything after it is the caller's. This package reads exactly the
// replies to its own commands, and leaves nothing of the stream elsewhere.
package upstream

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"blockd/smtpfilter/wire"
)

// Protocol is the protocol that upstream speaks.
type Protocol uint8

// The protocols.
const (
	SMTP Protocol = iota
	LMTP          // RFC 2033
)

// The values of Settings.ClientInfo (docs/smtp.md).
const (
	ClientInfoNone    = "none"     // upstream sees blockd's own address
	ClientInfoXCLIENT = "xclient"  // Postfix's XCLIENT command, if upstream announces it
	ClientInfoPROXY   = "proxy-v2" // HAProxy's binary header ahead of everything
)

// Client is what upstream may learn about the client.
type Client struct {
	Addr  netip.AddrPort // zero: unknown
	Helo  string         // as parsed; "" unknown
	ESMTP bool
}

// Conn is one upstream session after its EHLO, for one client session. It has no
// deadline set. The caller of Open ends it, with Close or Release.
type Conn struct {
	net.Conn
	R    *bufio.Reader // replies; nothing of the stream is read elsewhere
	Caps Caps

	readers *sync.Pool // gets R back; nil: no pool
}

// Release is Close for the only reader of R. Afterwards R serves another
// connection, and is nil here.
func (c *Conn) Release() error {
	if c.readers != nil && c.R != nil {
		c.R.Reset(nil)
		c.readers.Put(c.R)
		c.R = nil
	}
	return c.Close()
}

// Settings of a Dialer.
type Settings struct {
	Protocol     Protocol
	Network      string // "tcp", "unix", or "" with Dial
	Address      string
	Dial         func(ctx context.Context) (net.Conn, error) // instead of Network and Address: the embedded mailbox
	Hostname     string                                      // for EHLO
	ClientInfo   string                                      // "none", "xclient", "proxy-v2"; "" is "none"
	TLS          string                                      // "none", "starttls", "implicit"; "" is "none"
	Trust        Trust                                       // with TLS
	DialTimeout  time.Duration                               // 0 = 5 s an address
	TLSTimeout   time.Duration                               // 0 = 10 s for a handshake
	ReplyTimeout time.Duration                               // 0 = 5 min

	SelfTestRecipient string // an address that upstream is not responsible for; "" = one below .invalid
}

// The defaults of Settings.
const (
	DialTimeout  = 5 * time.Second
	ReplyTimeout = 5 * time.Minute // RFC 5321, section 4.5.3.2, for the greeting and MAIL
)

// Dialer opens upstream sessions and remembers what upstream can do.
// It is safe for concurrent use.
type Dialer struct {
	set  Settings
	tls  *tls.Config // nil: none
	caps atomic.Pointer[Caps]
	gate atomic.Pointer[error] // the error that Open returns instead of a session; nil error or pointer: none
	loop atomic.Bool           // CheckListeners has found upstream to be blockd itself

	trouble chan struct{} // holds one: an Open has failed since it was last read

	readers sync.Pool // of *bufio.Reader, of connections that were released
}

// New returns a Dialer. It does not connect.
func New(s Settings) *Dialer {
	s.DialTimeout = cmp.Or(s.DialTimeout, DialTimeout)
	s.TLSTimeout = cmp.Or(s.TLSTimeout, TLSTimeout)
	s.ReplyTimeout = cmp.Or(s.ReplyTimeout, ReplyTimeout)
	d := &Dialer{set: s, trouble: make(chan struct{}, 1)}
	if s.TLS == TLSStart || s.TLS == TLSImplicit {
		d.tls = tlsConfig(s.Trust, s.Address)
	}
	return d
}

// Errors of Open, besides those of the network, of TLS and *RefusedError. None
// is about the client or its mail.
var (
	// ErrNoXCLIENT reports that the client cannot be presented as configured.
	// Without it every client would look like blockd, which
	// upstream may trust to relay.
	ErrNoXCLIENT = errors.New("upstream does not offer XCLIENT to this address")

	// ErrNoAddress reports an unknown client that PROXY v2 would have to name. The
	// header's LOCAL form would again present blockd itself.
	ErrNoAddress = errors.New("no client address for the PROXY header")

	// ErrEarly reports that upstream spoke before it was asked.
	ErrEarly = errors.New("upstream sent more than its reply")
)

// RefusedError is an upstream that answered, but with a refusal.
type RefusedError struct {
	Stage string     // "greeting", "EHLO" (for LHLO and HELO too), "STARTTLS", "XCLIENT", "MAIL", "RCPT"
	Reply wire.Reply // a 4xx or 5xx
	Name  bool       // it minds the name that the client has given itself: about the client, not about blockd
}

func (e *RefusedError) Error() string {
	line, _, _ := bytes.Cut(e.Reply.Raw, []byte("\r\n"))
	return fmt.Sprintf("upstream refused at %s: %q", e.Stage, line)
}

// Open connects, reads the greeting, says EHLO (LHLO), presents the client, and
// returns the session ready for MAIL. A refusal by upstream (a 4xx or 5xx
// greeting, say) is a *RefusedError with its reply.
//
// The end of ctx ends Open, but not the session it has returned.
func (d *Dialer) Open(ctx context.Context, c Client) (*Conn, error) {
	if d.loop.Load() {
		return nil, ErrOwnListener
	}
	if p := d.gate.Load(); p != nil && *p != nil {
		return nil, *p
	}
	if d.set.ClientInfo == ClientInfoPROXY && !c.Addr.IsValid() {
		return nil, ErrNoAddress
	}
	conn, err := d.open(ctx, c)
	// A refusal may be of this client alone; a 421 says that upstream goes away.
	var refused *RefusedError
	if err != nil && ctx.Err() == nil && (!errors.As(err, &refused) || refused.Reply.Code == 421) {
		select {
		case d.trouble <- struct{}{}:
		default: // the failure is noted already
		}
	}
	return conn, err
}

// Trouble tells the watch on upstream that upstream has failed a client. It can be read
// once after one or more calls of Open that got neither a session nor a refusal.
func (d *Dialer) Trouble() <-chan struct{} { return d.trouble }

// Caps returns the last announcement of upstream, from a cache that every Open and
// Probe refreshes. ok is false before the first success.
func (d *Dialer) Caps() (caps Caps, ok bool) {
	if p := d.caps.Load(); p != nil {
		return *p, true
	}
	return Caps{}, false
}

// Probe opens and quits one session to fill the cache. It stands for no client:
// XCLIENT says that the address is unknown, PROXY v2 that the connection is
// blockd's own, as for a health check.
func (d *Dialer) Probe(ctx context.Context) error {
	conn, err := d.open(ctx, Client{ESMTP: true})
	if err != nil {
		return err
	}
	conn.quit()
	return nil
}

// open is Open. The zero Client stands for no client.
func (d *Dialer) open(ctx context.Context, c Client) (conn *Conn, err error) {
	nc, err := d.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	conn = &Conn{Conn: nc, R: d.reader(nc), readers: &d.readers}
	// Closing, not a deadline in the past: that one would race with the
	// deadlines that each command sets.
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer func() {
		if !stop() { // closed in mid-sentence: say why
			err = fmt.Errorf("upstream: %w", ctx.Err())
		}
		if err != nil {
			nc.Close()
			conn = nil
		}
	}()
	if err := d.handshake(ctx, conn, c); err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	d.remember(conn.Caps)
	return conn, nil
}

// reader returns a reader of replies, used or new: it is the largest piece of a session's
// memory.
func (d *Dialer) reader(nc net.Conn) *bufio.Reader {
	if r, ok := d.readers.Get().(*bufio.Reader); ok {
		r.Reset(nc)
		return r
	}
	return bufio.NewReaderSize(nc, wire.MaxReplyLine)
}

// handshake is everything between connect and MAIL. The PROXY header goes before
// TLS, as HAProxy does it; XCLIENT goes inside TLS.
func (d *Dialer) handshake(ctx context.Context, conn *Conn, c Client) error {
	if d.set.ClientInfo == ClientInfoPROXY {
		if err := d.sendPROXY(conn, c.Addr); err != nil {
			return err
		}
	}
	if d.set.TLS == TLSImplicit {
		if err := d.secure(ctx, conn); err != nil {
			return err
		}
	}
	if _, err := d.expect(conn, "greeting", "", 220); err != nil {
		return err
	}
	if d.set.TLS == TLSStart {
		if err := d.hello(conn, d.set.Hostname); err != nil {
			return err
		}
		if err := d.startTLS(ctx, conn); err != nil {
			return err
		}
	}
	if d.set.ClientInfo != ClientInfoXCLIENT {
		return d.present(conn, c)
	}
	if err := d.hello(conn, d.set.Hostname); err != nil {
		return err
	}
	line, ok := xclient(conn.Caps, c)
	if !ok {
		return ErrNoXCLIENT
	}
	// XCLIENT is answered by a new greeting. Everything learnt before is void.
	if _, err := d.expect(conn, "XCLIENT", line, 220); err != nil {
		return err
	}
	return d.present(conn, c)
}

// present is the hello of the client.
func (d *Dialer) present(conn *Conn, c Client) error {
	name, own := d.helloName(c)
	err := d.hello(conn, name)
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		refused.Name = own && mindsName(refused.Reply.Code)
	}
	return err
}

// mindsName reports whether a code may be about the name in EHLO. Others are about the command: 500, 502 and their like say
// that upstream speaks SMTP and not LMTP, or the other way round, or has taken a PROXY header for commands. Such a fault is
// ours, and must not return anybody's mail.
func mindsName(code int) bool {
	switch code {
	case 501, 550, 553, 554:
		return true
	}
	return code/100 == 4 && code != 421
}

// hello says EHLO or LHLO and reads the extensions of upstream. A server that does not
// know EHLO gets HELO (RFC 5321, section 3.2), and then has no extensions.
func (d *Dialer) hello(conn *Conn, name string) error {
	verb := "EHLO"
	if d.set.Protocol == LMTP {
		verb = "LHLO"
	}
	reply, err := d.expect(conn, "EHLO", verb+" "+name, 250)
	var refused *RefusedError
	switch {
	case err == nil:
		conn.Caps = d.parseCaps(reply.Raw)
		conn.Caps.TLS, conn.Caps.Local = conn.TLS(), d.local(conn.RemoteAddr())
		return nil
	case verb == "EHLO" && errors.As(err, &refused) && refused.Reply.Code/100 == 5:
		conn.Caps = Caps{TLS: conn.TLS()}
		_, err = d.expect(conn, "EHLO", "HELO "+name, 250)
	}
	return err
}

// expect sends line, if any, and reads a reply that must have the code want.
func (d *Dialer) expect(conn *Conn, stage, line string, want int) (wire.Reply, error) {
	reply, err := conn.command(line, d.set.ReplyTimeout)
	switch {
	case err != nil:
		return wire.Reply{}, fmt.Errorf("upstream: %s: %w", stage, err)
	case reply.Code == want:
		return reply, nil
	case reply.Code >= 400:
		return wire.Reply{}, &RefusedError{Stage: stage, Reply: reply}
	}
	return wire.Reply{}, fmt.Errorf("upstream: %s: %w: code %d, want %d", stage, wire.ErrReply, reply.Code, want)
}

// command sends line, if any, and reads one reply, both within timeout. Bytes
// that wait after the reply are an error: otherwise they would be
// taken for the answer to the next command.
func (c *Conn) command(line string, timeout time.Duration) (wire.Reply, error) {
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return wire.Reply{}, err
	}
	if line != "" {
		if _, err := c.Write([]byte(line + "\r\n")); err != nil {
			return wire.Reply{}, err
		}
	}
	reply, err := wire.ReadReply(c.R)
	if err == nil && c.R.Buffered() > 0 {
		err = ErrEarly
	}
	return reply, err
}

// quit ends a session of blockd's own politely, but does not wait for long.
func (c *Conn) quit() {
	c.command("QUIT", time.Second) // the connection closes in any case
	c.Close()
}
