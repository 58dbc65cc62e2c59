package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/internal/testkit"
	"blockd/mail/addr"
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
	open := New(Settings{Entries: f.set, History: past, Events: NewEvents(), First: firstFile(t)}, f.checker, f.Server.status, prometheus.NewRegistry(), f.log)
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

// Who makes a token must not bring back one that somebody revokes meanwhile, nor lose
// one that somebody else makes.
func TestTokensMadeAndRevokedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	const each = 20
	for i := range each {
		testkit.Value(NewToken(path, fmt.Sprintf("old-%d", i), Write, nil, ""))(t)
	}
	var all sync.WaitGroup
	for i := range each {
		all.Go(func() {
			testkit.Got(RevokeToken(path, fmt.Sprintf("old-%d", i), nil, ""))(t, "an old token", true, nil)
		})
		all.Go(func() {
			testkit.Value(NewToken(path, fmt.Sprintf("new-%d", i), Read, nil, ""))(t)
		})
	}
	all.Wait()
	left := testkit.Value(ReadTokens(path))(t)
	testkit.MustEqual(t, "tokens left", len(left), each)
	for _, token := range left {
		testkit.Equal(t, token.Name, token.Scope, Read)
	}
}

// TestFirstToken: it is made once, for its owner's eyes, and read from there on.
func TestFirstToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blockd.bdx.token")
	token, made, err := FirstToken(path)
	if err != nil || !made || len(token) < 40 {
		t.Fatalf("FirstToken() = %q, %t, %v", token, made, err)
	}
	info := testkit.Value(os.Stat(path))(t)
	testkit.Equal(t, "mode", info.Mode(), 0o600)
	if again, made, err := FirstToken(path); again != token || made || err != nil {
		t.Errorf("again: %q, %t, %v", again, made, err)
	}
	testkit.Must(t, RotateFirst(path, nil, "anna"))
	another, made, err := FirstToken(path)
	if another == token || len(another) < 40 || made || err != nil {
		t.Errorf("after a rotation: %q, %t, %v", another, made, err)
	}
	testkit.Equal(t, "mode of another", testkit.Value(os.Stat(path))(t).Mode(), 0o600)
	testkit.Write(t, path, "short\n")
	if _, made, err := FirstToken(path); err == nil || made {
		t.Errorf("a file that holds no token: %t, %v", made, err)
	}
}

// A rotated token is refused at once, with the sessions that it has begun; the one in its place may what it might.
func TestARotatedTokenIsWorthless(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	old := testkit.Value(NewToken(path, "desk", Write, nil, ""))(t)
	other := testkit.Value(NewToken(path, "other", Read, nil, ""))(t)
	f := newFixture(t, Settings{Tokens: path, First: firstFile(t)}, "bad.example\n")
	bear := func(token string) string { return "Authorization: Bearer " + token }
	f.gives(t, http.StatusOK, "GET", "/v1/lists", "", bear(old))
	token := testkit.Value(RotateToken(path, "desk", nil, "anna"))(t)
	f.gives(t, http.StatusUnauthorized, "GET", "/v1/lists", "", bear(old))
	f.gives(t, http.StatusOK, "GET", "/v1/lists", "", bear(token))
	f.gives(t, http.StatusOK, "GET", "/v1/lists", "", bear(other))
	for _, row := range testkit.Value(ReadTokens(path))(t) {
		testkit.Equal(t, row.Name, row.Scope, map[string]Scope{"desk": Write, "other": Read}[row.Name])
	}
	testkit.Fails(RotateToken(path, "nobody", nil, "anna"))(t, "nobody's", errNoToken)
	f.gives(t, http.StatusOK, "GET", "/v1/tokens", "", bearFirst)
	testkit.Must(t, RotateFirst(f.settings.First, nil, "anna"))
	f.gives(t, http.StatusUnauthorized, "GET", "/v1/tokens", "", bearFirst)
	another, _, err := FirstToken(f.settings.First)
	testkit.Must(t, err)
	f.gives(t, http.StatusOK, "GET", "/v1/tokens", "", bear(another))
}

// A token for which the file has no room is refused: a file that is too long would make all of them worthless.
func TestTokenFileHasABound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	var owners []addr.Key
	for i := range MaxTokenOwners {
		owner := testkit.Value(addr.ParseOwner(fmt.Sprintf("%d%s@here.example", i, strings.Repeat("ü", 25))))(t)
		owners = append(owners, owner)
	}
	made := 0
	for ; made < maxTokens; made++ {
		if _, err := NewToken(path, fmt.Sprintf("n%d", made), Read, nil, "", owners...); err != nil {
			testkit.IsError(t, "the last one", err, errTokensFull)
			break
		}
	}
	if all, err := ReadTokens(path); err != nil || len(all) != made || made == 0 {
		t.Errorf("%d tokens after %d, %v", len(all), made, err)
	}
}

// TestRateAgreesWithABucket holds the one time a caller against the plain form of a
// token bucket, which fills by the rate and holds a second of it.
func TestRateAgreesWithABucket(t *testing.T) {
	type bucket struct {
		level float64
		at    time.Time
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		rate := 1 << rng.IntN(9) // so that a cell is a whole number of nanoseconds
		l, model, now := newLimiter(rate), map[callerKey]*bucket{}, time.Unix(1e9, 0)
		for i := range 3000 {
			now = now.Add(time.Duration(rng.IntN(3*int(time.Second)/rate) + 1))
			k := callerKey{token: fmt.Sprint(rng.IntN(3))}
			b := model[k]
			if b == nil {
				b = &bucket{float64(rate), now}
				model[k] = b
			}
			b.level = min(float64(rate), b.level+now.Sub(b.at).Seconds()*float64(rate))
			b.at = now
			want := b.level >= 1-1e-6 // the model adds up fractions
			if want {
				b.level--
			}
			wait := l.admit(k, now)
			if (wait == 0) != want && (b.level < 0.99 || b.level > 1.01) {
				t.Fatalf("seed %d, request %d at %d/s: admit = %v, the bucket holds %v", seed, i, rate, wait, b.level)
			}
			if due := time.Duration((1 - b.level) / float64(rate) * float64(time.Second)); wait > 0 && (wait-due).Abs() > time.Microsecond {
				t.Fatalf("seed %d, request %d at %d/s: it may come back in %v, and the bucket has room in %v", seed, i, rate, wait, due)
			}
		}
	}
}

func TestRateRemembersSoManyCallers(t *testing.T) {
	l, now := newLimiter(1), time.Unix(1e9, 0)
	l.most = 100
	key := func(i int) callerKey { return clientKey(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})) }
	for i := range 100 {
		l.admit(key(i), now)
	}
	testkit.Equal(t, "the first beyond them waits", l.admit(key(100), now), 0)
	if wait := l.admit(key(101), now); wait == 0 {
		t.Error("the second has one of its own")
	}
	if wait := l.admit(key(7), now); wait == 0 {
		t.Error("a caller who is known has got a new allowance")
	}
	if n := len(l.due); n > 101 {
		t.Errorf("%d callers, want 100 and the common one", n)
	}
	if wait := l.admit(key(102), now.Add(2*time.Second)); wait != 0 || len(l.due) != 1 {
		t.Errorf("after all have been silent: wait %v, %d callers remembered", wait, len(l.due))
	}
}

func TestClientsThatAreOne(t *testing.T) {
	for _, tt := range []struct {
		name, a, b string
		one        bool
	}{
		{"two IPv4 addresses", "192.0.2.1", "192.0.2.2", false},
		{"an IPv4 address in IPv6", "::ffff:192.0.2.1", "192.0.2.1", true},
		{"a /64", "2001:db8::1", "2001:db8::ffff:1", true},
		{"two /64", "2001:db8::1", "2001:db8:0:1::1", false},
		{"zones", "fe80::1%eth0", "fe80::2%eth1", true},
	} {
		testkit.Equal(t, fmt.Sprintf("%s: one client", tt.name), clientKey(netip.MustParseAddr(tt.a)) == clientKey(netip.MustParseAddr(tt.b)), tt.one)
	}
}

func TestTooManyRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	monitor := newToken(t, path, "monitor", Read)
	f := newFixture(t, Settings{MaxRate: 2, Token: "0123456789abcdef", Tokens: path}, "bad.example\n")
	synctest.Test(t, func(t *testing.T) {
		const target = "/v1/check?sender=a@bad.example"
		ask := func(header string) int {
			w := f.ask("GET", target, "", header)
			if w.Code == http.StatusTooManyRequests {
				testkit.Equal(t, "Retry-After", w.Header().Get("Retry-After"), "1")
				wantProblem(t, w, http.StatusTooManyRequests, "more than 2 requests a second")
			}
			return w.Code
		}
		bare, wrong := "Authorization: Bearer 0123456789abcdef", "Authorization: Bearer no"
		for _, step := range []struct {
			header string
			want   int
		}{
			{monitor, 200}, {monitor, 200}, {monitor, 429},
			{bare, 200}, {bare, 200}, {bare, 429}, // another token, another allowance
			{wrong, 401}, {wrong, 401}, {wrong, 429}, // the address'; so tokens are guessed slowly
			{monitor, 429},
		} {
			testkit.Equal(t, fmt.Sprintf("%.25s…", step.header), ask(step.header), step.want)
		}
		time.Sleep(time.Second)
		testkit.Equal(t, "a second later", ask(monitor), 200)
		for range 5 {
			f.gives(t, http.StatusOK, "GET", "/healthz", "")
		}
	})
}
