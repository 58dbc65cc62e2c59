package httpapi

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/mail/addr"
)

// mailbox cuts tags off, and has an alias.
func mailbox(a addr.Addr) addr.Addr {
	a = a.Untagged("+")
	if a.String() == "sales@here.example" {
		a, _ = addr.Parse("anna@here.example")
	}
	return a
}

// TestAliasesLeadToTheirOwner: mail for an alias is judged by the entries of its owner, so an entry that is added for the alias is added for the owner. Who may not change
// the owner may not do it by an alias either.
func TestAliasesLeadToTheirOwner(t *testing.T) {
	f, bear := ownersFixture(t)
	anna, bob := bear(Write, "anna@here.example"), bear(Write, "bob@here.example")
	if r := f.ask("POST", "/v1/owners/sales@here.example/entries", `{"entry":"promo@bulk.example"}`, anna, json1); r.Code != 200 {
		t.Fatalf("anna adds for an alias of hers: %d %s", r.Code, r.Body.String())
	}
	testkit.Has(t, f.ask("GET", "/v1/owners/anna+x@here.example/entries", "", anna).Body.String(), "promo@bulk.example")
	testkit.Equal(t, "bob reads it", f.ask("GET", "/v1/owners/sales@here.example/entries", "", bob).Code, 404)
}

// ownersFixture is a Server with live entries and tokens: bear gives the header of one that is bound to owners.
func ownersFixture(t testing.TB) (f *fixture, bear func(scope Scope, owners ...string) string) {
	t.Helper()
	set := testkit.Value(live.Open(live.Settings{Folder: t.TempDir(), MaxPerOwner: 5}))(t)
	t.Cleanup(func() { set.Close() })
	path := filepath.Join(t.TempDir(), "tokens")
	f = newFixture(t, Settings{Entries: set, Tokens: path, First: first, Mailbox: mailbox}, "bad.example\n")
	return f, bearers(t, path)
}

// bearers makes tokens t1, t2 and so on in a file, as header lines.
func bearers(t testing.TB, path string) func(scope Scope, owners ...string) string {
	n := 0
	return func(scope Scope, owners ...string) string {
		t.Helper()
		var keys []addr.Key
		for _, o := range owners {
			k := testkit.Value(addr.ParseOwner(o))(t)
			keys = append(keys, k)
		}
		n++
		token := testkit.Value(NewToken(path, fmt.Sprintf("t%d", n), scope, nil, "", keys...))(t)
		return "Authorization: Bearer " + token
	}
}

const json1 = "Content-Type: application/json"

func TestOwnersEntries(t *testing.T) {
	f, bear := ownersFixture(t)
	ann := bear(Write, "ann@here.example")
	const path = "/v1/owners/ann@here.example/entries"
	w := f.ask("POST", path, `{"entry":"Promo@Bulk.example","why":"enough"}`, ann, json1)
	if got := decoded[ChangeResults](t, w, 200, asJSON).Results[0]; got.Result != "added" || got.Entry.Owner != "ann@here.example" || got.Entry.Author != "t1" {
		t.Errorf("added: %+v", got.Entry)
	}
	w = f.ask("GET", path, "", ann)
	first, tag := decoded[OwnerEntries](t, w, 200, asJSON), w.Header().Get("Etag")
	testkit.Got(len(first.Entries), first.Total, first.Owner, testkit.At(first.Entries, 0).Entry)(t, "entries", 1, 1, "ann@here.example", "promo@bulk.example")
	f.gives(t, http.StatusNotModified, "GET", path, "", ann, "If-None-Match: "+tag)
	f.ask("POST", path, `{"entries":[{"entry":"a@x.example"},{"entry":"b@x.example","action":"allow"},{"entry":"c@x.example"}]}`, ann, json1, "If-Match: "+tag)
	wantProblem(t, f.ask("POST", path, `{"entry":"d@x.example"}`, ann, json1, "If-Match: "+tag), 412, "have changed meanwhile")
	wantProblem(t, f.ask("DELETE", path+"?entry=a@x.example", "", ann, "If-Match: "+tag), 412, "have changed meanwhile")
	wantProblem(t, f.ask("POST", path, `{"entry":"d@x.example"}`, ann, json1, "If-Match: x"), 400, "want the ETag")
	wantProblem(t, f.ask("POST", path, `{"entries":[{"entry":"d@x.example"},{"entry":"e@x.example"}]}`, ann, json1), 409, "ann@here.example has 4, and may have 5 (max_entries_per_owner); remove one first")
	wantProblem(t, f.ask("POST", path, `{"entry":"192.0.2.1"}`, ann, json1), 400, "an owner's entry is about senders")
	wantProblem(t, f.ask("POST", path, `{"owner":"bob@here.example","entry":"d@x.example"}`, ann, json1), 400, "another one than the path has")
	var seen []string
	for cursor := ""; ; {
		l := decoded[OwnerEntries](t, f.ask("GET", path+"?limit=2&q=x.EXAMPLE"+cursor, "", ann), 200, asJSON)
		for _, e := range l.Entries {
			seen = append(seen, e.Entry)
		}
		if l.Next == "" {
			break
		}
		cursor = "&cursor=" + l.Next
	}
	testkit.Equal(t, "pages", strings.Join(seen, " "), "c@x.example b@x.example a@x.example")
	wantProblem(t, f.ask("GET", path+"?limt=2", "", ann), 400, "limt: no such parameter")
	// What an answer had, sent back, undoes; and everybody's entries are not the owner's.
	w = f.ask("DELETE", path+"?entry=b@x.example", "", ann)
	was, _ := json.Marshal(decoded[ChangeResults](t, w, 200, asJSON).Results[0].Was)
	if got := decoded[ChangeResults](t, f.ask("POST", path, string(was), ann, json1), 200, asJSON).Results[0]; got.Result != "added" || got.Entry.Action != "allow" {
		t.Errorf("undone: %+v", got)
	}
	if l := decoded[EntryList](t, f.ask("GET", "/v1/entries", "", bearFirst), 200, asJSON); len(l.Entries) > 0 {
		t.Errorf("everybody's: %+v", l)
	}
	testkit.Equal(t, "by ?owner", len(decoded[OwnerEntries](t, f.ask("GET", "/v1/entries?owner=ANN%2Btag@here.example", "", bearFirst), 200, asJSON).Entries), 4)
	testkit.Equal(t, "removed by ?owner", decoded[ChangeResults](t, f.ask("DELETE", "/v1/entries?owner=ann@here.example&entry=b@x.example", "", bearFirst), 200, asJSON).Results[0].Result, "removed")
	wantProblem(t, f.ask("POST", path, `{"entry":"d@x.example"}`, bear(Read, "ann@here.example"), json1), 403, "scope read")
}

// A token that is bound sees its own owner and nothing else, by whatever spelling, and is not told what there is.
func TestBoundTokensAgreeWithModel(t *testing.T) {
	f, bear := ownersFixture(t)
	for _, o := range []string{"ann@here.example", "bob@here.example", "here.example", "ann@there.example", "eve@xn--bcher-kva.example", "a/b@here.example"} {
		f.ask("POST", "/v1/owners/"+url.PathEscape(o)+"/entries", `{"entry":"spam@x.example"}`, bearFirst, json1)
	}
	tokens := []struct {
		header string
		owns   func(o string) bool
	}{
		{bear(Write, "ann@here.example"), func(o string) bool { return o == "ann@here.example" }},
		{bear(Read, "@here.example"), func(o string) bool { return o == "here.example" || strings.HasSuffix(o, "@here.example") }},
		{bear(Write, "here.example", "bücher.example"), func(o string) bool {
			return o == "here.example" || strings.HasSuffix(o, "@here.example") || o == "xn--bcher-kva.example" || strings.HasSuffix(o, "@xn--bcher-kva.example")
		}},
		{bear(Read, "a/b@here.example"), func(o string) bool { return o == "a/b@here.example" }},
	}
	spellings := []string{"ann@here.example", "Ann@HERE.example", "ann+x@here.example", "%61nn@here.example", "ann%40here.example", "bob@here.example", "here.example", "@here.example", "HERE.example.",
		"a%2Fb@here.example", "a/b@here.example", "eve@b%C3%BCcher.example", "eve@xn--bcher-kva.example", "ann@there.example", "ann@sub.here.example", "..%2Fentries", "%2e%2e", "*", "", "ann@here.example%00", "ann@here.example%2F..",
		"%22ann%22@here.example", "nobody@here.example", "nobody@none.example", "ann@here.example/entries/..", "x@here.example@none.example"}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		token, text := tokens[rng.IntN(len(tokens))], spellings[rng.IntN(len(spellings))]
		w := f.ask("GET", "/v1/owners/"+text+"/entries", "", token.header)
		if w.Code == http.StatusOK {
			l := decoded[OwnerEntries](t, w, 200, asJSON)
			if !token.owns(l.Owner) {
				t.Fatalf("%q shows %s", text, l.Owner)
			}
			continue
		}
		plain, err := url.PathUnescape(text)
		if err == nil && !strings.Contains(text, "/") && text != "" {
			if k, err := f.readOwner(plain); err == nil && token.owns(k.Text) {
				t.Fatalf("%q is refused to its owner: %d", text, w.Code)
			}
			if w.Code != http.StatusNotFound && w.Code/100 != 3 || w.Code == http.StatusNotFound && !strings.Contains(w.Body.String(), noOwner) && !strings.Contains(w.Body.String(), "no such resource") {
				t.Fatalf("%q: %d %s", text, w.Code, w.Body)
			}
		}
	}
	known := f.ask("GET", "/v1/owners/bob@here.example/entries", "", tokens[0].header)
	unknown := f.ask("GET", "/v1/owners/nobody@none.example/entries", "", tokens[0].header)
	testkit.Got(known.Code, known.Body.String())(t, "an owner with entries", unknown.Code, unknown.Body.String())
	for _, target := range []string{"/v1/entries", "/v1/entries?owner=ann@here.example", "/v1/entries.csv", "/v1/lists", "/v1/serving", "/metrics", "/readyz", "/v1/check?sender=a@b.example", "/v1/check?sender=a@b.example&recipient=bob@here.example", "/"} {
		f.gives(t, http.StatusForbidden, "GET", target, "", tokens[0].header)
	}
	for _, target := range []string{"/v1/entries", "/v1/check", "/v1/owners/bob@here.example/entries"} {
		if w := f.ask("POST", target, `{"entry":"x@y.example"}`, tokens[0].header, json1); w.Code != http.StatusForbidden && w.Code != http.StatusNotFound {
			t.Errorf("POST %s: %d", target, w.Code)
		}
	}
	f.gives(t, http.StatusOK, "GET", "/v1/check?sender=spam@x.example&recipient=ann%2Bnews@here.example", "", tokens[0].header)
}

// A panel can add for many owners in one request.
func TestManyOwnersAtOnce(t *testing.T) {
	f, _ := ownersFixture(t)
	got := decoded[ChangeResults](t, f.ask("POST", "/v1/entries", `{"entries":[{"owner":"ann@here.example","entry":"x@y.example"},{"owner":"bob@here.example","entry":"x@y.example"},{"entry":"x@y.example"}]}`, bearFirst, json1), 200, asJSON)
	if len(got.Results) != 3 || got.Results[0].Result != "added" || got.Results[1].Result != "added" || got.Results[2].Entry.Owner != "" {
		t.Errorf("%+v", got)
	}
}
