package httpapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/index/live/shared"
	"blockd/index/live/shared/redis"
	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
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

// While the store of the fleet is away, its tokens give less than they say. Who would be let in by it is told so; who would not is told that.
func TestRightsOfTheFleetWithoutItsStore(t *testing.T) {
	f := newEntryFixture(t)
	folder := t.TempDir()
	node := testkit.Value(shared.Open(shared.Options{Folder: folder, Set: f.set}))(t)
	drawn := filepath.Join(t.TempDir(), "fleet")
	boss, helper := newToken(t, drawn, "boss", Admin), newToken(t, drawn, "helper", Write)
	rows := testkit.Value(os.ReadFile(drawn))(t)
	testkit.Must(t, os.WriteFile(shared.TokenFile(folder), rows, 0o600))
	s := f.settings
	s.Shared = node
	f.serve(s)
	for _, tt := range []struct {
		method, target, credential string
		want                       int
		says                       string
	}{
		{"GET", "/v1/entries", boss, 200, ""},
		{"POST", "/v1/entries", boss, 503, "store of the fleet"},
		{"GET", "/v1/tokens", boss, 503, "store of the fleet"},
		{"POST", "/v1/entries", helper, 503, "store of the fleet"},
		{"GET", "/v1/tokens", helper, 403, "--admin"},
	} {
		w := f.ask(tt.method, tt.target, `{"entry":"x.example"}`, tt.credential, json1)
		testkit.Got(w.Code, w.Body.String())(t, fmt.Sprintf("%s %s", tt.method, tt.target), tt.want, "…"+tt.says+"…")
	}
}

// machine starts the HTTP door of one machine of a fleet that shares live entries and tokens in a Redis, and the node that follows it.
func machine(t *testing.T, dsn string) (*entryFixture, *shared.Node) {
	t.Helper()
	f := newEntryFixture(t)
	engine := testkit.Value(redis.Open(dsn, "eu-mx"))(t)
	node := testkit.Value(shared.Open(shared.Options{Engine: engine, Kind: "redis", Name: "eu-mx", Folder: t.TempDir(), Set: f.set, Log: f.log, Token: CheckToken, Key: "a key of 32 octets at the least, of a fleet", Poll: time.Second}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { node.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		run.Wait()
		node.Close()
	})
	s := f.settings
	s.Shared = node
	f.serve(s)
	testkit.Eventually(t, "the store answers", func() bool { return node.Status().Up })
	return f, node
}

// Where machines share tokens, one that is made over HTTP is valid on all of them, is listed by all, and worthless everywhere when any of them revokes it.
func TestTokensOfTheFleetOverHTTP(t *testing.T) {
	server := redisserver.Start(t)
	link := testkit.NewProxy(t, server.Address)
	a, _ := machine(t, "redis://"+server.Address)
	b, node := machine(t, "redis://"+link.Address)
	bossA, bossB := newToken(t, a.tokens.path, "boss", Admin), newToken(t, b.tokens.path, "boss", Admin)

	made := decoded[MadeToken](t, a.ask("POST", "/v1/tokens", `{"name":"ann","scope":"write","owners":["ann@here.example"]}`, bossA, json1), 200, asJSON)
	testkit.Got(made.Fleet, len(made.Owners))(t, "made", true, 1)
	ann := "Authorization: Bearer " + made.Token
	worth := func(f *entryFixture) int { return f.ask("GET", "/v1/owners/ann@here.example/entries", "", ann).Code }
	testkit.Equal(t, "where it was made it is worth", worth(a), 200)
	testkit.Eventually(t, "the token counts on the other machine", func() bool { return worth(b) == 200 })
	local := decoded[MadeToken](t, a.ask("POST", "/v1/tokens", `{"name":"here","scope":"read","local":true}`, bossA, json1), 200, asJSON)
	if local.Fleet {
		t.Errorf("of one machine: %+v", local)
	}
	where := func(f *entryFixture, boss string) map[string]bool {
		all := map[string]bool{}
		for _, row := range decoded[TokenList](t, f.ask("GET", "/v1/tokens", "", boss), 200, asJSON).Tokens {
			all[row.Name] = row.Fleet
		}
		return all
	}
	if got, want := where(b, bossB), map[string]bool{"viewer": false, "helpdesk": false, "boss": false, "ann": true}; !maps.Equal(got, want) {
		t.Errorf("the other machine lists %v", got)
	}
	wantProblem(t, b.ask("POST", "/v1/tokens", `{"name":"ann","scope":"read"}`, bossB, json1), 409, "the fleet has a token named ann")
	b.gives(t, 404, "DELETE", "/v1/tokens?name=here", "", bossB)
	if w := b.ask("DELETE", "/v1/tokens?name=ann&local=1", "", bossB); w.Code != 404 || worth(b) != 200 {
		t.Errorf("local, of the fleet: %d %s", w.Code, w.Body)
	}
	left := decoded[TokenList](t, b.ask("DELETE", "/v1/tokens?name=ann", "", bossB), 200, asJSON)
	testkit.Got(len(left.Tokens), worth(b), left)(t, "revoked", 3, 401, "…")
	testkit.Eventually(t, "it is worthless on the other machine", func() bool { return worth(a) == 401 })
	a.gives(t, 200, "DELETE", "/v1/tokens?name=here", "", bossA)

	link.Set(testkit.Link{Down: true})
	testkit.Eventually(t, "the store is away", func() bool { return !node.Status().Up })
	for _, ask := range [][3]string{{"POST", "/v1/tokens", `{"name":"new","scope":"read"}`}, {"DELETE", "/v1/tokens?name=new", ""}} {
		if w := b.ask(ask[0], ask[1], ask[2], bossB, json1); w.Code != 503 || strings.Contains(w.Body.String(), "http.tokens") {
			t.Errorf("without the store %s is %d %s", ask[0], w.Code, w.Body)
		}
	}
	for _, ask := range [][3]string{{"POST", "/v1/tokens", `{"name":"new","scope":"read","local":true}`}, {"DELETE", "/v1/tokens?name=new", ""}} {
		b.gives(t, 200, ask[0], ask[1], ask[2], bossB, json1)
	}
}

// A machine whose tokens are all of the fleet has no file of its own, and the resource all the same.
func TestTokensOfTheFleetAlone(t *testing.T) {
	f, _ := machine(t, "redis://"+redisserver.Start(t).Address)
	s := f.settings
	s.Tokens, s.First = "", firstFile(t)
	f.serve(s)
	decoded[MadeToken](t, f.ask("POST", "/v1/tokens", `{"name":"ann","scope":"read"}`, bearFirst, json1), 200, asJSON)
	wantProblem(t, f.ask("POST", "/v1/tokens", `{"name":"bob","scope":"read","local":true}`, bearFirst, json1), 409, "http.tokens")
	list := decoded[TokenList](t, f.ask("GET", "/v1/tokens", "", bearFirst), 200, asJSON)
	testkit.Got(len(list.Tokens), testkit.At(list.Tokens, 0).Fleet)(t, "tokens", 1, true)
}
