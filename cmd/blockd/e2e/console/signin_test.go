package console

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"blockd/cmd/blockd/e2e"
	"blockd/internal/testkit"
	"blockd/internal/testkit/oidcserver"
)

// visitor is what keeps cookies, and says where a daemon leads it.
type visitor struct {
	*http.Client
	d *e2e.Daemon
}

func newVisitor(t *testing.T, d *e2e.Daemon) *visitor {
	t.Helper()
	jar := testkit.Value(cookiejar.New(nil))(t)
	return &visitor{&http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, d}
}

func (b *visitor) ask(t *testing.T, method, path, body string) (status int, to, text string) {
	t.Helper()
	r := testkit.Value(http.NewRequest(method, "http://"+b.d.HTTP+path, strings.NewReader(body)))(t)
	r.Header.Set("Origin", "http://"+b.d.HTTP)
	r.Header.Set("Content-Type", "application/json")
	w := testkit.Value(b.Do(r))(t)
	defer w.Body.Close()
	all := testkit.Value(io.ReadAll(w.Body))(t)
	return w.StatusCode, w.Header.Get("Location"), string(all)
}

func (b *visitor) want(t *testing.T, when, path string, status int, words string) {
	t.Helper()
	if got, _, text := b.ask(t, "GET", path, ""); got != status || !strings.Contains(text, words) {
		t.Errorf("%s: %s is %d %s, want %d with %q", when, path, got, text, status, words)
	}
}

// TestSignIn has people sign in with tokens and with a real identity provider, in a real browser and without one, over the death of the provider and
// restarts of the daemon.
func TestSignIn(t *testing.T) {
	installed(t)
	t.Parallel()
	d := e2e.Configure(t, e2e.Setup{Files: map[string]string{"own.txt": "listed.example\n", "secret": oidcserver.ClientSecret + "\n"}, Lists: "[[list]]\nname = \"own\"\npath = \"own.txt\"\nformat = \"plain\"\n"})
	address := "http://" + d.HTTP + "/"
	people := []oidcserver.User{{ID: "1", Username: "root", Email: "root@here.example", EmailVerified: true}, {ID: "2", Username: "anna", Email: "anna@here.example", EmailVerified: true},
		{ID: "3", Username: "uma", Email: "uma@users.example", EmailVerified: true}, {ID: "4", Username: "eve", Email: "anna@here.example"}}
	provider := oidcserver.Start(t, people, address+"v1/session/callback")
	text := strings.Replace(string(testkit.Read(t, d.Path("config.toml"))), "[http]\n", fmt.Sprintf("[http]\ntokens = \"tokens\"\nurl = %q\n", address), 1)
	text += fmt.Sprintf("[http.oidc]\nissuer = %q\nclient_id = %q\nclient_secret_file = \"secret\"\nname = \"Example\"\nclaim = \"email\"\nadmin = [\"root@here.example\"]\nwrite = [\"anna@here.example\"]\nself_service = [\"users.example\"]\n",
		provider.Issuer, oidcserver.ClientID)
	testkit.Write(t, d.Path("config.toml"), text)
	token := strings.TrimSpace(d.Must(t, "token", "new", "--name", "helpdesk", "--write"))
	bound := strings.TrimSpace(d.Must(t, "token", "new", "--name", "panel", "--owner", "here.example", "--write"))
	d.Unready = true // who has no token is not told
	d.Start(t)

	env := []string{"BLOCKD_TOKEN=" + token, "BLOCKD_READ_TOKEN=" + bound, "BLOCKD_ISSUER=" + provider.Issuer, "BLOCKD_PASSWORD=" + oidcserver.Password}
	if err := browser(t, d, env, "signin").Run(); err != nil {
		t.Fatalf("playwright: %v", err)
	}

	byProvider, byToken, later := newVisitor(t, d), newVisitor(t, d), newVisitor(t, d)
	if _, to, _ := byProvider.ask(t, "GET", "/v1/session/provider", ""); to == "" {
		t.Fatal("nobody is sent to the provider")
	} else if status, back, _ := byProvider.ask(t, "GET", "/v1/session/callback?"+provider.SignIn(t, to, "anna").Encode(), ""); status != 303 || back != address {
		t.Fatalf("back from the provider: %d to %q", status, back)
	}
	body := fmt.Sprintf(`{"token":%q}`, token)
	if status, _, text := byToken.ask(t, "POST", "/v1/session", body); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	both := func(when string, status int) {
		t.Helper()
		byProvider.want(t, when, "/v1/entries", status, "")
		byToken.want(t, when, "/v1/entries", status, "")
	}
	both("signed in", 200)

	provider.Kill()
	both("the provider is dead", 200)
	if status, to, _ := later.ask(t, "GET", "/v1/session/provider", ""); status != 303 || !strings.HasPrefix(to, address) && !strings.HasPrefix(to, provider.Issuer) {
		t.Errorf("to a dead provider: %d %q", status, to)
	}
	d.Stop(t)
	d.Start(t) // with a provider that is dead from the start
	both("after a restart", 200)
	if status, to, _ := later.ask(t, "GET", "/v1/session/provider", ""); status != 303 || to != address+"#sign-in=away" {
		t.Errorf("to a provider that was never there: %d %q", status, to)
	}
	if status, _, text := later.ask(t, "POST", "/v1/session", body); status != 200 {
		t.Errorf("with a token, while the provider is dead: %d %s", status, text)
	}
	d.Must(t, "add", "while-dead.example")
	testkit.Has(t, d.Ends(t, 0, "check", "x@while-dead.example"), "blocked")
	provider.Restart(t)
	testkit.Eventually(t, "the provider to be asked again", func() bool {
		_, to, _ := later.ask(t, "GET", "/v1/session/provider", "")
		return strings.HasPrefix(to, provider.Issuer)
	})

	d.Must(t, "token", "revoke", "helpdesk")
	byToken.want(t, "its token is revoked", "/v1/entries", 401, "")
	later.want(t, "its token is revoked", "/v1/entries", 401, "")
	byProvider.want(t, "a token is revoked", "/v1/entries", 200, "")
	d.Stop(t)
	testkit.Write(t, d.Path("config.toml"), strings.Replace(text, `write = ["anna@here.example"]`, `read = ["anna@here.example"]`, 1))
	d.Start(t)
	byProvider.want(t, "rights are given by other rules", "/v1/session", 200, `"signed_in":false`)

	journal, log := d.Must(t, "audit", "--json"), d.WholeLog(t)
	if !strings.Contains(journal, `"session.begin"`) || !strings.Contains(journal, "anna@localhost") {
		t.Errorf("the journal has nobody who signed in: %s", journal)
	}
	kept := string(testkit.Read(t, filepath.Join(d.Dir, "blockd.bdx.sessions")))
	page := testkit.Value(url.Parse(address))(t)
	for _, secret := range []string{token, bound, oidcserver.Password, byProvider.Jar.Cookies(page)[0].Value, byToken.Jar.Cookies(page)[0].Value} {
		if strings.Contains(log+journal+kept, secret) {
			t.Errorf("a secret of somebody who signs in is in the log, the journal or the file of sessions")
		}
	}
}
