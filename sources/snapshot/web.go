package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Bounds of a web server's answers.
const (
	webDial  = 10 * time.Second
	webQuiet = 30 * time.Second // without an octet
	webHops  = 5                // redirections
)

// Web is a store that a web server serves.
type Web struct {
	base   *url.URL
	client *http.Client
	agent  string
}

// NewWeb returns the store at an http:// or https:// URL, which may have a user name and a password. version goes into User-Agent.
func NewWeb(text, version string) (*Web, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("want https://HOST/FOLDER") // the text may have a password
	}
	dialer := net.Dialer{Timeout: webDial}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return quietConn{c}, nil
		},
		TLSHandshakeTimeout: webQuiet, ResponseHeaderTimeout: webQuiet, MaxResponseHeaderBytes: 64 << 10, MaxIdleConnsPerHost: atOnce, IdleConnTimeout: 90 * time.Second,
		DisableCompression: true, // an object is what was signed
		ForceAttemptHTTP2:  true,
	}
	redirect := func(r *http.Request, via []*http.Request) error {
		if len(via) >= webHops {
			return errors.New("too many redirections")
		}
		if r.URL.Scheme != "https" && via[0].URL.Scheme == "https" {
			return errors.New("a redirection away from https")
		}
		return nil
	}
	return &Web{u, &http.Client{Transport: transport, CheckRedirect: redirect}, "blockd/" + version}, nil
}

// quietConn ends a connection on which nothing comes or goes.
type quietConn struct{ net.Conn }

func (c quietConn) Read(p []byte) (int, error) {
	c.SetReadDeadline(time.Now().Add(webQuiet))
	return c.Conn.Read(p)
}

func (c quietConn) Write(p []byte) (int, error) {
	c.SetWriteDeadline(time.Now().Add(webQuiet))
	return c.Conn.Write(p)
}

func (w *Web) String() string { return w.base.Redacted() }

// Get implements Store.
func (w *Web) Get(ctx context.Context, name string, from int64) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base.JoinPath(name).String(), nil)
	if err != nil {
		return nil, errors.New("the address cannot be asked for")
	}
	r.Header.Set("User-Agent", w.agent)
	if from > 0 {
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	answer, err := w.client.Do(r)
	if inURL := (*url.Error)(nil); errors.As(err, &inURL) {
		err = fmt.Errorf("%s: %w", w.base.Host, inURL.Err) // without the password
	}
	if err != nil {
		return nil, err
	}
	switch code := answer.StatusCode; {
	case from == 0 && code == http.StatusOK:
		return answer.Body, nil
	case from > 0 && code == http.StatusPartialContent && strings.HasPrefix(answer.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", from)):
		return answer.Body, nil
	case from > 0 && code == http.StatusOK: // it knows no ranges
		if _, err := io.CopyN(io.Discard, answer.Body, from); err != nil {
			answer.Body.Close()
			return nil, err
		}
		return answer.Body, nil
	case code == http.StatusNotFound, code == http.StatusGone:
		err = fmt.Errorf("%s: %w", name, ErrMissing)
	default:
		err = fmt.Errorf("%s: %s: %s", w.base.Host, name, http.StatusText(code))
	}
	answer.Body.Close()
	return nil, err
}
