package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
	"blockd/internal/term"
)

// checkTimeout is how long one question, or a block of them, may take: DNS and the stores of lists are waited for.
const checkTimeout = 30 * time.Second

// Daemon is a running daemon that is asked over its Unix socket alone: what answers there is the one of this
// configuration, and asks for no token. It is safe for concurrent use.
type Daemon struct {
	httpapi.Serving
	socket string
	client *http.Client
}

// ErrOld is wrapped by the error of a question that an older daemon does not know.
var ErrOld = errors.New("it is an older blockd, which cannot be asked by check")

// FindDaemon looks for the daemon of a configuration. The error says why it cannot be asked; it wraps ErrNoDaemon where
// there is none, and not where there is one that refuses, hangs or talks nonsense.
func FindDaemon(ctx context.Context, c config.Config) (*Daemon, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	d := &Daemon{socket: c.HTTPSocket()}
	conn, err := dialSocket(ctx, d.socket)
	switch {
	case d.socket == "":
		return nil, fmt.Errorf("no daemon can be asked: %w", err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w at %s", ErrNoDaemon, term.Path(d.socket))
	case err != nil:
		return nil, fmt.Errorf("the daemon at %s cannot be asked: %w", term.Path(d.socket), err)
	}
	conn.Close()
	d.client = &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialSocket(ctx, d.socket)
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	text, _, err := d.ask(ctx, http.MethodGet, "/v1/serving", nil, nil)
	if err == nil {
		if err = json.Unmarshal(text, &d.Serving); err != nil {
			err = fmt.Errorf("no answer of blockd: %w", err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the daemon at %s does not answer: %w", term.Path(d.socket), err)
	}
	return d, nil
}

// Check asks what a body of a type holds, and returns the answers: printout has the same at an index file. err says why
// there are no more of them.
func (d *Daemon) Check(ctx context.Context, query url.Values, bodyType string, asJSON bool, body []byte) (answers []byte, blocked bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	header := http.Header{"Content-Type": {bodyType}, "Accept": {"text/plain"}}
	if asJSON {
		header["Accept"] = []string{"application/x-ndjson"}
	}
	answers, got, err := d.ask(ctx, http.MethodPost, "/v1/check?"+escaped(query), header, body)
	if err != nil {
		return nil, false, fmt.Errorf("the daemon at %s: %w", term.Path(d.socket), err)
	}
	if fault := got.Get(httpapi.FaultHeader); fault != "" {
		if text, err := url.PathUnescape(fault); err == nil {
			fault = text
		}
		return answers, got.Get(httpapi.BlockedHeader) == "1", errors.New(term.Visible(fault))
	}
	return answers, got.Get(httpapi.BlockedHeader) == "1", nil
}

// escaped is a query in which a blank is %20: "+" is a plus there.
func escaped(query url.Values) string {
	return string(bytes.ReplaceAll([]byte(query.Encode()), []byte("+"), []byte("%20")))
}

// ask asks once more where a connection that stood idle has closed meanwhile, as at the daemon's upgrade: to ask changes
// nothing.
func (d *Daemon) ask(ctx context.Context, method, path string, header http.Header, body []byte) (text []byte, got http.Header, err error) {
	for range 2 {
		if text, got, err = d.once(ctx, method, path, header, body); err == nil || ctx.Err() != nil || errors.Is(err, errAnswered) {
			break
		}
	}
	return text, got, err
}

// errAnswered is wrapped by what the daemon itself says against a question.
var errAnswered = errors.New("it refuses")

func (d *Daemon) once(ctx context.Context, method, path string, header http.Header, body []byte) ([]byte, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	if header != nil {
		req.Header = header
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, nil, late(ctx, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, nil, late(ctx, err)
	case resp.StatusCode == http.StatusOK:
		return text, resp.Header, nil
	case resp.StatusCode == http.StatusNotFound, resp.StatusCode == http.StatusUnsupportedMediaType:
		return nil, nil, fmt.Errorf("%w: %w", errAnswered, ErrOld)
	}
	var problem struct{ Detail string }
	if json.Unmarshal(text, &problem) != nil || problem.Detail == "" {
		problem.Detail = resp.Status
	}
	return nil, nil, fmt.Errorf("%w: %s", errAnswered, term.Visible(problem.Detail))
}

// late is err in few words: without the address, which is said before.
func late(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("no answer in time")
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return Cause(err)
}
