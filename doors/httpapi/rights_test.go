package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"blockd/internal/testkit"
)

// adminRoutes are the resources for which the scope write is not enough.
var adminRoutes = []string{"GET /v1/tokens", "POST /v1/tokens", "DELETE /v1/tokens", "GET /v1/sessions", "DELETE /v1/sessions",
	"GET /v1/fleet/sequences", "POST /v1/fleet/halt", "POST /v1/fleet/again",
	"POST /v1/subscriptions", "POST /v1/subscriptions/{list}/enforce", "DELETE /v1/subscriptions/{list}"}

// Each resource wants a token of the scope that it is for, which may what those before it may, and no page of another site has it.
func TestRights(t *testing.T) {
	f, all := newChangingFixture(t)
	boss, writer := newToken(t, f.settings.Tokens, "boss", Admin), newToken(t, f.settings.Tokens, "writer", Write)
	path := strings.NewReplacer("{owner}", "bob@here.example", "{list}", "none")
	for _, r := range f.routes(http.NotFoundHandler()) {
		for _, m := range r.methods {
			name, ask := m.name+" "+r.path, func(headers ...string) int {
				return f.ask(m.name, path.Replace(r.path), "?", append(headers, json1)...).Code
			}
			admin := slices.Contains(adminRoutes, name)
			if _, changes := all[name]; changes != m.writes { // the code alone does not say who may
				t.Errorf("%s wants the right to write: %t, and changes something: %t", name, m.writes, changes)
			}
			for _, tt := range []struct {
				who, token string
				may        bool
			}{{"a reader", f.read, !m.writes && !admin}, {"a writer", writer, !admin}, {"an administrator", boss, true}} {
				if got := ask(tt.token); (got != http.StatusForbidden) != tt.may || got == http.StatusUnauthorized && !m.open {
					t.Errorf("%s by %s: %d", name, tt.who, got)
				}
			}
			if got := ask("X-None: x"); (got == http.StatusUnauthorized) == m.open {
				t.Errorf("%s without a token: %d", name, got)
			}
			if got := ask(boss, "Sec-Fetch-Site: cross-site"); got != http.StatusForbidden && !m.open {
				t.Errorf("%s for a page of another site: %d", name, got)
			}
		}
	}
}

// A session whose token was revoked bears nobody else's name, in the list and in the journal.
func TestSessionOfARevokedTokenHasNoName(t *testing.T) {
	f := newEntryFixture(t)
	boss := newToken(t, f.tokens.path, "boss", Admin)
	signIn(t, f.fixture, f.read)
	testkit.MustGot(RevokeToken(f.tokens.path, "viewer", nil, ""))(t, "revoke", true, nil)
	l := decoded[SessionList](t, f.ask("GET", "/v1/sessions", "", boss), 200, asJSON)
	testkit.Got(len(l.Sessions), testkit.At(l.Sessions, 0).Name)(t, fmt.Sprintf("%+v", l), 1, "a revoked token")
}

// A token that is made over HTTP is worth what it says, is shown once, and nothing when it is revoked; and an admin ends the sessions of others.
func TestTokensOverHTTP(t *testing.T) {
	f := newEntryFixture(t)
	boss := newToken(t, f.tokens.path, "boss", Admin)
	w := f.ask("POST", "/v1/tokens", `{"name":"ann","scope":"write","owners":["Ann@Here.example"]}`, boss, json1)
	made := decoded[MadeToken](t, w, 200, asJSON)
	testkit.Got(made.Scope, len(made.Owners), testkit.At(made.Owners, 0))(t, "made", "write", 1, "ann@here.example")
	ann := "Authorization: Bearer " + made.Token
	f.gives(t, 200, "POST", "/v1/owners/ann@here.example/entries", `{"entry":"x@y.example"}`, ann, json1)
	w = f.ask("GET", "/v1/tokens", "", boss)
	if list := decoded[TokenList](t, w, 200, asJSON); len(list.Tokens) != 4 || strings.Contains(w.Body.String(), made.Token) || strings.Contains(w.Body.String(), "sha256") {
		t.Errorf("%+v", list)
	}
	for _, body := range []string{`{"name":"a b","scope":"read"}`, `{"name":"x","scope":"root"}`, `{"name":"x"}`, `{"name":"x","scope":"admin","owners":["a@b.example"]}`, `{"name":"x","scope":"read","owners":["?"]}`, `[]`, `{"name":"x","scope":"read","hash":"1"}`} {
		f.gives(t, 400, "POST", "/v1/tokens", body, boss, json1)
	}
	one, other, own := signIn(t, f.fixture, ann), signIn(t, f.fixture, f.read), signIn(t, f.fixture, boss)
	w = f.ask("GET", "/v1/sessions", "", own)
	sessions := decoded[SessionList](t, w, 200, asJSON).Sessions
	if _, secret, _ := strings.Cut(one, "="); len(sessions) != 3 || strings.Contains(w.Body.String(), secret) {
		t.Errorf("%+v", sessions)
	}
	for _, s := range sessions {
		testkit.Equal(t, s, s.Own, s.Name == "boss")
		if s.Name == "viewer" {
			f.gives(t, 200, "DELETE", "/v1/sessions?id="+s.ID, "", own, fromPage)
		}
	}
	f.gives(t, 401, "GET", "/v1/entries", "", other)
	testkit.Got(who(t, f.fixture, one).SignedIn, who(t, f.fixture, own).SignedIn)(t, "other sessions", true, true)
	f.gives(t, 200, "DELETE", "/v1/tokens?name=ann", "", own, fromPage)
	testkit.Got(who(t, f.fixture, one).SignedIn, f.ask("GET", "/v1/owners/ann@here.example/entries", "", ann).Code)(t, "a revoked token and its session", false, 401)
}

// The list of tokens says when each was used last, by a program or by a browser that has signed in with it; to look at it uses none but one's own.
func TestTokensSayWhenTheyWereUsed(t *testing.T) {
	f := newEntryFixture(t)
	boss := newToken(t, f.tokens.path, "boss", Admin)
	used := func() (names string) {
		t.Helper()
		for _, token := range decoded[TokenList](t, f.ask("GET", "/v1/tokens", "", boss), 200, asJSON).Tokens {
			if token.Used != nil && time.Since(*token.Used) < time.Minute {
				names += token.Name + " "
			}
		}
		return names
	}
	testkit.Equal(t, "at first", used(), "boss ")
	cookie := signIn(t, f.fixture, f.read)
	f.ask("GET", "/v1/sessions", "", boss) // which looks the holder of a session up
	testkit.Equal(t, "after a sign-in alone", used(), "boss ")
	f.ask("GET", "/v1/entries", "", cookie)
	testkit.Equal(t, "after a request of a browser", used(), "viewer boss ")
	f.ask("GET", "/v1/entries", "", "Authorization: Bearer blockd_nobodys")
	f.ask("GET", "/v1/entries", "", f.write)
	testkit.Equal(t, "after a request of a program", used(), "viewer helpdesk boss ")
}

// TestWhatADaemonHasNot: a daemon without a store has none of its resources.
func TestWhatADaemonHasNot(t *testing.T) {
	f := newFixture(t, Settings{}, "bad.example\n")
	for _, target := range []string{"/v1/pauses", "/v1/quarantine", "/v1/quarantine/message?id=1700000001", "/v1/requests", "/v1/generations", "/v1/report"} {
		wantProblem(t, f.ask("GET", target, ""), http.StatusNotFound, "no such resource")
	}
}
