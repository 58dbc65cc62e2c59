package provider

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/oidcserver"
)

const back = "http://127.0.0.1:8025/v1/session/callback"

var people = []oidcserver.User{
	{ID: "u1", Username: "anna", Email: "anna@here.example", EmailVerified: true},
	{ID: "u2", Username: "bob", Email: "bob@here.example"},
}

func settings(issuer string) Settings {
	return Settings{Issuer: issuer, ClientID: oidcserver.ClientID, ClientSecret: oidcserver.ClientSecret, Redirect: back, Scopes: []string{"profile", "email"},
		Rules: Rules{Claim: "email", Write: []string{"Anna@here.example"}, Read: []string{"bob@here.example"}}}
}

// Somebody signs in with a real provider; and nothing that belongs to another sign-in, browser, client or provider is taken.
func TestSignIn(t *testing.T) {
	server := oidcserver.Start(t, people, back)
	p := New(settings(server.Issuer))
	begin := func(secret string) string {
		t.Helper()
		to := testkit.Value(p.Begin(t.Context(), secret))(t)
		return to
	}
	finish := func(p *Provider, secret string, query url.Values, want error) Person {
		t.Helper()
		person, err := p.Finish(t.Context(), secret, query)
		testkit.IsError(t, query, err, want)
		return person
	}
	mine, other := NewSecret(), NewSecret()
	to := begin(mine)
	testkit.Has(t, to, "code_challenge_method=S256", "code_challenge=", "state="+derive(mine, "state"), "nonce="+derive(mine, "nonce"))
	testkit.Lacks(t, to, mine, derive(mine, "verifier"))
	query := server.SignIn(t, to, "anna")
	finish(p, other, query, ErrStale)
	finish(p, "", query, ErrStale)
	if got := finish(p, mine, query, nil); got != (Person{Subject: "u1", Name: "anna", Scope: "write"}) {
		t.Errorf("%+v", got)
	}
	finish(p, mine, query, ErrDenied) // a code is good for once
	// A code that another browser has got, with the state of this one: the verifier and the nonce are that browser's.
	stolen := server.SignIn(t, begin(other), "anna")
	stolen.Set("state", derive(mine, "state"))
	finish(p, mine, stolen, ErrDenied)
	// The provider verifies no address of Bob's, so that he may call himself anything.
	finish(p, mine, server.SignIn(t, begin(mine), "bob"), ErrNoRights)
	for _, wrong := range []url.Values{{"error": {"access_denied"}}, {}, {"code": {"x"}, "iss": {"https://evil.example"}}, {"code": {strings.Repeat("x", 10_000)}}} {
		wrong.Set("state", derive(mine, "state"))
		finish(p, mine, wrong, ErrDenied)
	}
	s := settings(server.Issuer)
	s.ClientSecret = "wrong"
	finish(New(s), mine, server.SignIn(t, begin(mine), "anna"), ErrDenied)
	if to := p.EndSession(t.Context()); !strings.HasPrefix(to, server.Issuer) || !strings.HasSuffix(to, "?client_id="+oidcserver.ClientID) {
		t.Errorf("to sign out at the provider one goes to %q", to)
	}
	// While the provider is away nobody signs in, and after it is back people do.
	query = server.SignIn(t, begin(mine), "anna")
	server.Kill()
	finish(p, mine, query, ErrAway)
	testkit.Fails(New(settings(server.Issuer)).Begin(t.Context(), mine))(t, "a provider that is away", ErrAway)
	testkit.Equal(t, "a provider that has said nothing leads", New(settings(server.Issuer)).EndSession(t.Context()), "")
	server.Restart(t)
	finish(p, mine, server.SignIn(t, begin(mine), "anna"), nil)
}

// A provider that says it is another, or answers without end, is none.
func TestHostileProvider(t *testing.T) {
	var answer string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(answer))
	}))
	defer server.Close()
	for _, answer = range []string{`{"issuer":"https://id.example"}`, "{}", "", strings.Repeat(" ", 2*maxAnswer) + `{"issuer":"` + server.URL + `","authorization_endpoint":"https://x.example/"}`} {
		if to, err := New(settings(server.URL)).Begin(t.Context(), "x"); !errors.Is(err, ErrAway) {
			t.Errorf("%.60q leads to %q, %v", answer, to, err)
		}
	}
	for _, end := range []string{"", "javascript:alert(1)", "/end", "//", "ftp://x.example/", "http://%zz/"} {
		answer = `{"issuer":"` + server.URL + `","authorization_endpoint":"https://x.example/","end_session_endpoint":"` + end + `"}`
		testkit.Equal(t, fmt.Sprintf("%q leads", end), New(settings(server.URL)).EndSession(t.Context()), "")
	}
}

func TestBusy(t *testing.T) {
	p := New(settings("http://127.0.0.1:1/"))
	var all []func()
	for range maxAtOnce {
		done := testkit.Value(p.enter())(t)
		all = append(all, done)
	}
	testkit.Fails(p.Begin(t.Context(), "x"))(t, "beyond the bound", ErrBusy)
	for _, done := range all {
		done()
	}
	testkit.Fails(p.Begin(t.Context(), "x"))(t, "a provider that is away", ErrAway)
}

// Which claims give which rights.
func TestRules(t *testing.T) {
	rules := Rules{Claim: "groups", Read: []string{"staff"}, Write: []string{"postmasters"}, Admin: []string{"root"}, SelfService: []string{"Here.Example"}}
	nested, all, byAddress := rules, rules, rules
	nested.Claim, byAddress.Claim, byAddress.Write = "realm_access.roles", "email", []string{"anna@here.example"}
	all.Read = []string{"*"}
	anna := map[string]any{"email": "anna@here.example", "email_verified": true}
	for _, tt := range []struct {
		name         string
		rules        Rules
		claims       map[string]any
		scope, owner string
	}{
		{"a list", rules, map[string]any{"groups": []any{"others", "staff"}}, "read", ""},
		{"the widest", rules, map[string]any{"groups": []any{"staff", "root", "postmasters"}}, "admin", ""},
		{"a text", rules, map[string]any{"groups": "postmasters"}, "write", ""},
		{"an object", rules, map[string]any{"groups": map[string]any{"root": map[string]any{"1": "here.example"}}}, "admin", ""},
		{"part of a text", rules, map[string]any{"groups": "root postmasters"}, "", ""},
		{"a number", rules, map[string]any{"groups": []any{1.0, nil}}, "", ""},
		{"within another", nested, map[string]any{"realm_access": map[string]any{"roles": []any{"staff"}}}, "read", ""},
		{"the whole name first", nested, map[string]any{"realm_access.roles": "root", "realm_access": map[string]any{"roles": []any{"staff"}}}, "admin", ""},
		{"nothing", rules, map[string]any{}, "", ""},
		{"everybody", all, map[string]any{}, "read", ""},
		{"everybody, and more", all, map[string]any{"groups": "root"}, "admin", ""},
		{"an own address", rules, anna, "write", "anna@here.example"},
		{"a group besides", rules, map[string]any{"email": "anna@here.example", "email_verified": true, "groups": "staff"}, "read", ""},
		{"an address that nobody verified", rules, map[string]any{"email": "anna@here.example"}, "", ""},
		{"and one that was not", rules, map[string]any{"email": "anna@here.example", "email_verified": false}, "", ""},
		{"verified as a text", rules, map[string]any{"email": "anna@here.example", "email_verified": "true"}, "write", "anna@here.example"},
		{"an address elsewhere", rules, map[string]any{"email": "anna@there.example", "email_verified": true}, "", ""},
		{"an address below", rules, map[string]any{"email": "anna@sub.here.example", "email_verified": true}, "", ""},
		{"two addresses", rules, map[string]any{"email": "x@here.example@there.example", "email_verified": true}, "", ""},
		{"by address", byAddress, anna, "write", ""},
		{"by an address that nobody verified", byAddress, map[string]any{"email": "anna@here.example"}, "", ""},
	} {
		tt.claims["sub"] = "u1"
		p, err := tt.rules.person(tt.claims)
		if p.Scope != tt.scope || p.Owner != tt.owner || (err == nil) != (tt.scope != "") {
			t.Errorf("%s: %+v, %v", tt.name, p, err)
		}
	}
	testkit.Fails(rules.person(map[string]any{"groups": "root"}))(t, "somebody without a subject", ErrDenied)
	for want, claims := range map[string]map[string]any{
		"u1": {"preferred_username": strings.Repeat("x", 201)}, "anna": {"preferred_username": "anna", "name": "Anna"}, "Anna A.": {"name": "Anna A.", "preferred_username": "an\u202ena"},
	} {
		claims["sub"], claims["groups"] = "u1", "root"
		if p, _ := rules.person(claims); p.Name != want {
			t.Errorf("%v is called %q", claims, p.Name)
		}
	}
	digests := []string{}
	for _, r := range []Rules{rules, nested, all, byAddress} {
		digests = append(digests, New(Settings{Issuer: "https://id.example", Rules: r}).Digest())
	}
	slices.Sort(digests)
	testkit.Equal(t, "digests of four sets of rules", len(slices.Compact(digests)), 4)
}
