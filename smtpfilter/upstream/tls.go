package upstream

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// The values of Settings.TLS. There is no "if offered": an attacker between
// blockd and upstream could take the offer out, and mail would go in the clear
// unnoticed.
const (
	TLSNone     = "none"
	TLSStart    = "starttls" // RFC 3207; without it no mail passes
	TLSImplicit = "implicit" // from the first octet, or after a PROXY header
)

// TLSTimeout is the default of Settings.TLSTimeout.
const TLSTimeout = 10 * time.Second

// Pin is the SHA-256 of a public key, of its SubjectPublicKeyInfo in DER.
type Pin [sha256.Size]byte

// Trust says how upstream must prove its identity.
type Trust struct {
	Name  string         // the name in its certificate; "" = the host of Settings.Address
	Roots *x509.CertPool // authorities for the certificate; nil = the system's
	Pins  []Pin          // if there are any, its key must be one of them, and name and authority do not matter
}

// Errors of Open with TLS. In both cases nothing of the client or
// its mail has been sent.
var (
	// ErrNoSTARTTLS reports an upstream that does not offer it, or an attacker in
	// between who has taken the offer out.
	ErrNoSTARTTLS = errors.New("upstream does not offer STARTTLS, and nothing is sent in the clear")

	// ErrPin reports a server whose key is not pinned.
	ErrPin = errors.New("the server's public key is not one of those pinned")
)

// tlsConfig is made once for all sessions of a Dialer, so that they can resume: a
// full handshake costs each side about a millisecond of CPU.
func tlsConfig(t Trust, address string) *tls.Config {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: t.Name, RootCAs: t.Roots,
		ClientSessionCache: tls.NewLRUClientSessionCache(4), // one server, a few of its addresses
	}
	if c.ServerName == "" {
		c.ServerName, _, _ = net.SplitHostPort(address)
	}
	if len(t.Pins) > 0 {
		pins := slices.Clone(t.Pins)
		c.InsecureSkipVerify = true // VerifyConnection does it, on resumption too
		c.VerifyConnection = func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || !slices.Contains(pins, PinOf(s.PeerCertificates[0])) {
				return ErrPin
			}
			return nil
		}
	}
	return c
}

// secure does the TLS handshake on conn. The buffer must be empty: octets in it came in
// the clear, from an unknown party, and would be taken for upstream's words under TLS
// (CVE-2011-0411).
func (d *Dialer) secure(ctx context.Context, conn *Conn) error {
	if conn.R.Buffered() > 0 {
		return fmt.Errorf("upstream: STARTTLS: %w", ErrEarly)
	}
	if err := conn.SetDeadline(time.Now().Add(d.set.TLSTimeout)); err != nil {
		return fmt.Errorf("upstream: %w", err)
	}
	secured := tls.Client(conn.Conn, d.tls)
	if err := secured.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("upstream: TLS: %w", err)
	}
	conn.Conn = secured
	conn.R.Reset(secured)
	conn.Caps = Caps{}
	return nil
}

// startTLS asks for TLS and starts it. Everything learnt before is void.
func (d *Dialer) startTLS(ctx context.Context, conn *Conn) error {
	if !conn.Caps.Has("STARTTLS") {
		return ErrNoSTARTTLS
	}
	if _, err := d.expect(conn, "STARTTLS", "STARTTLS", 220); err != nil {
		return err
	}
	return d.secure(ctx, conn)
}

// TLS reports whether c is encrypted, and the other end is
// known to be upstream.
func (c *Conn) TLS() bool {
	_, ok := c.Conn.(*tls.Conn)
	return ok
}

// PinOf returns the pin of a server with certificate c.
func PinOf(c *x509.Certificate) Pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// ParseRoots reads authorities from PEM. An unreadable one is an error: left
// out, it would be missed only when upstream changes its certificate.
func ParseRoots(text []byte) (*x509.CertPool, error) {
	pool, n := x509.NewCertPool(), 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", n+1, err)
		}
		pool.AddCert(c)
		n++
	}
	if n == 0 {
		return nil, errors.New("no certificate in PEM")
	}
	return pool, nil
}
