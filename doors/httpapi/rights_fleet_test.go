package httpapi

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"blockd/index/live/shared"
	"blockd/index/live/shared/redis"
	"blockd/internal/testkit"
	"blockd/internal/testkit/redisserver"
)

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
	node := testkit.Value(shared.Open(shared.Options{Engine: engine, Kind: "redis", Name: "eu-mx", Folder: t.TempDir(), Set: f.set, Log: f.log, Token: CheckToken, Poll: time.Second}))(t)
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
	s.Tokens, s.First = "", first
	f.serve(s)
	decoded[MadeToken](t, f.ask("POST", "/v1/tokens", `{"name":"ann","scope":"read"}`, bearFirst, json1), 200, asJSON)
	wantProblem(t, f.ask("POST", "/v1/tokens", `{"name":"bob","scope":"read","local":true}`, bearFirst, json1), 409, "http.tokens")
	list := decoded[TokenList](t, f.ask("GET", "/v1/tokens", "", bearFirst), 200, asJSON)
	testkit.Got(len(list.Tokens), testkit.At(list.Tokens, 0).Fleet)(t, "tokens", 1, true)
}
