// Package certificate keeps a TLS certificate as its files are: a renewed pair
// serves without a restart, and one that cannot be used never takes the place of
// one that can.
package certificate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// Every is how often Watch looks at the files. Certificates are renewed weeks
// before they end, so nothing needs the system's notice of a change, which
// network file systems and swapped symbolic links do not give.
const Every = 30 * time.Second

// maxFile bounds a PEM file: a chain is some 10 KiB.
const maxFile = 1 << 20

// Pair is a certificate with its chain and key, of two PEM files, or of one that
// is named twice. It is safe for concurrent use.
type Pair struct {
	cert, key string
	log       *slog.Logger
	now       atomic.Pointer[tls.Certificate]
	failing   atomic.Bool
	asked     chan struct{} // of Now

	seen [sha256.Size]byte // of both files, when they were last tried; belongs to Open, then to Watch
}

// Open reads the pair. An error says why it cannot serve. One that has expired
// can, with a warning: most servers that send mail do not look, and to take none
// would be worse.
func Open(cert, key string, log *slog.Logger) (*Pair, error) {
	p := &Pair{cert: cert, key: key, log: log, asked: make(chan struct{}, 1)}
	c, sum, err := p.read()
	if err != nil {
		return nil, err
	}
	if expired(c) {
		log.Warn("certificate expired", slog.String("file", cert), slog.Time("valid_until", c.Leaf.NotAfter))
	}
	p.now.Store(c)
	p.seen = sum
	return p, nil
}

// Get returns the pair that serves now; it fits tls.Config.GetCertificate.
func (p *Pair) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.now.Load(), nil }

// NotAfter is when the pair that serves now ends to be valid.
func (p *Pair) NotAfter() time.Time { return p.now.Load().Leaf.NotAfter }

// Failing reports whether the files, as they are, could not be taken up: an older
// pair serves.
func (p *Pair) Failing() bool { return p.failing.Load() }

// Watch looks at the files every now and then until ctx ends, and takes up what
// has changed. Call it once.
func (p *Pair) Watch(ctx context.Context) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.asked:
		}
		p.look()
	}
}

// Now asks Watch for a look at once. It does not wait.
func (p *Pair) Now() {
	select {
	case p.asked <- struct{}{}:
	default: // one is asked for already
	}
}

// look takes the pair up if it is another one and can serve. A renewal that
// writes two files is seen half done now and then: the next look sees all of it.
func (p *Pair) look() {
	c, sum, err := p.read()
	if err == nil && expired(c) && !expired(p.now.Load()) {
		err = fmt.Errorf("%s: %w on %s", p.cert, ErrExpired, c.Leaf.NotAfter.Format(time.DateOnly))
	}
	if sum == p.seen && (err != nil) == p.Failing() {
		return
	}
	p.seen = sum
	p.failing.Store(err != nil)
	if err != nil {
		p.log.Error("certificate not taken up, the one before serves on", slog.String("file", p.cert),
			slog.Any("error", err), slog.Time("valid_until", p.NotAfter()))
		return
	}
	p.now.Store(c)
	p.log.Info("certificate taken up", slog.String("file", p.cert),
		slog.Any("names", c.Leaf.DNSNames), slog.Time("valid_until", c.Leaf.NotAfter))
}

func expired(c *tls.Certificate) bool { return time.Now().After(c.Leaf.NotAfter) }

// read reads both files. sum is theirs, zero where one could not be
// read.
func (p *Pair) read() (c *tls.Certificate, sum [sha256.Size]byte, err error) {
	certPEM, err := readFile(p.cert)
	if err != nil {
		return nil, sum, err
	}
	keyPEM, err := readFile(p.key)
	if err != nil {
		return nil, sum, err
	}
	sum = sha256.Sum256(bytes.Join([][]byte{certPEM, keyPEM}, []byte{0}))
	pair, err := tls.X509KeyPair(certPEM, keyPEM) // refuses a key of another certificate
	if err != nil {
		return nil, sum, fmt.Errorf("%s and %s: %w", p.cert, p.key, err)
	}
	if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
		return nil, sum, fmt.Errorf("%s: %w", p.cert, err)
	}
	return &pair, sum, nil
}

// ErrExpired reports a certificate that is not valid any more.
var ErrExpired = errors.New("certificate expired")

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: over %d MiB: this is no certificate", path, maxFile>>20)
	}
	return text, err
}
