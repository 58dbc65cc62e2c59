package ldap

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	ber "github.com/go-asn1-ber/asn1-ber"
	"github.com/go-ldap/ldap/v3"

	"blockd/sources/mirror"
)

const (
	dialTimeout = 10 * time.Second

	// maxAnswer is what one answer may have, in octets: a page, that is some 32 KiB an object.
	maxAnswer = 16 << 20

	// maxElements bounds the parts of an answer. The library takes some 200 octets for one, which may have come as two.
	maxElements = 1 << 19
)

// link is a connection on which the account has been accepted.
type link struct {
	*ldap.Conn
	wire *wire
}

// wire bounds what an answer may take, in time and in octets, and knows why it ended.
type wire struct {
	net.Conn
	left     atomic.Int64
	elements atomic.Int64
	end      atomic.Value // of ended
}

// counted counts the parts of what comes, inside of TLS.
type counted struct {
	net.Conn
	wire        *wire
	skip        int  // octets of a value that are still to come
	state       byte // of a part's head: what its next octet is
	constructed bool // this part has parts
	long        byte // octets of its length that are still to come
	length      uint32
}

const (
	inTag = byte(iota)
	inLongTag
	inLength
	inLongLength
)

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if skip := min(c.skip, len(rest)); skip > 0 {
			rest, c.skip = rest[skip:], c.skip-skip
			continue
		}
		c.next(rest[0])
		rest = rest[1:]
	}
	if c.wire.elements.Load() > maxElements {
		return 0, c.wire.note(errTooMany)
	}
	return n, err
}

// next takes in an octet of a part's head (X.690, sections 8.1.2 and 8.1.3).
func (c *counted) next(octet byte) {
	switch c.state {
	case inTag:
		c.wire.elements.Add(1)
		c.constructed, c.length, c.state = octet&0x20 != 0, 0, inLength
		if octet&0x1f == 0x1f {
			c.state = inLongTag
		}
		return
	case inLongTag:
		if octet&0x80 == 0 {
			c.state = inLength
		}
		return
	case inLength:
		if octet > 0x80 {
			c.long, c.state = octet&0x7f, inLongLength
			return
		}
		c.length = uint32(octet & 0x7f)
	case inLongLength:
		c.length = c.length<<8 | uint32(octet)
		if c.long--; c.long > 0 {
			return
		}
	}
	if c.state = inTag; !c.constructed {
		c.skip = int(c.length)
	}
}

type ended struct{ error }

var (
	errTooLong = errors.New("an answer of more than 16 MiB")
	errTooMany = errors.New("an answer of more than 524288 parts")
)

// begin is called before each question.
func (w *wire) begin(timeout time.Duration) {
	w.left.Store(maxAnswer)
	w.elements.Store(0)
	w.SetDeadline(time.Now().Add(timeout))
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if w.left.Add(-int64(n)) < 0 {
		n, err = 0, errTooLong
	}
	return n, w.note(err)
}

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	return n, w.note(err)
}

func (w *wire) note(err error) error {
	if err != nil {
		w.end.CompareAndSwap(nil, ended{err})
	}
	return err
}

// why is the first error of the connection, nil if it has none.
func (w *wire) why() error {
	e, _ := w.end.Load().(ended)
	return e.error
}

// connected returns the connection, which is made if need be.
func (s *Source) connected(ctx context.Context) (*link, error) {
	if s.link != nil && !s.link.IsClosing() {
		return s.link, nil
	}
	s.hangUp()
	var err error
	s.link, err = s.connect(ctx)
	return s.link, err
}

// hangUp ends the connection at once.
func (s *Source) hangUp() {
	if s.link != nil {
		s.link.wire.Conn.Close()
		s.link.Close()
		s.link = nil
	}
}

func (s *Source) connect(ctx context.Context) (*link, error) {
	where := s.where
	config, err := where.tlsConfig()
	if err != nil {
		return nil, &mirror.Error{Class: mirror.ClassDisk, Err: err}
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, where.network, where.address)
	if err != nil {
		return nil, s.fault(ctx, nil, "connect", err)
	}
	w := &wire{Conn: conn}
	w.begin(s.timeout)
	defer context.AfterFunc(ctx, func() { w.Conn.Close() })() // conn becomes another one below
	conn = w
	if where.startTLS {
		if err := startTLS(w); err != nil {
			w.Conn.Close()
			return nil, s.fault(ctx, w, "StartTLS", err)
		}
	}
	if where.tls || where.startTLS {
		secured := tls.Client(w, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			w.Conn.Close()
			return nil, s.fault(ctx, w, map[bool]string{true: "TLS", false: "StartTLS"}[where.tls], err)
		}
		conn = secured
	}
	l := &link{ldap.NewConn(&counted{Conn: conn, wire: w}, where.tls || where.startTLS), w}
	l.Start()
	if where.bindDN != "" {
		w.begin(s.timeout)
		if err := l.Bind(where.bindDN, where.password); err != nil {
			w.Conn.Close()
			l.Close()
			return nil, s.fault(ctx, w, "bind", err)
		}
	}
	return l, nil
}

// startTLS asks for TLS (RFC 4511, section 4.14). The library does it, too, and then reads through a connection that
// it makes itself, inside of which nothing can be counted.
func startTLS(w *wire) error {
	const oid, id = "1.3.6.1.4.1.1466.20037", 1
	name := append([]byte{0x80, byte(len(oid))}, oid...)
	request := append([]byte{0x77, byte(len(name))}, name...)
	message := append([]byte{0x02, 1, id}, request...)
	if _, err := w.Write(append([]byte{0x30, byte(len(message))}, message...)); err != nil {
		return err
	}
	answer, err := ber.ReadPacket(io.LimitReader(&counted{Conn: w, wire: w}, 64<<10))
	if err != nil {
		return err
	}
	return ldap.GetLDAPError(answer)
}

// tlsConfig is how the server proves itself.
func (w *location) tlsConfig() (*tls.Config, error) {
	c := &tls.Config{ServerName: w.host, InsecureSkipVerify: w.unverified, MinVersion: tls.VersionTLS12}
	if w.authorities == "" {
		return c, nil
	}
	text, err := os.ReadFile(w.authorities)
	if err != nil {
		return nil, fmt.Errorf("tls_ca: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("tls_ca: %s has no certificate in PEM", w.authorities)
	}
	return c, nil
}

// search gives every object that a filter lets through to use, page after page. It returns nil only after the server has ended the last page
// with success.
func (s *Source) search(ctx context.Context, filter string, attributes []string, use func(*ldap.Entry) error) error {
	paging := ldap.NewControlPaging(pageSize)
	s.referrals = 0
	for empty := 0; ; {
		found, err := s.ofServer(ctx, filter, attributes, paging, use)
		if err != nil {
			s.hangUp() // a search that was given up is still open there
			return err
		}
		if len(paging.Cookie) == 0 {
			return nil
		}
		if found > 0 {
			empty = 0
		} else if empty++; empty == emptyPages {
			s.hangUp()
			return &mirror.Error{Class: mirror.ClassRefused, Err: fmt.Errorf("%d pages without an object in a row", empty)}
		}
	}
}

// page is the first page of a search, of one object.
func (s *Source) page(ctx context.Context, filter string, attributes []string, use func(*ldap.Entry) error) error {
	_, err := s.ofServer(ctx, filter, attributes, ldap.NewControlPaging(1), use)
	s.hangUp()
	return err
}

// ofServer asks for a page, and gives its objects to use. The cookie of paging is that of the next page then, nil after the last.
func (s *Source) ofServer(ctx context.Context, filter string, attributes []string, paging *ldap.ControlPaging, use func(*ldap.Entry) error) (int, error) {
	w := s.where
	l, err := s.connected(ctx)
	if err != nil {
		return 0, err
	}
	l.wire.begin(s.timeout)
	defer context.AfterFunc(ctx, func() { l.wire.Conn.Close() })()
	page, err := l.Search(&ldap.SearchRequest{BaseDN: w.base, Scope: w.scope, DerefAliases: ldap.NeverDerefAliases, Filter: filter, Attributes: attributes,
		Controls: []ldap.Control{paging}})
	if err != nil {
		return 0, s.fault(ctx, l.wire, "search", err)
	}
	l.wire.SetDeadline(time.Time{}) // for the time until the next question
	s.referrals += len(page.Referrals)
	for _, e := range page.Entries {
		if name := partly(e); name != "" {
			return 0, &mirror.Error{Class: mirror.ClassTruncated, Err: fmt.Errorf("the server gives only some values of an attribute, as %s", mirror.Said(name, w.password))}
		}
		if err := use(e); err != nil {
			return 0, err
		}
	}
	var cookie []byte
	if c, ok := ldap.FindControl(page.Controls, ldap.ControlTypePaging).(*ldap.ControlPaging); ok {
		cookie = c.Cookie
	}
	paging.SetCookie(cookie)
	return len(page.Entries), nil
}

// rootDSE is what the server says of itself; nil if this account may not read that.
func (s *Source) rootDSE(ctx context.Context) (*ldap.Entry, error) {
	l, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	l.wire.begin(s.timeout)
	defer context.AfterFunc(ctx, func() { l.wire.Conn.Close() })()
	found, err := l.Search(&ldap.SearchRequest{Scope: ldap.ScopeBaseObject, Filter: "(objectClass=*)", Attributes: []string{"supportedControl"}})
	if err != nil && l.wire.why() != nil {
		defer s.hangUp()
		return nil, s.fault(ctx, l.wire, "search", err)
	}
	if err != nil || len(found.Entries) == 0 {
		return nil, nil
	}
	return found.Entries[0], nil
}

// isEnd tells that the server has ended the connection.
func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
