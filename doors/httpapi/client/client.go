// Package client asks a blockd over HTTP (docs/http.md): whether senders are listed, and its live entries, lists and decisions.
//
//	blockd := client.New("http://127.0.0.1:8025", client.Token(token))
//	answer, err := blockd.Check(ctx, client.Question{Sender: "someone@shop.example"})
//
// Where blockd gives no answer there is an error and no verdict: the caller decides what becomes of the mail, and lets it pass unless it
// has a reason. The package imports nothing but the standard library.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// usualLimit is how long a request may take whose context has no deadline of its own.
	usualLimit = 30 * time.Second

	// maxAnswer bounds an answer, in octets: a thousand answers of a batch with some entries each are 2 MB.
	maxAnswer = 64 << 20
)

// Client asks one blockd. Its methods may be called at once, and keep connections for each other.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// Option is a setting of a Client.
type Option func(*Client)

// Token is sent with each request (blockd token new).
func Token(token string) Option { return func(c *Client) { c.token = token } }

// HTTP has requests made by a client of the caller's, with its TLS, proxy and timeouts.
func HTTP(h *http.Client) Option { return func(c *Client) { c.http = h } }

// New is a client of the blockd at base: "http://HOST:PORT", "https://HOST:PORT", or "unix:PATH" for http.socket. It does not connect.
func New(base string, options ...Option) *Client {
	c := &Client{base: strings.TrimRight(base, "/"), http: &http.Client{Timeout: usualLimit}}
	if path, unix := strings.CutPrefix(base, "unix:"); unix {
		c.base = "http://localhost"
		c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}
	}
	for _, o := range options {
		o(c)
	}
	return c
}

// Error is a request that blockd refuses.
type Error struct {
	Status int           // of HTTP
	Detail string        // for people
	Retry  time.Duration // when to come again, with status 429 and 503; 0 = it does not say
}

// Error gives one line.
func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("blockd: %d %s", e.Status, http.StatusText(e.Status))
	}
	return fmt.Sprintf("blockd: %d %s: %s", e.Status, http.StatusText(e.Status), e.Detail)
}

// StatusOf is the status of HTTP with which blockd has refused a request; 0 if an error is another one.
func StatusOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

// ask makes a request and reads its answer into answer. A body that is not nil is sent as JSON.
func (c *Client) ask(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	var text io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = bytes.NewReader(encoded)
	}
	target := c.base + path
	if len(query) > 0 {
		target += "?" + encode(query)
	}
	r, err := http.NewRequestWithContext(ctx, method, target, text)
	if err != nil {
		return err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	read := io.LimitReader(response.Body, maxAnswer)
	if response.StatusCode/100 != 2 {
		return refusal(response, read)
	}
	if err := json.NewDecoder(read).Decode(answer); err != nil {
		return fmt.Errorf("blockd: the answer cannot be read: %w", err)
	}
	return nil
}

// refusal reads why a request was refused: problem details (RFC 9457), if it is blockd that answers.
func refusal(response *http.Response, body io.Reader) error {
	e := &Error{Status: response.StatusCode}
	var problem struct{ Detail string }
	if json.NewDecoder(body).Decode(&problem) == nil {
		e.Detail = problem.Detail
	}
	if seconds, err := time.ParseDuration(response.Header.Get("Retry-After") + "s"); err == nil {
		e.Retry = seconds
	}
	return e
}

// encode writes a query in which a plus is a plus, as addresses have it.
func encode(query url.Values) string { return strings.ReplaceAll(query.Encode(), "+", "%20") }

// values collects the parameters of a query that say something.
type values struct{ url.Values }

func (v values) text(name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

func (v values) time(name string, at time.Time) {
	if !at.IsZero() {
		v.Set(name, at.UTC().Format(time.RFC3339))
	}
}
