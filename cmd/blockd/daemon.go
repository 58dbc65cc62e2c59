package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"blockd/httpapi"
	"blockd/internal/config"
	"blockd/internal/term"
)

// tokenVariable names the environment variable with a token for the daemon.
const tokenVariable = "BLOCKD_TOKEN"

// errNoDaemon is wrapped by the error of a question that nobody has heard.
var errNoDaemon = errors.New("no daemon answers")

// askDaemon asks the daemon of this configuration and decodes its answer: by its Unix
// socket if it is there and this user may, or else at [http] listen, with the token of
// the environment, of http.token_file or of the file that the first start has made.
func askDaemon(ctx context.Context, c config.Config, method, path string, body, answer any) error {
	var text bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&text).Encode(body); err != nil {
			return err
		}
	}
	socket := c.HTTPSocket()
	conn, socketErr := dialSocket(ctx, socket)
	address := reachable(c.HTTP.Listen)
	if conn == nil && c.HTTP.Listen == "" {
		return fmt.Errorf("%w at %s: %w", errNoDaemon, term.Path(socket), socketErr)
	}
	server := c.HTTP.Scheme() + "://" + address
	if conn != nil {
		server = "http://localhost"
	}
	req, err := http.NewRequestWithContext(ctx, method, server+path, &text)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if conn == nil {
		if err := authorize(c, req); err != nil {
			return err
		}
	}
	// The token goes to that address and nowhere else: neither to a proxy that the
	// environment names, nor where a redirect leads.
	transport := &http.Transport{DisableKeepAlives: true}
	if conn != nil {
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
	} else if transport.TLSClientConfig, err = trustDaemon(c.HTTP); err != nil {
		return err
	}
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%w at %s: %w", errNoDaemon, address, bareError(err))
	}
	defer resp.Body.Close()
	return readAnswer(c, resp, req, answer)
}

// rawAnswer is an answer that is not decoded, whatever its status.
type rawAnswer struct {
	status int
	body   string
}

func dialSocket(ctx context.Context, path string) (net.Conn, error) {
	if path == "" {
		return nil, errors.New(`http.socket is "none"`)
	}
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, bareError(err)
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

// read decodes an answer, or says in one line what the daemon says against it.
func readAnswer(c config.Config, resp *http.Response, req *http.Request, answer any) error {
	body := io.LimitReader(resp.Body, maxListing)
	if raw, ok := answer.(*rawAnswer); ok {
		text, err := io.ReadAll(body)
		raw.status, raw.body = resp.StatusCode, string(text)
		return err
	}
	if resp.StatusCode == http.StatusOK {
		if err := json.NewDecoder(body).Decode(answer); err != nil {
			return fmt.Errorf("no answer of blockd: %w", err)
		}
		return nil
	}
	var problem struct{ Detail string }
	if err := json.NewDecoder(body).Decode(&problem); err != nil || problem.Detail == "" {
		return fmt.Errorf("it says %s", term.Visible(resp.Status))
	}
	detail := term.Visible(problem.Detail)
	switch resp.StatusCode {
	case http.StatusConflict:
		detail = strings.Replace(detail, `say "force": true`, "add --force", 1)
	case http.StatusUnauthorized, http.StatusForbidden:
		if req.Header.Get("Authorization") == "" {
			detail = fmt.Sprintf("it wants a token: put one into %s (made by blockd token new --write), or use its socket %s as a user who may open it",
				tokenVariable, term.Path(c.HTTPSocket()))
			if file := c.FirstToken(); file != "" {
				detail = fmt.Sprintf("it wants a token: put that of %s into %s, or use its socket %s as a user who may open it",
					term.Path(file), tokenVariable, term.Path(c.HTTPSocket()))
			}
		}
	}
	return fmt.Errorf("the daemon refuses: %s", detail)
}
