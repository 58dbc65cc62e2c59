package bell

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// SignatureHeader has the time of a try and its signature: "t=1764000000,v1=HEX", where HEX is the HMAC-SHA256, by the secret, of the
// time's digits, a dot, and the octets of the body. A receiver that compares the time with its own clock is safe from an old
// event that somebody sends again.
const SignatureHeader = "X-Blockd-Signature"

// tryTime is how long one try may take, answer included; maxAnswer is what is read of an answer, in octets.
const (
	tryTime   = 10 * time.Second
	maxAnswer = 4 << 10
)

// Settings of a Target.
type Settings struct {
	URL      string
	Secret   []byte         // nil: events are not signed
	Roots    *x509.CertPool // authorities for the certificate; nil = the system's
	Insecure bool           // http:// may lead to another machine
	Version  string         // the program's, for the User-Agent
}

// Target is where events go. It is safe for concurrent use.
type Target struct {
	settings  Settings
	transport *http.Transport
}

// CheckURL says in a line why a URL cannot be rung at.
func CheckURL(text string, insecure bool) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New(`want "https://HOST/PATH"`) // without the text: it may hold a secret
	case u.Scheme == "http" && !insecure && !loopback(u.Hostname()):
		return errors.New("http:// goes to this machine alone, because others could read it; use https://")
	}
	return nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// NewTarget returns the target of s. Nothing is dialled.
func NewTarget(s Settings) (*Target, error) {
	if err := CheckURL(s.URL, s.Insecure); err != nil {
		return nil, err
	}
	return &Target{s, &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: tryTime}).DialContext,
		TLSHandshakeTimeout:    tryTime,
		TLSClientConfig:        &tls.Config{RootCAs: s.Roots, MinVersion: tls.VersionTLS12},
		ResponseHeaderTimeout:  tryTime,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
		DisableKeepAlives:      true, // the next event comes in an hour, or never
		ForceAttemptHTTP2:      true,
	}}, nil
}

// Answer is what came back.
type Answer struct {
	Status string        // "204 No Content"
	Took   time.Duration // until the answer's beginning
	Text   string        // the first line of the body, its end cut off
}

// Ring tells an event, once. It is an error unless the answer is a 2xx: a redirect is not followed. The error has no part of
// the address but its host, because such addresses hold secrets.
func (t *Target) Ring(ctx context.Context, e Event) (a Answer, err error) {
	body, err := json.Marshal(e)
	if err != nil {
		return a, err
	}
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.settings.URL, bytes.NewReader(body))
	if err != nil {
		return a, err // CheckURL has seen the address
	}
	req.GetBody = nil // one try is one request: the next one has a time and a signature of its own
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "blockd/"+t.settings.Version)
	if t.settings.Secret != nil {
		req.Header.Set(SignatureHeader, sign(t.settings.Secret, time.Now(), body))
	}
	client := http.Client{Transport: t.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		if ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer in %v", tryTime)
		}
		return a, fmt.Errorf("%s: %w", req.URL.Host, err)
	}
	defer resp.Body.Close()
	a = Answer{Status: oneLine(cut(resp.Status, 100)), Took: time.Since(began)}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // what cannot be read is missed by nobody
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	a.Text = cut(oneLine(strings.TrimSpace(line)), 200)
	switch {
	case resp.StatusCode/100 == 2:
		return a, nil
	case resp.StatusCode/100 == 3:
		err = fmt.Errorf("%s answers %s, and redirects are not followed: set notify.url to where it leads", req.URL.Host, a.Status)
	case a.Text != "":
		err = fmt.Errorf("%s answers %s: %s", req.URL.Host, a.Status, a.Text)
	default:
		err = fmt.Errorf("%s answers %s", req.URL.Host, a.Status)
	}
	return a, err
}

// sign is the value of SignatureHeader.
func sign(secret []byte, now time.Time, body []byte) string {
	t := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(t + "."))
	mac.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// The bounds of a secret, in octets. Sixteen at random cannot be guessed.
const (
	leastSecret = 16
	mostSecret  = 4 << 10
)

// ReadSecret reads the secret in a file: all of it but blanks and line ends around.
func ReadSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostSecret+1))
	if err != nil {
		return nil, err
	}
	secret := bytes.TrimSpace(text)
	if len(secret) < leastSecret || len(text) > mostSecret {
		return nil, fmt.Errorf("%s: want a secret of %d to %d octets, have %d; openssl rand -hex 32 makes one", path, leastSecret, mostSecret, len(secret))
	}
	return secret, nil
}
