package httpapi

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"blockd/doors/httpapi/session"
	"blockd/internal/testkit"
	"blockd/records/audit"
	"blockd/reload"
)

// fromPage are the headers of a request of the console.
const (
	fromPage = "Sec-Fetch-Site: same-origin"
	origin   = "Origin: http://127.0.0.1:8025"
)

// signIn signs a browser in, and returns its cookie as a header.
func signIn(t *testing.T, f *fixture, bearer string, headers ...string) string {
	t.Helper()
	w := f.ask("POST", "/v1/session", fmt.Sprintf(`{"token":%q}`, strings.TrimPrefix(bearer, "Authorization: Bearer ")), append(headers, json1, fromPage)...)
	testkit.MustEqual(t, "sign-in: "+w.Body.String(), w.Code, 200)
	return cookieOf(t, w)
}

func cookieOf(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	cookies := w.Result().Cookies()
	testkit.MustEqual(t, cookies, len(cookies), 1)
	return "Cookie: " + cookies[0].Name + "=" + cookies[0].Value
}

func who(t *testing.T, f *fixture, headers ...string) Identity {
	t.Helper()
	return decoded[Identity](t, f.ask("GET", "/v1/session", "", headers...), 200, asJSON)
}

// A session has the rights of its token: to read, to write, or of an owner; and no others.
func TestSessionsHaveTheRightsOfTheirTokens(t *testing.T) {
	f, bear := ownersFixture(t)
	for _, tt := range []struct {
		scope                      Scope
		owner                      string
		read, write, own, ownWrite int
	}{
		{Read, "", 200, 403, 200, 403},
		{Write, "", 200, 200, 200, 200},
		{Read, "ann@here.example", 403, 403, 200, 403},
		{Write, "ann@here.example", 403, 403, 200, 200},
	} {
		var owners []string
		if tt.owner != "" {
			owners = append(owners, tt.owner)
		}
		token := bear(tt.scope, owners...)
		for _, credential := range []string{token, signIn(t, f, token)} {
			name := fmt.Sprintf("%s %q by %.10s", tt.scope, tt.owner, credential)
			for _, r := range []struct {
				method, target string
				want           int
			}{{"GET", "/v1/entries", tt.read}, {"POST", "/v1/entries", tt.write}, {"GET", "/v1/owners/ann@here.example/entries", tt.own},
				{"POST", "/v1/owners/ann@here.example/entries", tt.ownWrite}, {"GET", "/v1/check?sender=a@b.example&recipient=ann@here.example", 200},
				{"GET", "/v1/check?sender=a@b.example&recipient=bob@here.example", tt.read}} {
				f.gives(t, r.want, r.method, r.target, `{"entry":"x@y.example"}`, credential, json1, fromPage)
			}
			f.gives(t, 200, "GET", "/", "", credential, asBrowser, "Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate")
			i := who(t, f, credential)
			testkit.Got(i.SignedIn, i.Scope, strings.Join(i.Owners, " "))(t, name, true, tt.scope.String(), tt.owner)
		}
	}
}

// A change by a cookie wants proof that a page of this door makes it: no other page can give it, whatever the browser sends along.
func TestNoOtherPageChangesByACookie(t *testing.T) {
	f := newEntryFixture(t)
	cookie := signIn(t, f.fixture, f.write)
	for _, tt := range []struct {
		name          string
		headers       []string
		change, query int
	}{
		{"the console", []string{fromPage, origin}, 200, 200},
		{"the console in a browser without Sec-Fetch-Site", []string{origin}, 200, 200},
		{"a page of another site", []string{"Sec-Fetch-Site: cross-site", "Origin: https://evil.example"}, 403, 403},
		{"a form of another site", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Origin: https://evil.example"}, 403, 403},
		{"a link of another site", []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"}, 403, 200},
		{"a page on another port of this machine", []string{"Sec-Fetch-Site: same-site", "Origin: http://127.0.0.1:9999"}, 403, 403},
		{"that, in a browser without Sec-Fetch-Site", []string{"Origin: http://127.0.0.1:9999"}, 403, 403},
		{"a sandboxed frame", []string{"Origin: null"}, 403, 403},
		{"who says nothing of a page", nil, 403, 200},
		{"the address bar", []string{"Sec-Fetch-Site: none"}, 403, 200},
		{"a lie with the right origin", []string{"Sec-Fetch-Site: cross-site", origin}, 403, 403},
	} {
		headers := append([]string{cookie, json1}, tt.headers...)
		for _, change := range []struct{ method, target, body string }{{"POST", "/v1/entries", `{"entry":"x.example"}`}, {"DELETE", "/v1/entries?entry=x.example", ""}} {
			f.gives(t, tt.change, change.method, change.target, change.body, headers...)
		}
		f.gives(t, tt.query, "GET", "/v1/entries", "", headers...)
		if tt.change == 200 {
			continue
		}
		f.gives(t, 403, "DELETE", "/v1/session", "", headers...)
	}
	// Nobody is signed in by another page, to whatever token.
	body := fmt.Sprintf(`{"token":%q}`, strings.TrimPrefix(f.read, "Authorization: Bearer "))
	for _, headers := range [][]string{{"Origin: https://evil.example", json1}, {"Sec-Fetch-Site: same-site", json1}, {"Content-Type: text/plain"}, {"Content-Type: application/x-www-form-urlencoded"}} {
		if w := f.ask("POST", "/v1/session", body, headers...); w.Code != 403 && w.Code != 415 || len(w.Result().Cookies()) > 0 {
			t.Errorf("%q signs in: %d", headers, w.Code)
		}
	}
}

// A program goes on to send a token in the header, and a cookie beside it gives and takes nothing.
func TestTheHeaderComesFirst(t *testing.T) {
	f := newEntryFixture(t)
	reads, writes := signIn(t, f.fixture, f.read), signIn(t, f.fixture, f.write)
	for _, tt := range []struct {
		headers []string
		want    int
	}{{[]string{f.write, reads}, 200}, {[]string{f.read, writes}, 403}, {[]string{f.write + "x", writes}, 401}, {[]string{"Authorization: Basic YTpi", writes, fromPage}, 200}} {
		f.gives(t, tt.want, "POST", "/v1/entries", `{"entry":"x.example"}`, append(tt.headers, json1)...)
	}
}

// Signing out, another sign-in, a revoked token and the end of its time end a session at once.
func TestSessionsEnd(t *testing.T) {
	f := newEntryFixture(t)
	status := func(cookie string) int { return f.ask("GET", "/v1/entries", "", cookie).Code }
	wantBoth := func(when, one, other string, wantOne, wantOther int) {
		t.Helper()
		if a, b := status(one), status(other); a != wantOne || b != wantOther {
			t.Errorf("%s: %d and %d, want %d and %d", when, a, b, wantOne, wantOther)
		}
	}
	one, other := signIn(t, f.fixture, f.read), signIn(t, f.fixture, f.read)
	wantBoth("signed in", one, other, 200, 200)
	w := f.ask("DELETE", "/v1/session", "", one, fromPage)
	if c := w.Result().Cookies(); w.Code != 200 || len(c) != 1 || c[0].MaxAge >= 0 || c[0].Value != "" {
		t.Errorf("sign-out: %d, %v", w.Code, c)
	}
	wantBoth("one has signed out", one, other, 401, 200)
	testkit.Has(t, f.ask("GET", "/v1/entries", "", one).Header().Get("WWW-Authenticate"), "invalid_token")
	f.gives(t, 200, "DELETE", "/v1/session", "", one, fromPage)
	one = signIn(t, f.fixture, f.write, other)
	wantBoth("another sign-in of the same browser", one, other, 200, 401)
	other = signIn(t, f.fixture, f.read)
	testkit.Value(RevokeToken(f.tokens.path, "viewer", nil, ""))(t)
	wantBoth("one token is revoked", one, other, 200, 401)
	if i := who(t, f.fixture, other); i.SignedIn {
		t.Errorf("%+v", i)
	}
	set := testkit.Value(session.Open(session.Settings{Idle: time.Nanosecond, Max: time.Nanosecond}))(t)
	f.settings.Sessions = set
	f.serve(f.settings)
	testkit.Equal(t, "after its time", status(signIn(t, f.fixture, f.write)), 401)
}

// By TLS, at the door or at a web server before it, the cookie goes by TLS alone, and nobody else can set it.
func TestCookies(t *testing.T) {
	f := newEntryFixture(t)
	ask := func(f *fixture, encrypted bool, host, origin, cookie, target, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(map[bool]string{true: "POST", false: "GET"}[body != ""], target, strings.NewReader(body))
		if body != "" && origin != "" { // browsers say it of what may change something
			r.Header.Set("Origin", origin)
		}
		r.Host, r.TLS = host, nil
		if encrypted {
			r.TLS = &tls.ConnectionState{}
		}
		r.Header.Set("Content-Type", asJSON)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		if _, value, ok := strings.Cut(cookie, ": "); ok {
			r.Header.Set("Cookie", value)
		}
		w := httptest.NewRecorder()
		f.Handler().ServeHTTP(w, r)
		return w
	}
	body := fmt.Sprintf(`{"token":%q}`, strings.TrimPrefix(f.write, "Authorization: Bearer "))
	behind := f.with(Settings{Tokens: f.settings.Tokens, Entries: f.set, URL: &url.URL{Scheme: "https", Host: "mail.example", Path: "/blockd/"}})
	for _, tt := range []struct {
		name      string
		f         *fixture
		encrypted bool
		host      string
		origin    string
		secure    bool
	}{{"without TLS", f.fixture, false, "127.0.0.1:8025", "", false}, {"with TLS", f.fixture, true, "mail.example", "", true},
		{"behind a web server", behind, false, "mail.example", "", true},
		{"behind one that does not pass Host on", behind, false, "127.0.0.1:8025", "https://mail.example", true},
		{"behind one that passes neither Host nor Origin on", behind, false, "127.0.0.1:8025", "", true},
		{"past the web server", behind, false, "127.0.0.1:8025", "http://127.0.0.1:8025", false}} {
		w := ask(tt.f, tt.encrypted, tt.host, tt.origin, "", "/v1/session", body)
		c := w.Result().Cookies()[0]
		if c.Secure != tt.secure || strings.HasPrefix(c.Name, "__Host-") != tt.secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || !c.Expires.IsZero() || c.MaxAge != 0 || len(c.Value) < 43 {
			t.Errorf("%s: %s", tt.name, c)
		}
		if w := ask(tt.f, tt.encrypted, tt.host, tt.origin, cookieOf(t, w), "/v1/entries", ""); w.Code != 200 {
			t.Errorf("%s: %d %s", tt.name, w.Code, w.Body)
		}
		if tt.host == "mail.example" {
			planted := "Cookie: " + plainCookie + "=" + c.Value
			testkit.Equal(t, fmt.Sprintf("%s: a cookie that any neighbour can set is taken", tt.name), ask(tt.f, tt.encrypted, tt.host, tt.origin, planted, "/v1/entries", "").Code, 401)
		}
	}
	cookie := cookieOf(t, ask(f.fixture, false, "127.0.0.1:8025", "", "", "/v1/session", body))
	f.gives(t, 200, "GET", "/v1/entries", "", "Cookie: "+plainCookie+"=planted; other=x; "+strings.TrimPrefix(cookie, "Cookie: "))
}

// A sign-in that fails counts for the address, as any request with a wrong token; those of one token have a bound, because each has a line in the journal.
func TestSignInsAreBounded(t *testing.T) {
	f := newEntryFixture(t)
	s := f.settings
	s.MaxRate, s.Audit = 5, newAudit(t)
	slow := f.with(s)
	got := map[int]int{}
	for range 20 {
		got[slow.ask("POST", "/v1/session", `{"token":"blockd_guess"}`, json1, fromPage).Code]++
	}
	if got[401] < 5 || got[429] == 0 || got[401]+got[429] != 20 {
		t.Errorf("20 guesses at once: %v", got)
	}
	s.MaxRate = 0
	f.serve(s)
	for range signInBurst {
		signIn(t, f.fixture, f.read)
	}
	body := fmt.Sprintf(`{"token":%q}`, strings.TrimPrefix(f.read, "Authorization: Bearer "))
	if w := f.ask("POST", "/v1/session", body, json1, fromPage); w.Code != 429 || w.Header().Get("Retry-After") == "" {
		t.Errorf("more sign-ins of one token than there may be: %d", w.Code)
	}
	cookie := signIn(t, f.fixture, f.write)
	f.ask("DELETE", "/v1/session", "", cookie, fromPage)
	found, err := audit.Search(t.Context(), s.Audit.Folder, audit.Query{Action: "session", Limit: 100})
	if err != nil || len(found.Lines) != signInBurst+2 || found.Lines[0].Action != audit.SessionEnd || found.Lines[0].By != "helpdesk" || found.Lines[1].Action != audit.SessionBegin || !strings.Contains(found.Lines[1].Detail, "192.0.2.1") {
		t.Errorf("%d lines, %v: %+v", len(found.Lines), err, found.Lines[:min(2, len(found.Lines))])
	}
}

// Of a damaged body nothing is taken, and no secret is logged or answered.
func TestSignInsThatFail(t *testing.T) {
	f := newEntryFixture(t)
	token := strings.TrimPrefix(f.write, "Authorization: Bearer ")
	var log strings.Builder
	f.Server = New(f.settings, f.checker, func() reload.Status { return f.status }, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	var answers strings.Builder
	for body, want := range map[string]int{
		"": 400, "{}": 401, `{"token":""}`: 401, `{"token":7}`: 400, `{"token":"x","more":1}`: 400, `"` + token + `"`: 400,
		fmt.Sprintf(`{"token":%q} {}`, token): 400, fmt.Sprintf(`{"token":%q}`, token+"x"): 401, `{"token":"` + strings.Repeat("x", 8*maxToken): 413,
	} {
		w := f.ask("POST", "/v1/session", body, json1, fromPage)
		if w.Code != want || len(w.Result().Cookies()) > 0 {
			t.Errorf("%.60q: %d, want %d: %s", body, w.Code, want, w.Body)
		}
		answers.WriteString(w.Body.String())
	}
	cookie := signIn(t, f.fixture, f.write)
	answers.WriteString(f.ask("GET", "/v1/session", "", cookie).Body.String())
	_, secret, _ := strings.Cut(cookie, "=")
	for _, text := range []string{log.String(), answers.String()} {
		testkit.Lacks(t, text, token, secret)
	}
	if i := who(t, f.fixture, cookie); i.By != "session" || i.Name != "helpdesk" || i.Ends == nil || i.Unused == nil || !i.Closed {
		text, _ := json.Marshal(i)
		t.Errorf("%s", text)
	}
}
