// Package control is how commands reach a daemon that runs: they ask it, or read its files.
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
	resp, err := send(ctx, c, method, path, body)
	if err != nil {
		return err
	}
	return decodeAnswer(c, resp, answer)
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
	resp, err := send(ctx, c, http.MethodGet, path, nil)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, string(text), err
}

func send(ctx context.Context, c config.Config, method, path string, body any) (*http.Response, error) {
	return sendWith(ctx, c, method, path, body, nil)
}

// sendWith is send with fields of a header.
func sendWith(ctx context.Context, c config.Config, method, path string, body any, header http.Header) (*http.Response, error) {
	if body == nil {
		return sendRaw(ctx, c, method, path, nil, header)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	if header == nil {
		header = http.Header{}
	}
	header.Set("Content-Type", "application/json")
	return sendRaw(ctx, c, method, path, text, header)
}

// sendRaw is send of a body as it is; nil = none.
func sendRaw(ctx context.Context, c config.Config, method, path string, body []byte, header http.Header) (*http.Response, error) {
	socket := c.HTTPSocket()
	conn, socketErr := dialSocket(ctx, socket)
	address := Reachable(c.HTTP.Listen)
	if conn == nil && c.HTTP.Listen == "" {
		return nil, fmt.Errorf("%w at %s: %w", ErrNoDaemon, term.Path(socket), socketErr)
	}
	server := c.HTTP.Scheme() + "://" + address
	if conn != nil {
		server = "http://localhost"
	}
	req, err := http.NewRequestWithContext(ctx, method, server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	// The token goes to that address and nowhere else: neither to a proxy that the
	// environment names, nor where a redirect leads.
	transport := &http.Transport{DisableKeepAlives: true}
	var reached atomic.Bool // a server that is ours: before that nobody has heard the question
	trace := &httptrace.ClientTrace{WroteHeaders: func() { reached.Store(true) }}
	req = req.WithContext(httptrace.WithClientTrace(ctx, trace))
	if conn != nil {
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	} else if err := authorize(c, req); err != nil {
		return nil, err
	} else if transport.TLSClientConfig, err = trust(c.HTTP); err != nil {
		return nil, err
	} else if transport.TLSClientConfig == nil && req.Header.Get("Authorization") != "" {
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			return dialDaemon(ctx, c, network, address)
		}
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err == nil {
		return resp, nil
	}
	if conn != nil {
		address = term.Path(socket)
	}
	if !reached.Load() {
		return nil, fmt.Errorf("%w at %s: %w", ErrNoDaemon, address, Cause(err))
	}
	return nil, fmt.Errorf("the daemon at %s has not answered, and may have done it: %w", address, Cause(err))
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
