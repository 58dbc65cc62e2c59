// Package control is how commands reach a daemon: they ask it, or, where none runs, serve its operations to themselves, over its files.
package control

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
	"blockd/internal/term"
)

// tokenVariable names the environment variable with a token for the daemon.
const tokenVariable = "BLOCKD_TOKEN"

// TokenHint is what helps where the daemon does not say how it is.
const TokenHint = "put a token into " + tokenVariable + ", or ask as a user who may open its socket"

// ErrNoDaemon is wrapped by the error of a question that nobody has heard: whoever asks may do it alone.
var ErrNoDaemon = errors.New("no daemon answers")

// maxAnswer bounds an answer, in octets; that of 4,096 files and all overlaps has 12 MiB.
const maxAnswer = 64 << 20

// Ask asks the daemon of this configuration and decodes its answer: by its Unix
// socket if it is there and this user may, or else at [http] listen, with the token of
// the environment, of http.token_file or of the file that the first start has made. A token
// goes only to who shows the certificate of http.tls_cert or is the daemon's user.
func Ask(ctx context.Context, c config.Config, method, path string, body, answer any) error {
	q, err := newQuestion(method, path, body)
	if err != nil {
		return err
	}
	resp, err := q.ask(ctx, c)
	if err != nil {
		return err
	}
	return decodeAnswer(c, resp, answer)
}

// question is one for the daemon's HTTP door.
type question struct {
	method, path string
	body         []byte // nil = none
	header       http.Header
}

// newQuestion is a question with a body in JSON; nil = none.
func newQuestion(method, path string, body any) (q question, err error) {
	q = question{method: method, path: path, header: http.Header{}}
	if body != nil {
		q.header.Set("Content-Type", "application/json")
		q.body, err = json.Marshal(body)
	}
	return q, err
}

// decodeAnswer takes an answer, or what the daemon says against a question.
func decodeAnswer(c config.Config, resp *http.Response, answer any) error {
	defer resp.Body.Close()
	text := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode != http.StatusOK {
		return refusal(c, resp, text)
	}
	if err := text.Decode(answer); err != nil {
		return fmt.Errorf("no answer of blockd: %w", err)
	}
	return nil
}

// Text is the daemon's answer as it is, whatever its status.
func Text(ctx context.Context, c config.Config, path string) (status int, body string, err error) {
	resp, err := question{method: http.MethodGet, path: path}.ask(ctx, c)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, string(text), err
}

// ask asks the daemon.
func (q question) ask(ctx context.Context, c config.Config) (*http.Response, error) {
	socket := c.HTTPSocket()
	conn, socketErr := dialSocket(ctx, socket)
	if conn != nil {
		return q.send(ctx, "http://localhost", term.Path(socket), &http.Transport{DialContext: only(conn)}, nil)
	}
	if c.HTTP.Listen == "" {
		return nil, fmt.Errorf("%w at %s: %w", ErrNoDaemon, term.Path(socket), socketErr)
	}
	address := Reachable(c.HTTP.Listen)
	transport := &http.Transport{}
	return q.send(ctx, c.HTTP.Scheme()+"://"+address, address, transport, func(req *http.Request) (err error) {
		if err := authorize(c, req); err != nil {
			return err
		}
		if transport.TLSClientConfig, err = trust(c.HTTP); err == nil && transport.TLSClientConfig == nil && req.Header.Get("Authorization") != "" {
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				return dialDaemon(ctx, c, network, address)
			}
		}
		return err
	})
}

// over asks at the other end of a connection, which is this process.
func (q question) over(ctx context.Context, conn net.Conn) (*http.Response, error) {
	return q.send(ctx, "http://"+aloneHost, "this process", &http.Transport{DialContext: only(conn)}, nil)
}

func only(conn net.Conn) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) { return conn, nil }
}

// send sends the question to a server, which people are told of as at. prepare may change the request; nil = it is as it is.
func (q question) send(ctx context.Context, server, at string, transport *http.Transport, prepare func(*http.Request) error) (*http.Response, error) {
	var reached atomic.Bool // a server that is ours: before that nobody has heard the question
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { reached.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, q.method, server+q.path, bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, q.header)
	if prepare != nil {
		if err := prepare(req); err != nil {
			return nil, err
		}
	}
	// The token goes to that address and nowhere else: neither to a proxy that the
	// environment names, nor where a redirect leads.
	transport.DisableKeepAlives = true
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	switch {
	case err == nil:
		return resp, nil
	case server == "http://"+aloneHost:
		return nil, Cause(err)
	case !reached.Load():
		return nil, fmt.Errorf("%w at %s: %w", ErrNoDaemon, at, Cause(err))
	}
	return nil, fmt.Errorf("the daemon at %s has not answered, and may have done it: %w", at, Cause(err))
}

func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	if path == "" {
		return nil, errors.New(`http.socket is "none"`)
	}
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, Cause(err)
	}
	return conn, nil
}

// dialDaemon connects to the daemon's address, if it is the daemon that listens there.
func dialDaemon(ctx context.Context, c config.Config, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := proveListener(c, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// authorize puts the token into a request, if there is one.
func authorize(c config.Config, req *http.Request) error {
	token := os.Getenv(tokenVariable)
	if file := cmp.Or(c.HTTP.OwnToken(), c.FirstToken()); token == "" && file != "" {
		var err error
		switch token, err = httpapi.ReadToken(file); {
		case errors.Is(err, os.ErrPermission), errors.Is(err, os.ErrNotExist) && file == c.FirstToken():
			token = ""
		case err != nil:
			return err
		}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

// refusal says in one line what the daemon says against a question.
func refusal(c config.Config, resp *http.Response, text *json.Decoder) error {
	var problem struct{ Detail string }
	if err := text.Decode(&problem); err != nil || problem.Detail == "" {
		return fmt.Errorf("it says %s", term.Visible(resp.Status))
	}
	detail := term.Visible(problem.Detail)
	switch resp.StatusCode {
	case http.StatusConflict:
		detail = strings.NewReplacer(`say "force": true`, "add --force", "say force=1", "add --force", `by /v1/entries with "force": true`, "with blockd add --force", "say again=1", "add --again").Replace(detail)
	case http.StatusUnauthorized, http.StatusForbidden:
		if resp.Request.Header.Get("Authorization") == "" {
			how := "put one into " + tokenVariable + " (made by blockd token new --write)"
			if file := c.FirstToken(); file != "" {
				how = "put that of " + term.Path(file) + " into " + tokenVariable
			}
			detail = fmt.Sprintf("it wants a token: %s, or use its socket %s as a user who may open it", how, term.Path(c.HTTPSocket()))
		}
	}
	if resp.Request.URL.Host == aloneHost {
		if strings.Contains(detail, "permission denied") {
			detail += "; run it as the user of the daemon, or as root"
		}
		return errors.New(detail)
	}
	return fmt.Errorf("the daemon refuses: %s", detail)
}

var errOtherCertificate = errors.New("it shows a certificate that is not the one of http.tls_cert")

// trust is how this program knows its own daemon: by the very certificate that the
// configuration names, which may be issued for a name that no loopback address has, or
// by nobody. A daemon that was not told of a renewal yet is a stranger for a moment.
func trust(h config.HTTP) (*tls.Config, error) {
	if h.TLSCert == "" {
		return nil, nil
	}
	text, err := os.ReadFile(h.TLSCert)
	if err != nil {
		return nil, fmt.Errorf("http.tls_cert: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("http.tls_cert: %s holds no PEM", h.TLSCert)
	}
	own, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("http.tls_cert: %s: %w", h.TLSCert, err)
	}
	return &tls.Config{
		InsecureSkipVerify: true, // in favour of what follows, which is stricter
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || !own.Equal(state.PeerCertificates[0]) {
				return errOtherCertificate
			}
			return nil
		},
	}, nil
}

// Reachable is where a listener on address is reached from this machine: one that
// has no address of its own, or any, on loopback.
func Reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address // nobody listens there either
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "", err == nil && ip.Is4() && ip.IsUnspecified():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// Cause is the system's word without the address, which is said before.
func Cause(err error) error {
	if asked, ok := errors.AsType[*url.Error](err); ok && errors.Is(err, errStranger) {
		return asked.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer in %v", askTimeout)
	}
	return err
}
