package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"blockd/doors/forget"
	"blockd/doors/receipt"
	"blockd/index"
	"blockd/index/live"
	"blockd/internal/testkit"
	"blockd/internal/testkit/indexes"
	"blockd/lists"
	"blockd/policy/verdict"
	"blockd/records/history"
	"blockd/records/pause"
	"blockd/records/rollup"
)

// boundRoutes is what each resource answers to a token that is bound to owners: "own" = it judges by itself what of it is the
// token's, "open" = no token is asked for, "no" = 403. A new resource wants a line here.
var boundRoutes = map[string]string{
	"GET /": "no", "GET /healthz": "open", "GET /readyz": "no", "GET /metrics": "no", "GET /openapi.json": "no",
	"GET /v1/check": "own", "POST /v1/check": "no", "POST /v1/check/stream": "no", "POST /v1/check/text": "no", "POST /v1/check/message": "no", "GET /v1/lists": "no", "GET /v1/serving": "no",
	"GET /v1/entries": "no", "POST /v1/entries": "no", "DELETE /v1/entries": "no", "GET /v1/entries.csv": "no", "GET /v1/entries.ndjson": "no",
	"GET /v1/sessions": "no", "DELETE /v1/sessions": "no", "GET /v1/tokens": "no", "POST /v1/tokens": "no", "DELETE /v1/tokens": "no",
	"GET /v1/session": "open", "POST /v1/session": "open", "DELETE /v1/session": "open",
	"GET /v1/owners/{owner}/entries": "own", "POST /v1/owners/{owner}/entries": "own", "DELETE /v1/owners/{owner}/entries": "own",
	"GET /v1/quarantine": "no", "DELETE /v1/quarantine": "no", "GET /v1/quarantine/message": "no", "POST /v1/quarantine/release": "no",
	"GET /v1/requests": "no", "POST /v1/requests/grant": "no", "POST /v1/requests/decline": "no",
	"GET /v1/generations": "no", "GET /v1/lists/{list}/diff": "no", "POST /v1/lists/{list}/rollback": "no", "POST /v1/lists/{list}/adopt": "no",
	"POST /v1/lists/{list}/pause": "no", "POST /v1/lists/{list}/resume": "no", "POST /v1/correspondents": "no", "POST /v1/forget": "no",
	"GET /v1/audit": "no", "GET /v1/report": "no", "POST /v1/report": "no", "POST /v1/reload": "no",
	"GET /v1/lists/{list}": "no", "GET /v1/lists/{list}/replay": "no", "POST /v1/lint": "no", "GET /v1/catalogue": "no", "GET /v1/catalogue/text": "no",
	"GET /v1/subscriptions": "no", "POST /v1/subscriptions": "no", "DELETE /v1/subscriptions/{list}": "no", "POST /v1/subscriptions/{list}/enforce": "no",
	"GET /v1/series": "no", "GET /v1/series.csv": "no", "GET /v1/top": "no", "GET /v1/top.csv": "no", "GET /v1/top.ndjson": "no",
	"GET /v1/fleet/sequences": "no", "POST /v1/fleet/halt": "no", "POST /v1/fleet/again": "no",
	"GET /v1/decisions": "no", "GET /v1/decisions.csv": "no", "GET /v1/decisions.ndjson": "no", "GET /v1/events": "no",
}

// TestBoundTokensHaveAnAnswerOfEachRoute: a resource without a row in the table is closed to tokens of owners.
func TestBoundTokensHaveAnAnswerOfEachRoute(t *testing.T) {
	f, bear := ownersFixture(t)
	s := f.settings
	s.Undo, s.Pauses, s.Audit, s.Quarantine, s.Requests, s.Report = &Undo{}, new(pause.Set), &Audit{}, &Quarantine{}, new(receipt.Store), &Report{}
	s.Subscriptions = &Subscriptions{}
	s.Channel = &Channel{}
	s.Rollup, s.Offer, s.Replay = rollup.New("", nil), &Offer{}, func(context.Context, string, time.Time) (Replay, error) { return Replay{}, nil }
	s.History, s.Person, s.Events, s.Reload = new(history.Log), new(forget.Places), NewEvents(), func(context.Context, string) (Reloaded, error) {
		t.Error("a token of an owner reloads")
		return Reloaded{}, nil
	}
	f.serve(s)
	ann, seen := bear(Write, "ann@here.example"), map[string]bool{}
	for _, r := range f.routes(http.NotFoundHandler()) {
		for _, m := range r.methods {
			name := m.name + " " + r.path
			want, known := boundRoutes[name]
			if seen[name] = true; !known {
				t.Errorf("%s: no answer to a token of an owner is decided", name)
				continue
			}
			if m.owners != (want == "own") || m.open != (want == "open") {
				t.Errorf("%s: owners %v, open %v, and decided is %q", name, m.owners, m.open, want)
			}
			target := strings.NewReplacer("{owner}", "bob@here.example", "{list}", "bad").Replace(r.path)
			w := f.ask(m.name, target, `{"entry":"x@y.example"}`, ann, json1)
			switch {
			case want == "no" && (w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "bound to an owner")):
				t.Errorf("%s: %d %s", name, w.Code, w.Body)
			case want == "own" && w.Code != http.StatusNotFound && w.Code != http.StatusBadRequest && w.Code != http.StatusForbidden:
				t.Errorf("%s of another: %d %s", name, w.Code, w.Body)
			}
		}
	}
	for name := range boundRoutes {
		if !seen[name] {
			t.Errorf("%s is gone", name)
		}
	}
}

// TestOwnersEntriesAreShownToWhoMay: the verdict for a recipient is everybody's who may ask; the entries that made it are the owners'.
func TestOwnersEntriesAreShownToWhoMay(t *testing.T) {
	ask := func(f *fixture, bear func(Scope, ...string) string, sight map[string]string, headers ...string) {
		t.Helper()
		for recipient, want := range sight {
			for _, explain := range []string{"", "&explain=1"} {
				w := f.ask("GET", "/v1/check?sender=promo@bulk.example&recipient="+recipient+explain, "", headers...)
				if w.Code != http.StatusOK {
					testkit.Equal(t, fmt.Sprintf("%s %v: %s", recipient, headers, w.Body), fmt.Sprint(w.Code), want)
					continue
				}
				var a answer
				testkit.Must(t, json.Unmarshal(w.Body.Bytes(), &a))
				got := string(a.Verdict) + " " + a.Outcome
				for _, m := range a.Matches {
					got += " " + m.Owner + ":" + m.Entry
				}
				testkit.Equal(t, fmt.Sprintf("%s%s %v", recipient, explain, headers), got, want)
				for _, secret := range []string{"her bank", "bob@here.example"} {
					if strings.Contains(w.Body.String(), secret) && !strings.Contains(want, "bulk.example") {
						t.Errorf("%s%s %v tells %q: %s", recipient, explain, headers, secret, w.Body)
					}
				}
				if explain != "" && (a.Explain.Decider >= len(a.Matches) || len(a.Matches) == 0 && a.Explain.Decider >= 0) {
					t.Errorf("%s %v: match %d of %d decides", recipient, headers, a.Explain.Decider, len(a.Matches))
				}
			}
		}
	}
	set := testkit.Value(live.Open(live.Settings{Folder: t.TempDir()}))(t)
	defer set.Close()
	withUsers := func(f *fixture) {
		users := index.Source{List: "users", Path: testkit.File(t, "users.csv", "owner,entry,action,reason\nann@here.example,promo@bulk.example,block,her bank\nhere.example,bulk.example,allow,her bank\n"),
			Settings: lists.Settings{Format: "csv:entry", PerRecipient: true}}
		f.live = indexes.Build(t, users, indexes.Source(t, "bad", "bad.example\n"))
	}
	open := newFixture(t, Settings{}, "bad.example\n") // on loopback, where no token is needed
	withUsers(open)
	ask(open, nil, map[string]string{"ann@here.example": "blocked refuse", "eve@here.example": "allowed accept", "eve@else.example": "clear accept"})
	for _, body := range []string{"promo@bulk.example\n"} {
		for _, target := range []string{"/v1/check?recipient=ann@here.example", "/v1/check?recipient=ann@here.example&explain=1"} {
			for _, accept := range []string{"Accept: text/plain", "Accept: application/x-ndjson"} {
				w := open.ask("POST", target, body, "Content-Type: text/plain", accept)
				if text := w.Body.String(); w.Code != http.StatusOK || strings.Contains(text, "her bank") || strings.Contains(text, "users") || !strings.Contains(text, "blocked") {
					t.Errorf("POST %s %s: %d %s", target, accept, w.Code, text)
				}
			}
		}
	}
	for _, target := range []string{"/v1/check", "/v1/check?explain=1", "/v1/check/stream"} {
		body, kind := `{"senders":[{"sender":"promo@bulk.example","recipient":"ann@here.example"}]}`, json1
		if strings.HasSuffix(target, "stream") {
			body, kind = `{"sender":"promo@bulk.example","recipient":"ann@here.example"}`+"\n", "Content-Type: application/x-ndjson"
		}
		w := open.ask("POST", target, body, kind)
		if text := w.Body.String(); w.Code != http.StatusOK || strings.Contains(text, "her bank") || strings.Contains(text, `"users"`) || !strings.Contains(text, `"outcome":"refuse"`) {
			t.Errorf("POST %s: %d %s", target, w.Code, text)
		}
	}

	f, bear := ownersFixture(t)
	withUsers(f)
	all := map[string]string{"ann@here.example": "blocked refuse ann@here.example:promo@bulk.example here.example:bulk.example", "eve@here.example": "allowed accept here.example:bulk.example"}
	ask(f, bear, all, bear(Read))
	ask(f, bear, all, bear(Read, "here.example"))
	ask(f, bear, map[string]string{"ann@here.example": "blocked refuse ann@here.example:promo@bulk.example", "ann%2Bx@here.example": "blocked refuse ann@here.example:promo@bulk.example", "eve@here.example": "403"}, bear(Read, "ann@here.example"))
	ask(f, bear, map[string]string{"eve@here.example": "allowed accept", "ann@here.example": "403"}, bear(Read, "eve@here.example"))
	ask(f, bear, map[string]string{"ann@here.example": "401"})
	// Without a recipient there is nothing of owners, whoever asks.
	var v verdict.Answer
	if err := json.Unmarshal(f.ask("GET", "/v1/check?sender=promo@bulk.example&explain=1", "", bear(Write)).Body.Bytes(), &v); err != nil || len(v.Matches) > 0 || v.Verdict != "clear" {
		t.Errorf("without a recipient: %+v, %v", v, err)
	}
}
