package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

const (
	// silence is how long a server may say nothing, between two hops or in the
	// middle of a body. In this time it must also send leastOctets of a body: 1.1 kB/s.
	// Otherwise a server that drips would hold one of the few places until the Timeout.
	silence     = time.Minute
	leastOctets = 64 << 10

	// answerTime is for servers that make a list when it is asked for.
	answerTime  = 30 * time.Second
	connectTime = 10 * time.Second // for TCP, and again for TLS

	maxRedirects   = 5
	maxHeaderBytes = 64 << 10
)

// newTransport closes each connection after its answer. An hour later it would be
// dead, and octets that a broken server sends after an answer belong to no request.
func newTransport(roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: connectTime}).DialContext,
		TLSHandshakeTimeout:    connectTime,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		ResponseHeaderTimeout:  answerTime,
		MaxResponseHeaderBytes: maxHeaderBytes,
		DisableCompression:     true,
		DisableKeepAlives:      true,
		ForceAttemptHTTP2:      true, // own settings of TLS and dialling would switch it off
	}
}

// get asks for u and follows redirects. Both its own error and those of the
// body, which must be closed, are an *Error.
func (f *Fetcher) get(ctx context.Context, s *source, u *url.URL, conditions http.Header) (*http.Response, error) {
	ctx, end := context.WithCancelCause(ctx)
	p := &patient{ctx: ctx, end: end}
	p.timer = time.AfterFunc(silence, p.expire)
	req := (&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{
		"User-Agent":      {f.userAgent},
		"Accept":          {"*/*"},
		"Accept-Encoding": {"identity"}, // the file that a checksum is of
	}}).WithContext(ctx)
	maps.Copy(req.Header, conditions)
	client := http.Client{Transport: f.through(s), CheckRedirect: func(next *http.Request, via []*http.Request) error {
		p.timer.Reset(silence)
		next.Header.Del("Referer") // would tell the next host the query of this one
		return s.mayFollow(next.URL, via)
	}}
	resp, err := client.Do(req)
	if err != nil {
		defer p.stop() // not before explain: it ends ctx too
		return nil, explain(ctx, Unreachable, err)
	}
	p.body, resp.Body = resp.Body, p
	return resp, nil
}

// mayFollow reports why a redirect to u is not followed.
func (s *source) mayFollow(u *url.URL, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fault(Redirect, "more than %d redirects", maxRedirects)
	}
	if via[len(via)-1].URL.Scheme == "https" && u.Scheme != "https" {
		return fault(Redirect, "leads from https:// to %s", shown(u))
	}
	if err := s.mayAsk(u); err != nil {
		return fault(Redirect, "leads to %s: %w", shown(u), err)
	}
	return nil
}

// patient is a body whose server may be silent or slow for a while, but not for ever.
type patient struct {
	body   io.ReadCloser
	ctx    context.Context // of the request
	end    context.CancelCauseFunc
	timer  *time.Timer // ends the request
	bytes  int64
	window atomic.Int64  // octets since waited was 0; expire reads it
	waited time.Duration // for the server, without blockd's own time
}

// expire ends the request, because the server's time is over.
func (p *patient) expire() {
	if n := p.window.Load(); n > 0 {
		p.end(fault(Timeout, "the server sent %d of at least %d octets in %s", n, leastOctets, silence))
		return
	}
	p.end(fault(Timeout, "the server was silent for %s", silence))
}

func (p *patient) Read(buf []byte) (int, error) {
	began := time.Now()
	p.timer.Reset(silence - p.waited)
	n, err := p.body.Read(buf)
	p.timer.Stop() // from here on blockd takes the time, not the server
	p.bytes += int64(n)
	if p.waited += time.Since(began); p.window.Add(int64(n)) >= leastOctets {
		p.window.Store(0)
		p.waited = 0
	}
	if err != nil && err != io.EOF {
		err = explain(p.ctx, Truncated, fmt.Errorf("cut after %d octets: %w", p.bytes, err))
	}
	return n, err
}

func (p *patient) Close() error {
	defer p.stop()
	return p.body.Close()
}

func (p *patient) stop() {
	p.timer.Stop()
	p.end(nil)
}
