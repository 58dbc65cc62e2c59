package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/term"
)

// Health is what a daemon says of itself.
type Health struct {
	Ready bool
	Word  string   // "ok", "degraded" or "not ready"
	First string   // the first line, which begins with Word
	Lines []string // the problems and remarks below it; none from the health door
}

// Degraded reports whether the daemon answers, but has a problem.
func (h Health) Degraded() bool { return h.Word == "degraded" }

// AskHealth asks the daemon of this configuration how it is, until ctx ends: by its Unix socket or http.listen. Where these
// do not tell, health.listen is asked, unless the whole answer is wanted.
func AskHealth(ctx context.Context, c config.Config, whole bool) (Health, error) {
	status, body, err := http.StatusOK, "", error(nil)
	if c.HTTP.Listen == "" && c.HTTPSocket() == "" {
		err = errors.New("[http] opens no door")
	} else {
		status, body, err = Text(ctx, c, "/readyz")
	}
	if err == nil && status != http.StatusOK && status != http.StatusServiceUnavailable {
		err = fmt.Errorf("/readyz answers %d: %s", status, TokenHint)
	}
	if err == nil {
		return health(status, body), nil
	}
	if whole || c.Health.Listen == "" || ctx.Err() != nil {
		return Health{}, err
	}
	if status, err = probe(ctx, Reachable(c.Health.Listen), "/readyz"); err != nil {
		return Health{}, err
	}
	return health(status, map[bool]string{true: "ok", false: "not ready"}[status == http.StatusOK]), nil
}

// health reads an answer of /readyz.
func health(status int, body string) Health {
	lines := strings.Split(strings.TrimSpace(body), "\n")
	for i := range lines {
		lines[i] = term.Visible(lines[i])
	}
	word, _, _ := strings.Cut(lines[0], ":")
	return Health{Ready: status == http.StatusOK, Word: word, First: lines[0], Lines: lines[1:]}
}

// Alive asks the health door of this configuration whether the daemon can go through its locks.
func Alive(ctx context.Context, c config.Config) (bool, error) {
	status, err := probe(ctx, Reachable(c.Health.Listen), "/livez")
	return status == http.StatusOK, err
}

// probe asks the health door at address. The status is 200 or 503.
func probe(ctx context.Context, address, path string) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%w at %s: %w", ErrNoDaemon, address, Cause(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		return 0, fmt.Errorf("%s answers %d: this is no health door of blockd", address, resp.StatusCode)
	}
	return resp.StatusCode, nil
}
