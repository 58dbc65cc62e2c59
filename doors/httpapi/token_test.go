package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/testkit"
	"blockd/reload"
)

// Who may read and who may write, by each way in.
func TestWhoMayWhat(t *testing.T) {
	f := newEntryFixture(t)
	f.status.Ready = true
	const entry = `{"entry":"x.example"}`
	single := "Authorization: Bearer the-one-of-token_file"
	past := newHistory(t)
	withTokens := New(Settings{Tokens: f.settings.Tokens, Entries: f.set, History: past}, f.checker, f.Server.status, prometheus.NewRegistry(), f.log)
	withFile := New(Settings{Token: "the-one-of-token_file", Entries: f.set, History: past}, f.checker, f.Server.status, prometheus.NewRegistry(), f.log)
	open := New(Settings{Entries: f.set, History: past, Events: NewEvents(), First: first}, f.checker, f.Server.status, prometheus.NewRegistry(), f.log)
	for _, tt := range []struct {
		name        string
		server      *Server
		header      string
		read, write int
		secret      int // what names people; 0: as read
	}{
		{"no token where there are some", withTokens, "", 401, 401, 0},
		{"a wrong token", withTokens, "Authorization: Bearer blockd_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 401, 401, 0},
		{"half a token", withTokens, f.write[:40], 401, 401, 0},
		{"a token by another scheme", withTokens, strings.Replace(f.write, "Bearer", "Basic", 1), 401, 401, 0},
		{"a token to read", withTokens, f.read, 200, 403, 0},
		{"a token to write", withTokens, f.write, 200, 200, 0},
		{"the token of token_file", withFile, single, 200, 403, 0},
		{"another one", withFile, f.write, 401, 401, 0},
		{"loopback without tokens", open, "", 200, 401, 401},
		{"loopback with an odd token", open, f.write, 200, 401, 401},
		{"loopback with the first token", open, bearFirst, 200, 200, 200},
		{"loopback with half of it", open, bearFirst[:len(bearFirst)-4], 200, 401, 401},
		{"the first token where others are wanted", withFile, bearFirst, 401, 401, 401},
		{"the scheme in small letters", withTokens, strings.Replace(f.write, "Bearer", "bearer", 1), 200, 200, 0},
		{"the scheme alone", withTokens, "Authorization: Bearer", 401, 401, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ask := (&fixture{Server: tt.server}).ask
			headers := []string{"Content-Type: application/json"}
			if tt.header != "" {
				headers = append(headers, tt.header)
			}
			for _, r := range []struct {
				method, target, body string
				want                 int
			}{
				{"GET", "/v1/entries", "", cmp.Or(tt.secret, tt.read)}, {"GET", "/v1/decisions", "", cmp.Or(tt.secret, tt.read)},
				{"GET", "/v1/lists?entries=3", "", cmp.Or(tt.secret, tt.read)}, {"GET", "/v1/lists", "", tt.read}, {"GET", "/openapi.json", "", tt.read},
				{"GET", "/v1/check?sender=x@y.example", "", tt.read}, {"GET", "/metrics", "", tt.read},
				{"POST", "/v1/entries", entry, tt.write}, {"DELETE", "/v1/entries?entry=x.example", "", tt.write}, {"GET", "/healthz", "", 200},
				{"GET", "/readyz", "", tt.read}, {"GET", "/nothing", "", map[bool]int{true: 404, false: 401}[tt.read == 200]},
			} {
				w := ask(r.method, r.target, r.body, headers...)
				if w.Code != r.want || w.Code == http.StatusUnauthorized && w.Header().Get("WWW-Authenticate") == "" {
					t.Errorf("%s %s is %d %v, want %d: %s", r.method, r.target, w.Code, w.Header(), r.want, w.Body)
				}
			}
		})
	}
}

// A page of another site gets nothing, whatever the browser sends along.
func TestPagesOfOtherSites(t *testing.T) {
	f := newEntryFixture(t)
	open := f.with(Settings{Entries: f.set})
	for _, tt := range []struct {
		name, method, target string
		headers              []string
		want                 int
	}{
		{"a form of another site", "POST", "/v1/entries", []string{"Origin: https://evil.example", "Content-Type: text/plain"}, 403},
		{"a script of another site", "GET", "/v1/entries", []string{"Origin: https://evil.example", "Sec-Fetch-Site: cross-site"}, 403},
		{"an image of another site", "GET", "/v1/check?sender=x@y.example", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"}, 403},
		{"a page on another port here", "GET", "/v1/lists", []string{"Sec-Fetch-Site: same-site", "Origin: http://127.0.0.1:9999"}, 403},
		{"a sandboxed page", "GET", "/v1/lists", []string{"Origin: null"}, 403},
		{"a name that was made to lead here", "GET", "/v1/lists", []string{"Host: evil.example:8025", "Origin: http://evil.example:8025"}, 421},
		{"a link that somebody follows", "GET", "/v1/lists", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"}, 200},
		{"a form that leads here", "POST", "/v1/check", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"}, 403},
		{"a page of ours", "GET", "/v1/lists", []string{"Sec-Fetch-Site: same-origin", "Origin: http://127.0.0.1:8025"}, 200},
		{"a person's own address bar", "GET", "/v1/lists", []string{"Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate"}, 200},
		{"no browser", "GET", "/v1/lists", nil, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			open.gives(t, tt.want, tt.method, tt.target, "", tt.headers...)
			if w := f.ask(tt.method, tt.target, "", append(tt.headers, f.write)...); w.Code != tt.want && tt.want == 403 {
				t.Errorf("with a token: %d, want %d: %s", w.Code, tt.want, w.Body)
			}
		})
	}
}

// Who can open the socket needs no token, and may write.
func TestUnixSocket(t *testing.T) {
	f := newEntryFixture(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Skipf("no Unix socket in a folder of this name: %v", err)
	}
	f.running(t, l)
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	for _, r := range []struct {
		method, target string
		want           int
	}{{"POST", "/v1/entries", 200}, {"GET", "/v1/entries", 200}, {"DELETE", "/v1/entries?entry=x.example", 200}} {
		req := testkit.Value(http.NewRequestWithContext(t.Context(), r.method, "http://whatever"+r.target, strings.NewReader(`{"entry":"x.example"}`)))(t)
		req.Header.Set("Content-Type", "application/json")
		resp := testkit.Value(client.Do(req))(t)
		resp.Body.Close()
		testkit.Equal(t, r.method, resp.StatusCode, r.want)
	}
}

func TestTokensOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	testkit.Equal(t, "no file", len(testkit.Value(ReadTokens(path))(t)), 0)
	read := newToken(t, path, "viewer", Read)
	write := newToken(t, path, "help-desk.1", Write)
	if _, err := NewToken(path, "viewer", Write, nil, ""); err == nil {
		t.Error("a name was given twice")
	}
	for _, name := range []string{"", "a b", "-a", strings.Repeat("a", 33), "a\n", "é"} {
		if _, err := NewToken(path, name, Read, nil, ""); err == nil {
			t.Errorf("a token named %q", name)
		}
	}
	text := testkit.Read(t, path)
	for _, header := range []string{read, write} {
		if token := strings.TrimPrefix(header, "Authorization: Bearer "); len(token) < 40 || bytes.Contains(text, []byte(token)) {
			t.Errorf("token %q in %s", token, text)
		}
	}
	all, err := ReadTokens(path)
	testkit.Got(err, len(all), testkit.At(all, 0).Name, testkit.At(all, 0).Scope, testkit.At(all, 1).Name, testkit.At(all, 1).Scope)(t, fmt.Sprintf("tokens %+v", all), nil, 2, "viewer", Read, "help-desk.1", Write)
	for _, bad := range []string{"viewer read\n", "viewer admin sha256:00 2026-01-01\n", string(text) + string(text)} {
		testkit.Write(t, path, bad)
		if all, err := ReadTokens(path); err == nil {
			t.Errorf("%q was read as %+v", bad, all)
		}
	}
}

// A token that is revoked is worth nothing at the next request, and one that is new
// counts; while the file cannot be read none does.
func TestRevokedAtOnce(t *testing.T) {
	f := newEntryFixture(t)
	path := f.tokens.path
	status := func(header string) int { return f.ask("GET", "/v1/lists", "", header).Code }
	testkit.MustEqual(t, "before", status(f.read), 200)
	testkit.MustGot(RevokeToken(path, "viewer", nil, ""))(t, "revoke", true, nil)
	testkit.Got(RevokeToken(path, "viewer", nil, ""))(t, "revoked twice", false, nil)
	testkit.Equal(t, "revoked", status(f.read), 401)
	testkit.Equal(t, "the other one", status(f.write), 200)
	testkit.Equal(t, "a new one", status(newToken(t, path, "new", Read)), 200)
	testkit.Write(t, path, "garbage\n")
	testkit.Equal(t, "with a file that cannot be read", status(f.write), 401)
}

// A file of tokens that is damaged is told of once, however often somebody asks.
func TestDamagedTokensAreToldOfOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	read := newToken(t, path, "viewer", Read)
	whole := testkit.Read(t, path)
	var log bytes.Buffer
	f := newFixture(t, Settings{}, "bad.example\n")
	server := &fixture{Server: New(Settings{Tokens: path}, f.checker, f.Server.status, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))}
	for told, text := range []string{string(whole), "garbage\n", "#\nother garbage\n", string(whole), strings.Repeat("#\n", maxTokensFile)} {
		testkit.Write(t, path, text)
		for range 3 {
			if w := server.ask("GET", "/v1/lists", "", read); w.Code != 200 && text == string(whole) || w.Code != 401 && text != string(whole) {
				t.Errorf("%.20q: %d", text, w.Code)
			}
		}
		if told > 2 {
			told--
		}
		if n := strings.Count(log.String(), "tokens cannot be read"); n != told {
			t.Errorf("%.20q: told of %d times, want %d:\n%s", text, n, told, &log)
		}
	}
}

// Nothing that is logged or answered has a token in it.
func TestNoTokenIsLogged(t *testing.T) {
	f := newEntryFixture(t)
	var log bytes.Buffer
	server := New(Settings{Tokens: f.tokens.path, Entries: f.set}, f.checker, func() reload.Status { return f.status }, prometheus.NewRegistry(),
		slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	secret := strings.TrimPrefix(f.write, "Authorization: Bearer ")
	var answers strings.Builder
	ask := (&fixture{Server: server}).ask
	for _, w := range []*httptest.ResponseRecorder{
		ask("POST", "/v1/entries", `{"entry":"x.example","why":"so"}`, f.write, "Content-Type: application/json"),
		ask("DELETE", "/v1/entries?entry=x.example", "", f.write),
		ask("GET", "/v1/entries", "", "Authorization: Bearer "+secret+"x"),
		ask("POST", "/v1/entries", `{"entry":"com"}`, f.write, "Content-Type: application/json"),
	} {
		answers.WriteString(w.Body.String())
	}
	testkit.Has(t, log.String(), "live entry added", "by=helpdesk")
	if strings.Contains(log.String()+answers.String(), secret) || strings.Contains(log.String(), "Bearer") {
		t.Errorf("a token in the log or an answer:\n%s\n%s", &log, &answers)
	}
}
