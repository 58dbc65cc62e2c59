package s3

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"blockd/sources/mirror"
)

const (
	dialTimeout = 10 * time.Second

	// maxAnswer is what a list of objects or an error may have, in octets: a thousand keys of 1024 octets, each octet as %XX.
	maxAnswer = 4 << 20

	// maxTags bounds the XML of such an answer, of which a key has some 20. The library takes some 400 octets for one of
	// four.
	maxTags = 100_000

	listHead = 512 // octets, in which a list of objects says that it is one
)

// web is how the store is asked: with bounds for all that comes from it.
type web struct {
	*http.Transport
	authorities string
	load        sync.Once
	fault       error // of authorities
}

func newWeb(where *location, timeout time.Duration) *web {
	dialer := net.Dialer{Timeout: dialTimeout}
	return &web{authorities: where.authorities, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return idle{c, timeout}, nil
		},
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: where.unverified, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    timeout,
		ResponseHeaderTimeout:  timeout,
		MaxResponseHeaderBytes: 64 << 10,
		MaxConnsPerHost:        2,
		DisableCompression:     true, // an object is what was stored
	}}
}

// RoundTrip bounds what is no object: it is held in memory. An answer that is no list of objects is an error, since the library takes any
// XML for one, such as the page of a proxy for a list without objects.
func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	w.load.Do(w.loadAuthorities)
	if w.fault != nil {
		return nil, w.fault
	}
	answer, err := w.Transport.RoundTrip(r)
	if err != nil || answer.StatusCode == http.StatusOK && r.URL.RawQuery == "" {
		return answer, err
	}
	body := bufio.NewReader(&tags{Reader: io.LimitReader(answer.Body, maxAnswer)})
	if answer.StatusCode == http.StatusOK && r.URL.Query().Has("list-type") {
		if head, _ := body.Peek(listHead); !bytes.Contains(head, []byte("<ListBucketResult")) {
			answer.Body.Close()
			return nil, refused("the answer is no list of objects; is this a store?")
		}
	}
	answer.Body = bounded{body, answer.Body}
	return answer, nil
}

func (w *web) loadAuthorities() {
	if w.authorities == "" {
		return
	}
	text, err := os.ReadFile(w.authorities)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = fmt.Errorf("%s has no certificate in PEM", w.authorities)
	}
	if err != nil {
		w.fault = &mirror.Error{Class: mirror.ClassDisk, Err: fmt.Errorf("tls_ca: %w", err)}
	}
	w.TLSClientConfig.RootCAs = pool
}

// tags ends at too many tags.
type tags struct {
	io.Reader
	n int
}

func (t *tags) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	if t.n += bytes.Count(p[:n], []byte("<")); t.n > maxTags {
		return 0, refused("an answer of more than %d tags", maxTags)
	}
	return n, err
}

type bounded struct {
	io.Reader
	io.Closer
}

// idle ends a connection on which nothing has come or gone for so long.
type idle struct {
	net.Conn
	timeout time.Duration
}

func (c idle) Read(p []byte) (int, error) {
	c.SetReadDeadline(time.Now().Add(c.timeout))
	return c.Conn.Read(p)
}

func (c idle) Write(p []byte) (int, error) {
	c.SetWriteDeadline(time.Now().Add(c.timeout))
	return c.Conn.Write(p)
}
